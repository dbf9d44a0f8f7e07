//! The attacks of a hostile unit: a table of attack, placement and outcome.

use std::sync::Arc;

use lunette_crc32c::Crc32c;
use lunette_quanta::packed::Layout;
use lunette_quanta::{Holes, Native, QuantumSize, SLOT_LEN};
use lunette_store::{MemoryStore, Store};
use lunette_volume::{
    Anchor, Counts, FormatOptions, OpenOptions, TailLoss, Volume, VolumeError, find, format, recover,
};

use crate::common::{JOURNAL_BYTES, Kind, VOLUME, flush, keys, make, memory, open, read, refused_at, write};

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

    /// All of its bytes.
    fn memory_now(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.memory.geometry().len_bytes as usize];
        self.memory.read(0, &mut bytes).unwrap();
        bytes
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

/// The means of an attacker: the EDUs of the present, of the past and of another volume.
struct Loot {
    present: Edu,
    other: Edu,
    past: Edu,
    foreign: Edu,
}

/// The act of an attacker.
#[derive(Clone, Copy)]
enum Attack {
    /// Something to one quantum.
    Quantum(fn(Loot) -> Edu),
    /// Puts back the whole disk as it was.
    Disk,
    /// Puts back the journal as it was before its quanta went to their places.
    Journal,
}

const ATTACKS: [(&str, Attack); 12] = [
    (
        "a bit of the ciphertext flipped",
        Attack::Quantum(|mut loot| {
            loot.present.0[100] ^= 4;
            loot.present
        }),
    ),
    (
        "a bit flipped, CRC made right",
        Attack::Quantum(|mut loot| {
            loot.present.0[100] ^= 4;
            with_crc(loot.present, VICTIM)
        }),
    ),
    (
        "the version changed, CRC made right",
        Attack::Quantum(|mut loot| {
            loot.present.1[50] ^= 1;
            with_crc(loot.present, VICTIM)
        }),
    ),
    ("another quantum moved here", Attack::Quantum(|loot| loot.other)),
    ("another quantum moved here, CRC made right", Attack::Quantum(|loot| with_crc(loot.other, VICTIM))),
    ("a quantum of another volume, same place", Attack::Quantum(|loot| loot.foreign)),
    ("the slot cut", Attack::Quantum(|loot| (loot.present.0, [0; SLOT_LEN]))),
    ("the ciphertext of an older version", Attack::Quantum(|loot| (loot.past.0, loot.present.1))),
    ("erased as a whole", Attack::Quantum(|_| (vec![0; Q], [0; SLOT_LEN]))),
    ("an older EDU of the same place", Attack::Quantum(|loot| loot.past)),
    ("the whole disk as it was", Attack::Disk),
    ("the journal as it was", Attack::Journal),
];

/// How the attacked volume is made and opened.
#[derive(Clone, Copy)]
struct Column {
    name: &'static str,
    kind: Kind,
    holes: Holes,
    anchored: bool,
}

const NATIVE: Column =
    Column { name: "native", kind: Kind::Native(QuantumSize::B512), holes: Holes::Allowed, anchored: false };
const PACKED: Column = Column { name: "packed", kind: Kind::Packed(QuantumSize::B512, 512), ..NATIVE };
const COLUMNS: [Column; 6] = [
    NATIVE,
    Column { name: "native, no holes", holes: Holes::Refused, ..NATIVE },
    Column { name: "native, anchor", anchored: true, ..NATIVE },
    PACKED,
    Column { name: "packed, no holes", holes: Holes::Refused, ..PACKED },
    Column { name: "packed, anchor", anchored: true, ..PACKED },
];

