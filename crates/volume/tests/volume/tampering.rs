//! What a hostile unit can do: a table of attack, placement and outcome.

use std::sync::Arc;

use lunette_crc32c::Crc32c;
use lunette_quanta::packed::Layout;
use lunette_quanta::{Holes, Native, QuantumSize, SLOT_LEN};
use lunette_store::{MemoryStore, Store};
use lunette_volume::{FormatOptions, find, format};

use crate::common::{Kind, VOLUME, flush, keys, make, memory, open, read, refused_at, write};

const Q: usize = 512;
const QUANTA: u64 = 16;
/// The quantum that is attacked.
const VICTIM: u64 = 5;
const OTHER: u64 = 9;

/// An EDU: its ciphertext and its slot.
type Edu = (Vec<u8>, [u8; SLOT_LEN]);

/// The memory of a unit, as its owner sees it.
struct Unit {
    memory: Arc<MemoryStore>,
    store: Arc<dyn Store>,
    kind: Kind,
}

impl Unit {
    fn new(kind: Kind) -> Self {
        let memory = memory(kind.unit_bytes(QUANTA));
        Self { store: kind.blocks(Arc::<MemoryStore>::clone(&memory)), memory, kind }
    }

    /// Where ciphertext and slot of a quantum are.
    fn places(&self, position: u64) -> (u64, u64) {
        let header = *find(&self.store).unwrap().header();
        let len = self.store.geometry().len_bytes;
        match self.kind {
            Kind::Native(size) => {
                let edu_len = size.edu_len() as u64;
                let at = Native::of(&header, len / edu_len).unwrap().lba(position) * edu_len;
                (at, at + Q as u64)
            }
            Kind::Packed(..) => {
                let layout = Layout::of(&header, len).unwrap();
                (layout.data(position), layout.slot(position))
            }
        }
    }

    fn get(&self, position: u64) -> Edu {
        let (data_at, slot_at) = self.places(position);
        let (mut data, mut slot) = (vec![0; Q], [0; SLOT_LEN]);
        self.memory.read(data_at, &mut data).unwrap();
        self.memory.read(slot_at, &mut slot).unwrap();
        (data, slot)
    }

    fn put(&self, position: u64, edu: &Edu) {
        let (data_at, slot_at) = self.places(position);
        self.memory.write(data_at, &edu.0).unwrap();
        self.memory.write(slot_at, &edu.1).unwrap();
    }
}

/// Gives an EDU the CRC of a position, as anyone can.
fn with_crc((data, mut slot): Edu, position: u64) -> Edu {
    let mut crc = Crc32c::new();
    crc.update(&position.to_le_bytes());
    crc.update(&data);
    crc.update(&slot[..SLOT_LEN - 4]);
    slot[SLOT_LEN - 4..].copy_from_slice(&crc.finish().to_le_bytes());
    (data, slot)
}

/// What an attacker has: the EDUs of the present, of the past and of another volume.
struct Loot {
    present: Edu,
    other: Edu,
    past: Edu,
    foreign: Edu,
}

type Attack = fn(Loot) -> Edu;

const ATTACKS: [(&str, Attack); 10] = [
    ("a bit of the ciphertext flipped", |mut loot| {
        loot.present.0[100] ^= 4;
        loot.present
    }),
    ("a bit flipped, CRC made right", |mut loot| {
        loot.present.0[100] ^= 4;
        with_crc(loot.present, VICTIM)
    }),
    ("the version changed, CRC made right", |mut loot| {
        loot.present.1[50] ^= 1;
        with_crc(loot.present, VICTIM)
    }),
    ("another quantum moved here", |loot| loot.other),
    ("another quantum moved here, CRC made right", |loot| with_crc(loot.other, VICTIM)),
    ("a quantum of another volume, same place", |loot| loot.foreign),
    ("the slot cut", |loot| (loot.present.0, [0; SLOT_LEN])),
    ("the ciphertext of an older version", |loot| (loot.past.0, loot.present.1)),
    ("erased as a whole", |_| (vec![0; Q], [0; SLOT_LEN])),
    ("an older EDU of the same place", |loot| loot.past),
];

/// The outcomes of all attacks, in their order.
const EXPECTED: [[&str; 3]; 10] = [
    ["wrong CRC", "wrong CRC", "wrong CRC"],
    ["wrong tag", "wrong tag", "wrong tag"],
    ["wrong tag", "wrong tag", "wrong tag"],
    ["wrong CRC", "wrong CRC", "wrong CRC"],
    ["wrong tag", "wrong tag", "wrong tag"],
    ["wrong tag", "wrong tag", "wrong tag"],
    ["wrong CRC", "wrong CRC", "wrong CRC"],
    ["wrong CRC", "wrong CRC", "wrong CRC"],
    ["READS ZEROES", "READS ZEROES", "refused as a hole"],
    ["READS OLDER", "READS OLDER", "READS OLDER"],
];

fn fill(unit: &Unit, content: u8) {
    let volume = open(&unit.store);
    for position in 0..QUANTA {
        write(&volume, position * Q as u64, &[content + position as u8; Q], false).unwrap();
    }
    volume.close().unwrap();
}

