//! A disk whose every write can be cut, torn and reordered, and a driver of a packed volume on it.

use lunette_quanta::packed::record::{self, Shape};
use lunette_quanta::packed::{Checkpoint, Journal, Layout, Move, Tail, replay};
use lunette_quanta::{Cipher, Codec, DataKey, Holes, KeyRing, QuantumSize, SLOT_LEN, Sealing, Seed, VolumeId};

/// The length that a disk writes as a whole or not at all.
pub(crate) const SECTOR_LEN: usize = 512;
pub(crate) const VOLUME: VolumeId = VolumeId([7; 16]);
/// A disk with a volatile cache.
#[derive(Clone)]
pub(crate) struct Disk {
    /// The bytes that reads return.
    pub(crate) bytes: Vec<u8>,
    /// The bytes that a power cut leaves for certain.
    stable: Vec<u8>,
    /// Sectors written since the last flush, in order.
    pending: Vec<(usize, [u8; SECTOR_LEN])>,
    /// A copy of the disk before each write and each flush of the present step.
    pub(crate) history: Option<Vec<Disk>>,
    /// Bytes written so far.
    pub(crate) written: u64,
}

impl Disk {
    pub(crate) fn new(len: usize) -> Self {
        Self { bytes: vec![0; len], stable: vec![0; len], pending: Vec::new(), history: None, written: 0 }
    }

    fn remember(&mut self) {
        if let Some(mut history) = self.history.take() {
            history.push(self.clone());
            self.history = Some(history);
        }
    }

    pub(crate) fn write(&mut self, offset: u64, from: &[u8]) {
        self.remember();
        let offset = offset as usize;
        assert!(offset.is_multiple_of(SECTOR_LEN) && from.len().is_multiple_of(SECTOR_LEN), "whole blocks");
        self.bytes[offset..offset + from.len()].copy_from_slice(from);
        self.written += from.len() as u64;
        for (index, sector) in from.chunks(SECTOR_LEN).enumerate() {
            self.pending.push((offset + index * SECTOR_LEN, sector.try_into().expect("a sector")));
        }
    }

    pub(crate) fn flush(&mut self) {
        self.remember();
        self.stable.clone_from(&self.bytes);
        self.pending.clear();
    }

    /// Sectors that a power cut could lose now.
    pub(crate) fn unflushed(&self) -> usize {
        self.pending.len()
    }

    /// The disk after a power cut, with the unflushed sectors that survive. A sector that was written twice and
    /// survives only the first time is what reordering makes of it.
    pub(crate) fn cut(&self, survives: impl Fn(usize) -> bool) -> Self {
        let mut bytes = self.stable.clone();
        for (_, (offset, sector)) in self.pending.iter().enumerate().filter(|(index, _)| survives(*index)) {
            bytes[*offset..offset + SECTOR_LEN].copy_from_slice(sector);
        }
        Self { stable: bytes.clone(), bytes, pending: Vec::new(), history: None, written: 0 }
    }
}

pub(crate) fn codec(size: QuantumSize) -> Codec {
    let ring = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([3; 32])).expect("epochs begin with 1");
    Codec::new(VOLUME, size, Holes::Allowed, ring)
}

/// A driver as `lunette_quanta::packed` asks for, one request at a time.
pub(crate) struct Driver {
    pub(crate) disk: Disk,
    pub(crate) layout: Layout,
    pub(crate) journal: Journal,
    codec: Codec,
    requests: u8,
}

impl Driver {
    pub(crate) fn format(layout: Layout, size: QuantumSize) -> Self {
        let mut disk = Disk::new(layout.len_bytes() as usize);
        for tail in Journal::first_tails(VOLUME) {
            Self::write_tail(&mut disk, &layout, &tail);
        }
        disk.flush();
        Self { disk, layout, journal: Journal::new(layout, VOLUME), codec: codec(size), requests: 0 }
    }

    pub(crate) fn open(mut disk: Disk, layout: Layout, size: QuantumSize) -> Self {
        let area = &disk.bytes[layout.journal_offset() as usize..][..layout.journal_len() as usize];
        let mut journal = replay(area, &layout, VOLUME).expect("a tail is always whole");
        disk.flush();
        for tail in journal.take_over(1) {
            Self::write_tail(&mut disk, &layout, &tail);
            disk.flush();
        }
        Self { disk, layout, journal, codec: codec(size), requests: 100 }
    }

    fn write_tail(disk: &mut Disk, layout: &Layout, tail: &Tail) {
        let mut block = [0; SECTOR_LEN];
        block[..tail.bytes.len()].copy_from_slice(&tail.bytes);
        disk.write(layout.journal_offset() + tail.offset, &block);
    }

