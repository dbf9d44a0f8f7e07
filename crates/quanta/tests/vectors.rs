//! The format against vectors that another program made from its description (`vectors/make.py`), and a volume of the
//! first version.

use lunette_quanta::{
    Cipher, Codec, DataKey, Group, HEADER_LEN, Header, HeaderError, Holes, KeyRing, Native, Parity, Placement,
    QuantumSize, SLOT_LEN, Sealing, Seed, Slot, VolumeId,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    edus: Vec<EduVector>,
    headers: Vec<HeaderVector>,
    parity: Vec<ParityVector>,
}

#[derive(Deserialize)]
struct ParityVector {
    data: u16,
    parity: u16,
    position: u64,
    edus: Vec<String>,
    parity_edus: Vec<String>,
}

#[derive(Deserialize)]
struct EduVector {
    cipher: String,
    size: u64,
    key: String,
    volume: String,
    position: u64,
    version: u64,
    epoch: u32,
    seed: String,
    plain_start: usize,
    first_block: String,
    slot: String,
}

#[derive(Deserialize)]
struct HeaderVector {
    cipher: String,
    key: String,
    seed: String,
    generation: u64,
    placement: u8,
    size: u64,
    volume: String,
    quanta: u64,
    journal_len: u64,
    block_len: u32,
    flags: u32,
    first_epoch: u32,
    newest_epoch: u32,
    group_data: u16,
    group_parity: u16,
    header: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("vectors/vectors.json")).expect("the file has this form")
}

fn hex<const N: usize>(text: &str) -> [u8; N] {
    assert_eq!(text.len(), 2 * N);
    std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hex"))
}

/// The plain text of the vectors.
fn pattern(start: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (31 * at + start) as u8).collect()
}

fn ring(cipher: &str, epoch: u32, key: &str) -> KeyRing {
    let cipher = Cipher::of_name(cipher).expect("a row of the table");
    KeyRing::new(cipher, epoch, &DataKey::new(hex(key))).expect("epochs begin with 1")
}

#[test]
fn quanta_are_sealed_as_the_description_says() {
    let edus = vectors().edus;
    assert_eq!(edus.len(), 12, "three ciphers and four sizes");
    for vector in edus {
        let size = QuantumSize::of_bytes(vector.size).unwrap();
        let ring = ring(&vector.cipher, vector.epoch, &vector.key);
        let codec = Codec::new(VolumeId(hex(&vector.volume)), size, Holes::Refused, ring);
        let plain = pattern(vector.plain_start, size.bytes());
        let sealing =
            || Sealing { position: vector.position, version: vector.version, seed: Seed::new(hex(&vector.seed)) };

        let mut edu = vec![0xee; size.edu_len()];
        codec.seal(sealing(), &plain, &mut edu);
        let (data, slot) = edu.split_at(size.bytes());
        assert_eq!(data[..16], hex::<16>(&vector.first_block), "{} {}", vector.cipher, vector.size);
        assert_eq!(slot, hex::<SLOT_LEN>(&vector.slot), "{} {}: the tag covers the rest", vector.cipher, vector.size);

        let mut in_place = [&plain[..], &[0; SLOT_LEN]].concat();
        codec.seal_in_place(sealing(), &mut in_place);
        let (mut split, mut slots) = (vec![0; size.bytes()], [0; SLOT_LEN]);
        codec.seal_split(sealing(), &plain, &mut split, &mut slots);
        assert_eq!((&in_place, &[split, slots.to_vec()].concat()), (&edu, &edu));

        let mut opened = vec![0; size.bytes()];
        codec.open(vector.position, &edu, &mut opened).unwrap();
        assert_eq!(opened, plain);
    }
}

#[test]
fn headers_are_sealed_as_the_description_says() {
    for vector in vectors().headers {
        let header = Header {
            volume: VolumeId(hex(&vector.volume)),
            cipher: Cipher::of_name(&vector.cipher).unwrap(),
            size: QuantumSize::of_bytes(vector.size).unwrap(),
            placement: match vector.placement {
                1 => Placement::Native,
                _ => Placement::Packed { block_len: vector.block_len, journal_len: vector.journal_len },
            },
            quanta: vector.quanta,
            holes: if vector.flags == 1 { Holes::Refused } else { Holes::Allowed },
            first_epoch: vector.first_epoch,
            newest_epoch: vector.newest_epoch,
            group: (vector.group_data > 0).then_some(Group { data: vector.group_data, parity: vector.group_parity }),
            generation: vector.generation,
        };
        let ring = ring(&vector.cipher, vector.newest_epoch, &vector.key);
        let bytes: [u8; HEADER_LEN] = hex(&vector.header);
        assert_eq!(header.seal(&ring, &Seed::new(hex(&vector.seed))), Ok(bytes));
        assert_eq!(Header::open(&bytes, &ring), Ok(header));
    }
}

#[test]
fn parity_is_computed_as_the_description_says() {
    for vector in vectors().parity {
        let group = Group { data: vector.data, parity: vector.parity };
        let mut groups = Parity::new(group, QuantumSize::B512, Holes::Allowed).unwrap();
        let edus = |texts: &[String]| texts.iter().flat_map(|edu| hex::<576>(edu)).collect::<Vec<_>>();
        let mut parity = vec![0xee; vector.parity_edus.len() * 576];
        groups.encode(&edus(&vector.edus), vector.position, &mut parity);
        assert_eq!(parity, edus(&vector.parity_edus), "{group:?}");
    }
}

/// A native volume of the first version, for ever.
#[test]
fn a_volume_of_the_first_version_is_opened() {
    let unit = include_bytes!("vectors/volume-1-native.bin");
    let block = |lba: u64| -> &[u8] { &unit[lba as usize * 576..][..576] };
    let copy = |lba| block(lba)[..HEADER_LEN].try_into().unwrap();
    let mut ring = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new(std::array::from_fn(|at| at as u8))).unwrap();
    assert_eq!(Header::open(copy(0), &ring), Err(HeaderError::UnknownEpoch(2)));
    assert_eq!(Header::open(copy(1), &ring).map(|header| header.generation), Ok(1));
    ring.add(2, &DataKey::new(std::array::from_fn(|at| at as u8 + 32))).unwrap();

    let header = Header::open(copy(0), &ring).unwrap();
    assert_eq!((header.generation, header.copy(), header.newest_epoch, header.quanta), (2, 0, 2, 8));
    let native = Native::of(&header, unit.len() as u64 / 576).unwrap();
    let codec = Codec::new(header.volume, header.size, header.holes, ring);
    for position in 0..native.quanta() {
        let edu = block(native.lba(position));
        let mut plain = [0xee; 512];
        codec.open(position, edu, &mut plain).unwrap();
        let written = [1, 2, 5, 7].contains(&position);
        let expected = if written { pattern(position as usize, 512) } else { vec![0; 512] };
        assert_eq!(plain[..], expected, "quantum {position}");
        let slot = Slot::decode(edu[512..].try_into().unwrap());
        assert_eq!(slot.version, if written { 100 + position } else { 0 });
    }
}