/// The outcomes of all attacks, in their order. Those of native volumes come first; `None` for what they do not have.
const EXPECTED: [[Option<&str>; 6]; 12] = [
    [Some("wrong CRC"); 6],
    [Some("wrong tag"); 6],
    [Some("wrong tag"); 6],
    [Some("wrong CRC"); 6],
    [Some("wrong tag"); 6],
    [Some("wrong tag"); 6],
    [Some("wrong CRC"); 6],
    [Some("wrong CRC"); 6],
    twice(["READS ZEROES", "refused as a hole", "rolled back"]),
    twice(["READS OLDER", "READS OLDER", "rolled back"]),
    twice(["READS OLDER", "READS OLDER", "rolled back"]),
    [None, None, None, Some("READS OLDER"), Some("READS OLDER"), Some("rolled back")],
];

const fn twice([plain, no_holes, anchor]: [&str; 3]) -> [Option<&str>; 6] {
    [Some(plain), Some(no_holes), Some(anchor), Some(plain), Some(no_holes), Some(anchor)]
}

fn fill(volume: &Volume, content: u8) {
    for position in 0..QUANTA {
        write(volume, position * Q as u64, &[content + position as u8; Q], false).unwrap();
    }
}

/// Writes content, and content over that, and does to the unit what the attack does. `None` for an attack on what the
/// unit does not have.
fn attack(column: Column, attack: Attack, opened: impl Fn(&Arc<dyn Store>) -> Volume) -> Option<Unit> {
    let unit = Unit::new(column.kind);
    make(&unit.store, column.kind, column.holes);
    let volume = opened(&unit.store);
    fill(&volume, 1);
    flush(&volume).unwrap();
    let early = unit.memory_now();
    volume.close().unwrap();
    let (past, disk) = (unit.get(VICTIM), unit.memory_now());
    fill(&volume, 101);
    volume.close().unwrap();
    drop(volume);
    let foreign = || {
        let foreign = Unit::new(column.kind);
        let another = lunette_quanta::VolumeId([8; 16]);
        format(&foreign.store, another, &keys(&[1]), &column.kind.options(column.holes), &mut |_| {}).unwrap();
        let volume = open(&foreign.store);
        fill(&volume, 101);
        volume.close().unwrap();
        foreign.get(VICTIM)
    };
    match (attack, column.kind) {
        (Attack::Quantum(change), _) => {
            let loot = Loot { present: unit.get(VICTIM), other: unit.get(OTHER), past, foreign: foreign() };
            unit.put(VICTIM, &change(loot));
        }
        (Attack::Disk, _) => unit.memory.write(0, &disk).unwrap(),
        (Attack::Journal, Kind::Native(_)) => return None,
        (Attack::Journal, Kind::Packed(..)) => {
            let journal = 8192..8192 + JOURNAL_BYTES;
            unit.memory.write(journal.start, &early[journal.start as usize..journal.end as usize]).unwrap();
        }
    }
    Some(unit)
}

fn outcome(column: Column, what: Attack) -> Option<&'static str> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("anchor");
    let opened = |unit: &Arc<dyn Store>| {
        let found = find(unit).unwrap();
        if column.anchored && !path.exists() {
            drop(Anchor::create(&path, found.header()).unwrap());
        }
        let options = OpenOptions { anchor: column.anchored.then(|| path.clone()), ..OpenOptions::default() };
        Volume::open(Arc::clone(unit), &found, keys(&[1]), options).unwrap()
    };
    let unit = attack(column, what, opened)?;
    let volume = opened(&unit.store);
    let before = volume.counts();
    // A victim is met in the middle of a read.
    let is_one = matches!(what, Attack::Quantum(_));
    let first = if is_one { 0 } else { VICTIM };
    let result = read(&volume, first * Q as u64, (QUANTA - first) as usize * Q);
    let counts = volume.counts();
    let others = [0..VICTIM, VICTIM + 1..QUANTA].into_iter().flatten();
    for position in others.filter(|_| is_one) {
        let bytes = read(&volume, position * Q as u64, Q).unwrap();
        assert_eq!(bytes, [101 + position as u8; Q], "others stay readable");
    }
    Some(match result {
        Ok(bytes) => {
            assert_eq!(before.refused_damaged, counts.refused_damaged);
            match bytes[(VICTIM - first) as usize * Q] {
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
            let Counts { refused_damaged, refused_not_authentic, refused_holes, refused_rolled_back, .. } = counts;
            match (refused_damaged, refused_not_authentic, refused_holes, refused_rolled_back) {
                (1, 0, 0, 0) if text.contains("wrong CRC") => "wrong CRC",
                (0, 1, 0, 0) if text.contains("wrong tag") => "wrong tag",
                (0, 0, 1, 0) if text.contains("erased") => "refused as a hole",
                (0, 0, 0, 1) if text.contains("rolled back") => "rolled back",
                _ => panic!("{text}, {counts:?}"),
            }
        }
    })
}

