//! Quanta: any bytes, as what a hostile server stores.

use lunette_quanta::packed::record::{self, Shape};
use lunette_quanta::packed::{Journal, Layout, salvage};
use lunette_quanta::{
    Cipher, Codec, Condition, DataKey, HEADER_LEN, Header, Holes, KeyRing, Placement, QuantumSize, SLOT_LEN, Sealing,
    Seed, VolumeId, check,
};

use crate::input::{Input, Random};

const VOLUME: VolumeId = VolumeId([7; 16]);
const SIZE: QuantumSize = QuantumSize::B512;

fn ring(cipher: Cipher) -> KeyRing {
    KeyRing::new(cipher, 1, &DataKey::new([3; 32])).expect("epochs begin with 1")
}

fn codec(cipher: Cipher) -> Codec {
    Codec::new(VOLUME, SIZE, Holes::Allowed, ring(cipher))
}

fn sealing(position: u64) -> Sealing {
    Sealing { position, version: 1, seed: Seed::new([position as u8; 32]) }
}

fn disturbed(random: &mut Random, seeds: fn() -> Vec<(String, Vec<u8>)>) -> Vec<u8> {
    let seeds = seeds();
    let (_, mut bytes) = random.choose(&seeds).clone();
    random.disturb(&mut bytes);
    bytes
}

/// An EDU.
pub mod edu {
    use super::*;

    const POSITION: u64 = 5;

    fn sealed(cipher: Cipher) -> Vec<u8> {
        let mut edu = vec![0; SIZE.edu_len()];
        codec(cipher).seal(sealing(POSITION), &[0x5a; SIZE.bytes()], &mut edu);
        edu
    }

    /// The target: nothing opens but what was sealed, and a hole.
    pub fn run(data: &[u8]) {
        let bytes: [u8; SIZE.edu_len()] = Input::new(data).array();
        let (data, slot) = bytes.split_at(SIZE.bytes());
        let slot: &[u8; SLOT_LEN] = slot.try_into().expect("the rest of an EDU");
        let condition = check(POSITION, data, slot);
        for cipher in [Cipher::Aegis256, Cipher::Aes256GcmSiv, Cipher::Aegis256X4] {
            let mut plain = [0xee; SIZE.bytes()];
            let opened = codec(cipher).open(POSITION, &bytes, &mut plain).is_ok();
            let genuine = bytes[..] == sealed(cipher)[..];
            assert_eq!(opened, genuine || condition == Condition::NeverWritten, "only what was sealed opens");
            assert!(!opened || plain == [if genuine { 0x5a } else { 0 }; SIZE.bytes()]);
        }
    }

    /// A seed, disturbed.
    pub fn random(random: &mut Random) -> Vec<u8> {
        disturbed(random, seeds)
    }

    /// One EDU of each cipher, and a hole.
    pub fn seeds() -> Vec<(String, Vec<u8>)> {
        vec![
            ("aegis".into(), sealed(Cipher::Aegis256)),
            ("gcm_siv".into(), sealed(Cipher::Aes256GcmSiv)),
            ("aegis_x4".into(), sealed(Cipher::Aegis256X4)),
            ("hole".into(), vec![0; SIZE.edu_len()]),
        ]
    }
}

/// The header of a volume.
pub mod header {
    use super::*;

    fn header(placement: Placement) -> Header {
        Header {
            volume: VOLUME,
            cipher: Cipher::Aegis256,
            size: SIZE,
            placement,
            quanta: 100,
            holes: Holes::Allowed,
            first_epoch: 1,
            newest_epoch: 1,
            group: None,
            generation: 3,
        }
    }

    /// The target: what is decoded has bounds, and can be written again.
    pub fn run(data: &[u8]) {
        let mut bytes: [u8; HEADER_LEN] = Input::new(data).array();
        // No fuzzer guesses the CRC.
        let crc = lunette_crc32c::crc32c(&bytes[..HEADER_LEN - 4]);
        bytes[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        let Ok(header) = Header::decode(&bytes) else { return };
        if let Ok(layout) = Layout::of(&header, 1 << 40) {
            assert!(layout.len_bytes() <= 1 << 40 && layout.slot(layout.quanta() - 1) < layout.data(0));
        }
        let key = DataKey::new([3; 32]);
        let ring = KeyRing::new(header.cipher, header.newest_epoch, &key).expect("an epoch within its bounds");
        let again = header.seal(&ring, &Seed::new([1; 32])).expect("fields within their bounds");
        assert_eq!(Header::open(&again, &ring), Ok(header));
    }

    /// A seed, disturbed.
    pub fn random(random: &mut Random) -> Vec<u8> {
        disturbed(random, seeds)
    }

    /// One header of each placement.
    pub fn seeds() -> Vec<(String, Vec<u8>)> {
        let packed = Placement::Packed { block_len: 512, journal_len: 24 << 10 };
        [("native", Placement::Native), ("packed", packed)]
            .map(|(name, placement)| {
                let bytes = header(placement).seal(&ring(Cipher::Aegis256), &Seed::new([1; 32]));
                (name.into(), bytes.expect("fields within their bounds").to_vec())
            })
            .into()
    }
}

/// The journal of a packed volume.
pub mod journal {
    use super::*;