fn outcome(kind: Kind, holes: Holes, attack: Attack) -> &'static str {
    let unit = Unit::new(kind);
    make(&unit.store, kind, holes);
    fill(&unit, 1);
    let past = unit.get(VICTIM);
    fill(&unit, 101);
    let foreign = {
        let foreign = Unit::new(kind);
        let another = lunette_quanta::VolumeId([8; 16]);
        format(&foreign.store, another, &keys(&[1]), &kind.options(holes), &mut |_| {}).unwrap();
        fill(&foreign, 101);
        foreign.get(VICTIM)
    };
    let loot = Loot { present: unit.get(VICTIM), other: unit.get(OTHER), past, foreign };
    unit.put(VICTIM, &attack(loot));

    let volume = open(&unit.store);
    let before = volume.counts();
    // The victim is met in the middle of a read.
    let result = read(&volume, 0, QUANTA as usize * Q);
    let counts = volume.counts();
    let others = [0..VICTIM, VICTIM + 1..QUANTA].into_iter().flatten();
    for position in others {
        let bytes = read(&volume, position * Q as u64, Q).unwrap();
        assert_eq!(bytes, [101 + position as u8; Q], "others stay readable");
    }
    match result {
        Ok(bytes) => {
            assert_eq!(before.refused_damaged, counts.refused_damaged);
            match bytes[VICTIM as usize * Q] {
                0 => "READS ZEROES",
                old if old == 1 + VICTIM as u8 => "READS OLDER",
                now if now == 101 + VICTIM as u8 => "reads right",
                _ => "READS WRONG BYTES",
            }
        }
        Err((error, bytes)) => {
            assert_eq!(refused_at(&error), Some(VICTIM * Q as u64), "{error}");
            assert!(bytes.iter().all(|byte| *byte == 0), "a refused read leaves nothing in the buffer");
            let text = error.to_string();
            let refused = (counts.refused_damaged, counts.refused_not_authentic, counts.refused_holes);
            match refused {
                (1, 0, 0) if text.contains("wrong CRC") => "wrong CRC",
                (0, 1, 0) if text.contains("wrong tag") => "wrong tag",
                (0, 0, 1) if text.contains("erased") => "refused as a hole",
                _ => panic!("{text}, {counts:?}"),
            }
        }
    }
}

#[test]
fn the_table_of_attacks() {
    let columns = [
        ("native", Kind::Native(QuantumSize::B512), Holes::Allowed),
        ("packed", Kind::Packed(QuantumSize::B512, 512), Holes::Allowed),
        ("packed, no holes", Kind::Packed(QuantumSize::B512, 512), Holes::Refused),
    ];
    println!("| attack | {} |", columns.map(|column| column.0).join(" | "));
    let mut found = Vec::new();
    for (name, attack) in ATTACKS {
        let row = columns.map(|(_, kind, holes)| outcome(kind, holes, attack));
        println!("| {name} | {} |", row.join(" | "));
        found.push(row);
    }
    assert_eq!(found, EXPECTED);
    let native_without_holes =
        ATTACKS.map(|(_, attack)| outcome(Kind::Native(QuantumSize::B512), Holes::Refused, attack));
    assert_eq!(native_without_holes, EXPECTED.map(|row| row[2]));
}

#[test]
fn every_bit_of_an_edu_counts() {
    for kind in [Kind::Native(QuantumSize::B512), Kind::Packed(QuantumSize::B512, 512)] {
        let unit = Unit::new(kind);
        make(&unit.store, kind, Holes::Allowed);
        fill(&unit, 1);
        let volume = open(&unit.store);
        let (data, slot) = unit.get(VICTIM);
        for bit in 0..(Q + SLOT_LEN) * 8 {
            let mut edu = (data.clone(), slot);
            let byte = if bit / 8 < Q { &mut edu.0[bit / 8] } else { &mut edu.1[bit / 8 - Q] };
            *byte ^= 1 << (bit % 8);
            unit.put(VICTIM, &edu);
            let (error, bytes) = read(&volume, VICTIM * Q as u64, Q).unwrap_err();
            assert_eq!(refused_at(&error), Some(VICTIM * Q as u64), "bit {bit}");
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
        unit.put(VICTIM, &(data, slot));
        assert!(read(&volume, VICTIM * Q as u64, Q).is_ok());
    }
}

#[test]
fn no_plain_text_and_no_key_reaches_the_unit() {
    let marker = b"MARKER OF PLAIN TEXT";
    for kind in Kind::ALL {
        let memory = memory(kind.unit_bytes(64));
        let unit = kind.blocks(Arc::<MemoryStore>::clone(&memory));
        make(&unit, kind, Holes::Allowed);
        let volume = open(&unit);
        let plain: Vec<u8> = marker.iter().copied().cycle().take(32 * kind.size().bytes()).collect();
        write(&volume, 0, &plain, false).unwrap();
        let search = |what: &[u8]| {
            let mut all = vec![0; memory.geometry().len_bytes as usize];
            memory.read(0, &mut all).unwrap();
            all.windows(what.len()).any(|bytes| bytes == what)
        };
        assert!(!search(marker), "in the journal or the EDUs");
        assert!(!search(&[1; 32]), "the key");
        volume.close().unwrap();
        flush(&volume).unwrap();
        assert!(!search(marker), "in its places");
        assert!(read(&volume, 0, plain.len()).unwrap() == plain);
    }
}

#[test]
fn a_volume_of_the_same_name_that_was_formatted_again_has_nothing_of_the_first() {
    let kind = Kind::Packed(QuantumSize::B512, 512);
    for holes in [Holes::Allowed, Holes::Refused] {
        let unit = Unit::new(kind);
        make(&unit.store, kind, Holes::Allowed);
        let volume = open(&unit.store);
        // It stays in the journal.
        write(&volume, 0, &[9; 2048], true).unwrap();
        drop(volume);
        let again = FormatOptions { overwrite: true, ..kind.options(holes) };
        format(&unit.store, VOLUME, &keys(&[1]), &again, &mut |_| {}).unwrap();
        assert_eq!(read(&open(&unit.store), 0, 4096).unwrap(), [0; 4096]);
    }
}