#[test]
fn the_table_of_attacks() {
    println!("| attack | {} |", COLUMNS.map(|column| column.name).join(" | "));
    let mut found = Vec::new();
    for (name, attack) in ATTACKS {
        let row = COLUMNS.map(|column| outcome(column, attack));
        println!("| {name} | {} |", row.map(|outcome| outcome.unwrap_or("–")).join(" | "));
        found.push(row);
    }
    assert_eq!(found, EXPECTED);
}

/// The damage to a packed volume before it is recovered.
#[derive(Clone, Copy, PartialEq)]
enum Past {
    /// The journal is put back as it was.
    Journal,
    /// The journal, its tails, and the places of the quanta are erased.
    JournalWithoutTails,
}

/// Recovers a volume whose journal is one of before, and tells what its victim is then.
fn recovery(past: Past, loss: TailLoss, anchored: bool) -> &'static str {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("anchor");
    let opened = |unit: &Arc<dyn Store>| {
        let found = find(unit).unwrap();
        if !path.exists() {
            drop(Anchor::create(&path, found.header()).unwrap());
        }
        let options = OpenOptions { anchor: Some(path.clone()), ..OpenOptions::default() };
        Volume::open(Arc::clone(unit), &found, keys(&[1]), options).unwrap()
    };
    let unit = attack(PACKED, Attack::Journal, opened).unwrap();
    if past == Past::JournalWithoutTails {
        unit.memory.write(8192, &[0; 8192]).unwrap();
        (0..QUANTA).for_each(|position| unit.put(position, &(vec![0; Q], [0; SLOT_LEN])));
    }
    let before = unit.get(VICTIM);
    let found = find(&unit.store).unwrap();
    let anchor = anchored.then(|| Anchor::open(&path, found.header(), true).unwrap());
    match recover(&unit.store, &found, &keys(&[1]), anchor.as_ref(), loss) {
        Err(VolumeError::JournalRolledBack { position: 0, count: QUANTA }) => {
            assert!(unit.get(VICTIM) == before, "nothing was moved");
            "refused"
        }
        Err(error) => panic!("{error}"),
        Ok(_) => match read(&open(&unit.store), VICTIM * Q as u64, Q).unwrap()[0] {
            0 => "left as it is",
            old if old == 1 + VICTIM as u8 => "MOVES OLDER",
            _ => "moves what is right",
        },
    }
}

#[test]
fn the_table_of_recoveries() {
    const OLDER: &str = "MOVES OLDER";
    let rows = [
        ("the journal as it was", Past::Journal, TailLoss::Refuse, [OLDER, "refused"]),
        ("the journal as it was, forced", Past::Journal, TailLoss::Force, [OLDER, "refused"]),
        (
            "the journal as it was without tails, forced",
            Past::JournalWithoutTails,
            TailLoss::Force,
            [OLDER, "left as it is"],
        ),
    ];
    println!("| attack | recover | recover --anchor |");
    for (name, past, loss, expected) in rows {
        let found = [false, true].map(|anchored| recovery(past, loss, anchored));
        println!("| {name} | {} |", found.join(" | "));
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn every_bit_of_an_edu_counts() {
    for kind in [Kind::Native(QuantumSize::B512), Kind::Packed(QuantumSize::B512, 512)] {
        let unit = Unit::new(kind);
        make(&unit.store, kind, Holes::Allowed);
        let volume = open(&unit.store);
        fill(&volume, 1);
        volume.close().unwrap();
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