    const JOURNAL_LEN: u64 = 24 << 10;

    fn layout() -> Layout {
        Layout::largest(64 << 10, SIZE, 512, JOURNAL_LEN).expect("room for quanta")
    }

    /// A journal with three records.
    fn written() -> (Vec<u8>, Journal) {
        let layout = layout();
        let mut area = vec![0; JOURNAL_LEN as usize];
        for tail in Journal::first_tails(VOLUME) {
            area[tail.offset as usize..][..tail.bytes.len()].copy_from_slice(&tail.bytes);
        }
        let mut journal = Journal::new(layout, VOLUME);
        for (sealed, holes) in [(1, 0), (2, 1), (0, 3)] {
            let shape = Shape { sealed, holes };
            let ticket = journal.reserve(shape).expect("room");
            let record = &mut area[ticket.offset as usize..][..shape.len(&layout)];
            let (slots, data) = record::places(record, shape, &layout);
            codec(Cipher::Aegis256).seal_split(sealing(4), &vec![1; data.len()], data, slots);
            record::finish(
                record,
                &layout,
                VOLUME,
                &ticket,
                (4..).take(sealed + holes).collect::<Vec<_>>().into_iter(),
            );
            journal.written(&ticket, record);
        }
        (area, journal)
    }

    /// The journal with a note that its records were flushed.
    fn noted() -> Vec<u8> {
        let (mut area, mut journal) = written();
        journal.flushed(journal.written_through());
        let note = journal.note();
        area[note.offset as usize..][..note.bytes.len()].copy_from_slice(&note.bytes);
        area
    }

    /// The target: what is replayed lies within journal and volume, and the journal goes on.
    pub fn run(data: &[u8]) {
        let layout = layout();
        let mut area = data.to_vec();
        area.resize(JOURNAL_LEN as usize, 0);
        let Ok(mut journal) = salvage(&area, &layout, VOLUME) else { return };
        for (position, live) in journal.live(0..u64::MAX) {
            assert!(position < layout.quanta());
            assert!(live.data_offset.is_none_or(|at| at + SIZE.bytes() as u64 <= JOURNAL_LEN));
        }
        let shape = Shape { sealed: 1, holes: 0 };
        let ticket = journal.reserve(shape).unwrap_or_else(|_| {
            let checkpoint = journal.checkpoint();
            journal.checkpointed(&checkpoint);
            journal.reserve(shape).expect("room after a checkpoint")
        });
        assert!(ticket.offset + shape.len(&layout) as u64 <= JOURNAL_LEN);
    }

    /// A journal, disturbed.
    pub fn random(random: &mut Random) -> Vec<u8> {
        disturbed(random, seeds)
    }

    /// A new journal, and one with records, which were flushed or not.
    pub fn seeds() -> Vec<(String, Vec<u8>)> {
        let (written, _) = written();
        let records = |area: &[u8]| area[..14 << 10].to_vec();
        vec![
            ("new".into(), written[..8192].to_vec()),
            ("records".into(), records(&written)),
            ("noted".into(), records(&noted())),
        ]
    }
}

/// Parity groups.
pub mod parity {
    use lunette_quanta::{Group, Members, Parity, Part};

    use super::*;

    const LEN: usize = SIZE.edu_len();
    const POSITION: u64 = 40;
    const PARITY_POSITION: u64 = 1000;
    /// The largest groups that are tried.
    const MAX: Group = Group { data: 8, parity: 4 };

    /// A group as a server has it: its data EDUs and behind them its parity, and those that cannot be read.
    struct Stored {
        edus: Vec<u8>,
        data: usize,
        unread: [Members; 2],
    }

    fn position(stored: &Stored, index: usize) -> u64 {
        if index < stored.data { POSITION + index as u64 } else { PARITY_POSITION + (index - stored.data) as u64 }
    }

