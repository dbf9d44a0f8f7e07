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
