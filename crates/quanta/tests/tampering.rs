//! Attacks on stored bytes, and whether they are noticed: `cargo test -p lunette-quanta --test tampering --
//! --nocapture` prints the table.

use lunette_crc32c::crc32c;
use lunette_quanta::{
    Cipher, Codec, Condition, DataKey, HEADER_LEN, Header, HeaderError, Holes, KeyRing, Placement, QuantumSize, Reason,
    Sealing, Seed, Slot, TABLE, VolumeId, check,
};

const POSITION: u64 = 77;
const SIZE: QuantumSize = QuantumSize::B512;
const DATA_LEN: usize = SIZE.bytes();
/// Where the fields of the slot begin in an EDU.
const TAG_AT: usize = DATA_LEN + 32;
const VERSION_AT: usize = DATA_LEN + 48;
const EPOCH_AT: usize = DATA_LEN + 56;
const CRC_AT: usize = DATA_LEN + 60;

type Edu = [u8; SIZE.edu_len()];

fn ring(cipher: Cipher, key: u8) -> KeyRing {
    let mut ring = KeyRing::new(cipher, 1, &DataKey::new([key; 32])).expect("epochs begin with 1");
    ring.add(3, &DataKey::new([key + 1; 32])).expect("another epoch");
    ring
}

fn codec(cipher: Cipher, volume: u8, key: u8, holes: Holes) -> Codec {
    Codec::new(VolumeId([volume; 16]), SIZE, holes, ring(cipher, key))
}

fn sealed(codec: &Codec, position: u64, version: u64, content: u8) -> Edu {
    let mut edu = [0; SIZE.edu_len()];
    codec.seal(Sealing { position, version, seed: Seed::new([content ^ 0x5a; 32]) }, &[content; DATA_LEN], &mut edu);
    edu
}