    /// A genuine group and what an input does to it: bytes are changed, with a right CRC behind that or not, and EDUs
    /// become unreadable or holes.
    fn stored(group: Group, parity: &mut Parity, input: &mut Input<'_>) -> Stored {
        let data = 1 + usize::from(input.byte()) % usize::from(group.data);
        let mut edus = vec![0; (data + usize::from(group.parity)) * LEN];
        let (quanta, made) = edus.split_at_mut(data * LEN);
        for (edu, position) in quanta.chunks_exact_mut(LEN).zip(POSITION..) {
            codec(Cipher::Aegis256).seal(sealing(position), &[position as u8; SIZE.bytes()], edu);
        }
        parity.encode(quanta, PARITY_POSITION, made);
        let mut stored = Stored { edus, data, unread: [Members::default(); 2] };
        let crc = Parity::new(Group { data: 1, parity: 1 }, SIZE, Holes::Allowed).expect("within the bounds");
        while !input.is_empty() {
            let index = usize::from(input.byte()) % (stored.edus.len() / LEN);
            let at = position(&stored, index);
            let edu = &mut stored.edus[index * LEN..][..LEN];
            match input.byte() % 4 {
                0 => edu[usize::from(input.u16()) % LEN] ^= input.byte(),
                1 => {
                    edu[usize::from(input.u16()) % LEN] ^= input.byte();
                    crc.void(at, edu);
                }
                2 => edu.fill(0),
                _ if index < data => stored.unread[0].insert(index),
                _ => stored.unread[1].insert(index - data),
            }
        }
        stored
    }

    /// The target: a repair changes nothing but damaged EDUs, and makes a group whose parity is all that was intact.
    pub fn run(data: &[u8]) {
        let mut input = Input::new(data);
        let group =
            Group { data: 1 + u16::from(input.byte()) % MAX.data, parity: 1 + u16::from(input.byte()) % MAX.parity };
        let holes = if input.one_in(2) { Holes::Refused } else { Holes::Allowed };
        let mut parity = Parity::new(group, SIZE, holes).expect("within the bounds");
        let mut stored = stored(group, &mut parity, &mut input);
        let before = stored.edus.clone();
        let (quanta, made) = stored.edus.split_at_mut(stored.data * LEN);
        let repaired = parity.repair(
            Part { position: POSITION, edus: &mut *quanta, unread: stored.unread[0] },
            Part { position: PARITY_POSITION, edus: made, unread: stored.unread[1] },
        );
        let damaged = repaired.map_or_else(|_| Members::default(), |repaired| repaired.edus);
        for (index, (edu, before)) in quanta.chunks_exact(LEN).zip(before.chunks_exact(LEN)).enumerate() {
            let (bytes, slot) = edu.split_last_chunk::<SLOT_LEN>().expect("an EDU is longer than its slot");
            if damaged.contains(index) {
                assert_ne!(check(POSITION + index as u64, bytes, slot), Condition::Damaged, "it was made again");
            } else {
                assert_eq!(edu, before, "it was not damaged");
            }
        }
        if damaged.count() == 0 {
            return;
        }
        let mut encoded = vec![0; made.len()];
        parity.encode(quanta, PARITY_POSITION, &mut encoded);
        for (index, (edu, encoded)) in made.chunks_exact(LEN).zip(encoded.chunks_exact(LEN)).enumerate() {
            let (bytes, slot) = edu.split_last_chunk::<SLOT_LEN>().expect("an EDU is longer than its slot");
            let counts = match check(PARITY_POSITION + index as u64, bytes, slot) {
                Condition::Intact => !stored.unread[1].contains(index),
                Condition::NeverWritten => holes == Holes::Allowed && !stored.unread[1].contains(index),
                Condition::Damaged => false,
            };
            // Their last bytes are CRCs. Parity of zeroes may be a hole, which has none.
            let is_same = edu[..LEN - 4] == encoded[..LEN - 4];
            assert!(!counts || is_same, "the repaired group has the parity that was intact");
        }
    }

    /// Edits of a group of 8 and 4, a byte of damage in some of its EDUs among them.
    pub fn random(random: &mut Random) -> Vec<u8> {
        disturbed(random, seeds)
    }

    /// A whole group, one with as much damage as it can have, one with more, one that cannot be read, and one with
    /// stale parity.
    pub fn seeds() -> Vec<(String, Vec<u8>)> {
        let start = [7, 3, 0, 7];
        let flips =
            |count: u8| [&start[..], &(0..count).flat_map(|index| [index, 0, 0, 9, 1]).collect::<Vec<_>>()].concat();
        vec![
            ("whole".into(), start.to_vec()),
            ("damaged".into(), flips(4)),
            ("too-many".into(), flips(5)),
            ("unread".into(), [&start[..], &[0, 3, 1, 3]].concat()),
            ("stale".into(), [&start[..], &[0, 1, 0, 9, 1, 1, 0, 0, 9, 1]].concat()),
        ]
    }
}
