//! Units, keys and short forms of requests.

use std::sync::Arc;
use std::thread;

use lunette_buffer::Pool;
use lunette_quanta::{Cipher, DataKey, Header, Holes, KeyRing, QuantumSize, VolumeId};
use lunette_store::{Capabilities, Completion, FileIo, Geometry, MemoryStore, Op, Outcome, Store, StoreError, execute};
use lunette_volume::{FormatOptions, OpenOptions, Volume, find, format};

pub(crate) const VOLUME: VolumeId = VolumeId([7; 16]);

/// A store that is seen in blocks, as the unit of a disk is.
pub(crate) struct Blocks {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) block_len: u32,
    /// Whether the store says that it frees space.
    pub(crate) unmap: bool,
}

impl Store for Blocks {
    fn geometry(&self) -> Geometry {
        let len_bytes = self.inner.geometry().len_bytes / u64::from(self.block_len) * u64::from(self.block_len);
        let block = self.block_len;
        Geometry { len_bytes, granularity_bytes: block, physical_bytes: block, unmap_bytes: block }
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        Capabilities { unmap: inner.unmap && self.unmap, unmap_zeroes: inner.unmap_zeroes && self.unmap, ..inner }
    }

    fn needs_file_io(&self) -> bool {
        self.inner.needs_file_io()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let (offset, len) = op.range();
        let block_len = u64::from(self.block_len);
        assert!(offset.is_multiple_of(block_len) && len.is_multiple_of(block_len), "{offset}+{len}: not whole blocks");
        self.inner.submit(op, io, done);
    }
}

/// How the volumes of a test lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Native(QuantumSize),
    /// Quanta, and bytes of a block.
    Packed(QuantumSize, u32),
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::Native(QuantumSize::B512),
        Self::Native(QuantumSize::B4096),
        Self::Packed(QuantumSize::B512, 512),
        Self::Packed(QuantumSize::B4096, 512),
        Self::Packed(QuantumSize::B4096, 4096),
    ];

    pub(crate) fn size(self) -> QuantumSize {
        match self {
            Self::Native(size) | Self::Packed(size, _) => size,
        }
    }

    pub(crate) fn blocks(self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        let block_len = match self {
            Self::Native(size) => size.edu_len() as u32,
            Self::Packed(_, block_len) => block_len,
        };
        Arc::new(Blocks { inner, block_len, unmap: true })
    }

    /// Bytes of a unit for about this many quanta, with the smallest journal.
    pub(crate) fn unit_bytes(self, quanta: u64) -> u64 {
        let edus = (quanta + 2) * self.size().edu_len() as u64;
        match self {
            Self::Native(_) => edus,
            Self::Packed(..) => 8192 + JOURNAL_BYTES + edus.next_multiple_of(4096) + 4096,
        }
    }

    pub(crate) fn options(self, holes: Holes) -> FormatOptions {
        let (size, journal_bytes) = match self {
            Self::Native(_) => (None, None),
            Self::Packed(size, _) => (Some(size), Some(JOURNAL_BYTES)),
        };
        FormatOptions { size, holes, journal_bytes, ..FormatOptions::default() }
    }
}

pub(crate) const JOURNAL_BYTES: u64 = 64 << 10;

pub(crate) fn keys(epochs: &[u32]) -> KeyRing {
    let key = |epoch: u32| DataKey::new([epoch as u8; 32]);
    let mut ring = KeyRing::new(Cipher::Aegis256, epochs[0], &key(epochs[0])).unwrap();
    epochs[1..].iter().for_each(|epoch| ring.add(*epoch, &key(*epoch)).unwrap());
    ring
}

pub(crate) fn memory(len_bytes: u64) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(len_bytes).unwrap())
}

pub(crate) fn make(unit: &Arc<dyn Store>, kind: Kind, holes: Holes) -> Header {
    format(unit, VOLUME, &keys(&[1]), &kind.options(holes), &mut |_| {}).unwrap()
}

pub(crate) fn open(unit: &Arc<dyn Store>) -> Volume {
    open_with(unit, keys(&[1]))
}

pub(crate) fn open_with(unit: &Arc<dyn Store>, keys: KeyRing) -> Volume {
    Volume::open(Arc::clone(unit), &find(unit).unwrap(), keys, OpenOptions::default()).unwrap()
}

/// Waits for what the thread of a volume that was dropped still does. It holds the unit until then.
pub(crate) fn wait_for_the_thread_of_the_volume(unit: &Arc<dyn Store>) {
    while Arc::strong_count(unit) > 1 {
        thread::yield_now();
    }
}

/// A formatted unit in memory, and its open volume.
pub(crate) fn fresh(kind: Kind, quanta: u64) -> (Arc<MemoryStore>, Arc<dyn Store>, Volume) {
    let memory = memory(kind.unit_bytes(quanta));
    let unit = kind.blocks(Arc::<MemoryStore>::clone(&memory));
    make(&unit, kind, Holes::Allowed);
    let volume = open(&unit);
    (memory, unit, volume)
}

pub(crate) fn write(store: &dyn Store, offset: u64, bytes: &[u8], fua: bool) -> Result<(), StoreError> {
    let mut from = Pool::new(usize::MAX).take(bytes.len()).unwrap();
    from.copy_from_slice(bytes);
    execute(store, Op::Write { offset, from, fua }).result
}

/// The bytes of a read, and the buffer if the read has failed.
pub(crate) fn read(store: &dyn Store, offset: u64, len: usize) -> Result<Vec<u8>, (StoreError, Vec<u8>)> {
    let mut into = Pool::new(usize::MAX).take(len).unwrap();
    into.fill(0xee);
    let Outcome { result, buffer, loan } = execute(store, Op::Read { offset, into });
    assert!(loan.is_none(), "a volume does not lend");
    let bytes = buffer.unwrap().to_vec();
    match result {
        Ok(()) => Ok(bytes),
        Err(error) => Err((error, bytes)),
    }
}

pub(crate) fn flush(store: &dyn Store) -> Result<(), StoreError> {
    execute(store, Op::Flush).result
}

/// The offset of the quantum that an error names.
pub(crate) fn refused_at(error: &StoreError) -> Option<u64> {
    match error {
        StoreError::Refused { offset, .. } => Some(*offset),
        _ => None,
    }
}