    /// Writes `content` to quanta, or unmaps them.
    pub(crate) fn put(&mut self, positions: &[u64], content: Option<u8>) {
        let sealed = if content.is_some() { positions.len() } else { 0 };
        let shape = Shape { sealed, holes: positions.len() - sealed };
        let ticket = self.journal.reserve(shape).unwrap_or_else(|_| {
            self.checkpoint();
            self.journal.reserve(shape).expect("an empty journal has room")
        });
        let mut bytes = vec![0xee; shape.len(&self.layout)];
        let (slots, data) = record::places(&mut bytes, shape, &self.layout);
        let len = self.codec.size().bytes();
        for (index, (slot, data)) in slots.chunks_mut(SLOT_LEN).zip(data.chunks_mut(len)).enumerate() {
            self.requests = self.requests.wrapping_add(1);
            let seed = Seed::new([self.requests; 32]);
            let plain = vec![content.unwrap_or(0); len];
            self.codec.seal_split(Sealing { position: positions[index], version: 1, seed }, &plain, data, slot);
        }
        record::finish(&mut bytes, &self.layout, VOLUME, &ticket, positions.iter().copied());
        self.disk.write(self.layout.journal_offset() + ticket.offset, &bytes);
        self.journal.written(&ticket, &bytes);
    }

    /// Flushes, and notes what was flushed.
    pub(crate) fn flush(&mut self) {
        let through = self.journal.written_through();
        self.disk.flush();
        if self.journal.flushed(through) {
            Self::write_tail(&mut self.disk, &self.layout, &self.journal.note());
        }
    }

    pub(crate) fn checkpoint(&mut self) {
        self.checkpoint_in_steps(usize::MAX, |_, _| {});
    }

    /// Makes a checkpoint that looks at `most` quanta at a time. `between` comes after each of these steps, and after
    /// each step that forgets quanta.
    pub(crate) fn checkpoint_in_steps(&mut self, most: usize, mut between: impl FnMut(&mut Self, bool)) {
        let mut checkpoint = self.journal.begin_checkpoint();
        while !self.journal.gather(&mut checkpoint, most) {
            between(self, true);
        }
        self.disk.flush();
        self.move_out(&checkpoint);
        self.disk.flush();
        let tail = self.journal.tail(&checkpoint);
        Self::write_tail(&mut self.disk, &self.layout, &tail);
        self.disk.flush();
        self.journal.free(&checkpoint);
        for moves in checkpoint.moves.chunks(most) {
            between(self, false);
            self.journal.forget(moves);
        }
    }

    fn move_out(&mut self, checkpoint: &Checkpoint) {
        let len = self.codec.size().bytes();
        for moved in &checkpoint.moves {
            let data = match moved.data_offset {
                Some(offset) => self.disk.bytes[(self.layout.journal_offset() + offset) as usize..][..len].to_vec(),
                None => vec![0; len],
            };
            self.disk.write(self.layout.data(moved.position), &data);
        }
        let layout = self.layout;
        let same_block = |a: &Move, b: &Move| layout.slot_block(a.position) == layout.slot_block(b.position);
        for moves in checkpoint.moves.chunk_by(same_block) {
            let at = self.layout.slot_block(moves[0].position);
            let mut block = self.disk.bytes[at as usize..][..SECTOR_LEN].to_vec();
            for moved in moves {
                let within = (self.layout.slot(moved.position) - at) as usize;
                block[within..within + SLOT_LEN].copy_from_slice(&moved.slot);
            }
            self.disk.write(at, &block);
        }
    }

    /// The content of a quantum, 0 for one without.
    pub(crate) fn get(&self, position: u64) -> u8 {
        let len = self.codec.size().bytes();
        let live = self.journal.live(position..position + 1).next().map(|(_, live)| *live);
        let (data_at, slot) = if let Some(live) = live {
            (live.data_offset.map(|at| self.layout.journal_offset() + at), live.slot)
        } else {
            let slot = &self.disk.bytes[self.layout.slot(position) as usize..][..SLOT_LEN];
            (Some(self.layout.data(position)), slot.try_into().expect("a slot"))
        };
        let mut data = match data_at {
            Some(at) => self.disk.bytes[at as usize..][..len].to_vec(),
            None => vec![0; len],
        };
        self.codec.open_in_place(position, &mut data, &slot).unwrap_or_else(|error| panic!("{error}"));
        assert!(data.iter().all(|byte| *byte == data[0]), "a mixture of two contents");
        data[0]
    }
}