/// The EDU with the CRC that an attacker computes.
fn with_crc(mut edu: Edu) -> Edu {
    let crc = crc32c(&[&POSITION.to_le_bytes()[..], &edu[..CRC_AT]].concat());
    edu[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    edu
}

fn open(codec: &Codec, edu: &Edu) -> Result<u8, Reason> {
    let (data, slot) = edu.split_at(DATA_LEN);
    let mut plain = [0xee; DATA_LEN];
    let opened = codec.open(POSITION, edu, &mut plain);
    let (mut in_place, mut between) = (data.to_vec(), [0xee; DATA_LEN]);
    assert_eq!(codec.open_in_place(POSITION, &mut in_place, slot), opened, "every way to open says the same");
    assert_eq!(codec.open_split(POSITION, data, slot, &mut between), opened);
    match opened {
        Ok(()) => {
            assert_eq!((&in_place[..], between), (&plain[..], plain));
            Ok(plain[0])
        }
        Err(error) => {
            assert_eq!(error.position, POSITION);
            let secret = [0x11; 16];
            for buffer in [&plain[..], &in_place, &between] {
                assert!(!buffer.windows(16).any(|window| window == secret), "plain text that no tag vouches for");
            }
            Err(error.reason)
        }
    }
}

/// Flips each bit of a range of bytes, and checks what opening says.
fn flip_each(edu: &Edu, bytes: std::ops::Range<usize>, mut seen: impl FnMut(Edu)) {
    for bit in bytes.start * 8..bytes.end * 8 {
        let mut flipped = *edu;
        flipped[bit / 8] ^= 1 << (bit % 8);
        seen(flipped);
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    for row in &TABLE {
        let codec = codec(row.cipher, 1, 1, Holes::Allowed);
        let edu = sealed(&codec, POSITION, 9, 0x11);
        assert_eq!(open(&codec, &edu), Ok(0x11));
        flip_each(&edu, 0..edu.len(), |flipped| assert_eq!(open(&codec, &flipped), Err(Reason::Damaged)));
        // The attacker who mends the CRC meets the tag, or an epoch without a key.
        flip_each(&edu, 0..EPOCH_AT, |flipped| assert_eq!(open(&codec, &with_crc(flipped)), Err(Reason::NotAuthentic)));
        flip_each(&edu, EPOCH_AT..CRC_AT, |flipped| {
            let epoch = Slot::decode(flipped[DATA_LEN..].try_into().unwrap()).epoch;
            let expected = if epoch == 1 { Reason::NotAuthentic } else { Reason::UnknownEpoch(epoch) };
            assert_eq!(open(&codec, &with_crc(flipped)), Err(expected));
        });
    }
}

/// An attack, what a server's scrub finds without a key, and what opening finds: the content, or the reason of the
/// refusal.
type Attack = (&'static str, Condition, Result<u8, Reason>);

fn attacks(cipher: Cipher, holes: Holes) -> Vec<Attack> {
    let ours = codec(cipher, 1, 1, holes);
    let now = sealed(&ours, POSITION, 9, 0x11);
    let before = sealed(&ours, POSITION, 8, 0x22);
    let beside = sealed(&ours, POSITION + 1, 9, 0x11);
    let other_volume = sealed(&codec(cipher, 2, 1, holes), POSITION, 9, 0x11);
    let other_key = sealed(&codec(cipher, 1, 5, holes), POSITION, 9, 0x11);
    let part = |of: std::ops::Range<usize>, from: &Edu| {
        let mut edu = now;
        edu[of.clone()].copy_from_slice(&from[of]);
        edu
    };
    let cases: [(&'static str, Edu); 13] = [
        ("none", now),
        ("moved from another position", beside),
        ("the same, with its CRC mended", with_crc(beside)),
        ("taken from another volume with the same key", other_volume),
        ("forged without the key", other_key),
        ("data of the version before (a torn write)", part(0..DATA_LEN, &before)),
        ("the same, with its CRC mended", with_crc(part(0..DATA_LEN, &before))),
        ("tag of the version before, CRC mended", with_crc(part(TAG_AT..VERSION_AT, &before))),
        ("version of the one before, CRC mended", with_crc(part(VERSION_AT..EPOCH_AT, &before))),
        ("slot erased", part(DATA_LEN..SIZE.edu_len(), &[0; SIZE.edu_len()])),
        ("slot cut in its middle", part(TAG_AT..SIZE.edu_len(), &[0; SIZE.edu_len()])),
        ("erased", [0; SIZE.edu_len()]),
        ("rolled back to the version before", before),
    ];
    cases
        .map(|(attack, edu)| {
            let (data, slot) = edu.split_at(DATA_LEN);
            (attack, check(POSITION, data, slot.try_into().expect("a slot")), open(&ours, &edu))
        })
        .into()
}

#[test]
fn the_table_of_attacks() {
    use Condition::{Damaged, Intact, NeverWritten};
    for (row, holes) in TABLE.iter().flat_map(|row| [(row, Holes::Allowed), (row, Holes::Refused)]) {
        let erased = if holes == Holes::Allowed { Ok(0) } else { Err(Reason::Hole) };
        let expected: Vec<(Condition, Result<u8, Reason>)> = vec![
            (Intact, Ok(0x11)),
            (Damaged, Err(Reason::Damaged)),
            (Intact, Err(Reason::NotAuthentic)),
            (Intact, Err(Reason::NotAuthentic)),
            (Intact, Err(Reason::NotAuthentic)),
            (Damaged, Err(Reason::Damaged)),
            (Intact, Err(Reason::NotAuthentic)),
            (Intact, Err(Reason::NotAuthentic)),
            (Intact, Err(Reason::NotAuthentic)),
            (Damaged, Err(Reason::Damaged)),
            (Damaged, Err(Reason::Damaged)),
            (NeverWritten, erased),
            // Only an anchor that the server cannot roll back would see it.
            (Intact, Ok(0x22)),
        ];
        let found = attacks(row.cipher, holes);
        println!("{}, holes {holes:?}", row.name);
        for (attack, condition, outcome) in &found {
            let outcome = match outcome {
                Ok(content) => format!("opens as {content:#04x}"),
                Err(reason) => format!("refused: {reason:?}"),
            };
            println!("  {attack:45} {:12} {outcome}", format!("{condition:?}"));
        }
        let found = found.into_iter().map(|(_, condition, outcome)| (condition, outcome)).collect::<Vec<_>>();
        assert_eq!(found, expected);
    }
}

fn header(cipher: Cipher) -> Header {
    Header {
        volume: VolumeId([1; 16]),
        cipher,
        size: SIZE,
        placement: Placement::Native,
        quanta: 1000,
        holes: Holes::Refused,
        first_epoch: 1,
        newest_epoch: 3,
        group: None,
        generation: 4,
    }
}

#[test]
fn every_flipped_bit_of_a_header_is_refused() {
    for row in &TABLE {
        let keys = ring(row.cipher, 1);
        let bytes = header(row.cipher).seal(&keys, &Seed::new([3; 32])).unwrap();
        assert_eq!(Header::open(&bytes, &keys), Ok(header(row.cipher)));
        assert_eq!(Header::open(&bytes, &ring(row.cipher, 5)), Err(HeaderError::NotAuthentic), "another key");
        for bit in 0..HEADER_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::open(&flipped, &keys).is_err());
            let crc = crc32c(&flipped[..HEADER_LEN - 4]);
            flipped[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
            let mended = Header::open(&flipped, &keys);
            let only_the_crc = bit / 8 >= HEADER_LEN - 4;
            assert_eq!(mended.is_ok(), only_the_crc, "bit {bit}: {mended:?}");
        }
    }
}

#[test]
fn a_batch_names_the_first_quantum_that_it_cannot_open() {
    for row in &TABLE {
        let codec = codec(row.cipher, 1, 1, Holes::Allowed);
        let plain: Vec<u8> = (0..4 * DATA_LEN).map(|at| (at / DATA_LEN) as u8 + 1).collect();
        let mut edus = vec![0; 4 * SIZE.edu_len()];
        // The seed's counter wraps within the batch.
        codec.seal(Sealing { position: 10, version: 1, seed: Seed::new([0xff; 32]) }, &plain, &mut edus);
        let mut nonces: Vec<&[u8]> = edus.chunks(SIZE.edu_len()).map(|edu| &edu[DATA_LEN..TAG_AT]).collect();
        nonces.dedup();
        assert_eq!(nonces.len(), 4, "every quantum has a nonce of its own");
        let mut opened = vec![0; plain.len()];
        codec.open(10, &edus, &mut opened).unwrap();
        assert_eq!(opened, plain);

        edus[2 * SIZE.edu_len()] ^= 1;
        let error = codec.open(10, &edus, &mut opened).unwrap_err();
        assert_eq!((error.position, error.reason), (12, Reason::Damaged));
        assert_eq!(opened[..2 * DATA_LEN], plain[..2 * DATA_LEN], "those before it are open");
    }
}

/// Quanta are opened several at a time, some of them before they are checked.
#[test]
fn flipped_bits_within_a_batch_are_refused_and_no_plain_text_follows() {
    const QUANTA: usize = 10;
    for (row, wrong) in TABLE.iter().flat_map(|row| [3, 9].map(|wrong| (row, wrong))) {
        let codec = codec(row.cipher, 1, 1, Holes::Allowed);
        let plain: Vec<u8> = (0..QUANTA * DATA_LEN).map(|at| (at / DATA_LEN) as u8 + 1).collect();
        let mut edus = vec![0; QUANTA * SIZE.edu_len()];
        codec.seal(Sealing { position: 10, version: 1, seed: Seed::new([3; 32]) }, &plain, &mut edus);
        for bit in (0..SIZE.edu_len() * 8).step_by(3) {
            let at = wrong * SIZE.edu_len() + bit / 8;
            edus[at] ^= 1 << (bit % 8);
            let mut opened = vec![0; plain.len()];
            let error = codec.open(10, &edus, &mut opened).unwrap_err();
            edus[at] ^= 1 << (bit % 8);
            assert_eq!((error.position, error.reason), (10 + wrong as u64, Reason::Damaged), "{}: {bit}", row.name);
            let (open, closed) = opened.split_at(wrong * DATA_LEN);
            assert_eq!(open, &plain[..open.len()]);
            for (opened, plain) in closed.chunks(DATA_LEN).zip(plain[open.len()..].chunks(DATA_LEN)) {
                assert_ne!(opened, plain, "{}: {bit}", row.name);
            }
        }
    }
}
