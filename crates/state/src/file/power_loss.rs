//! Power cuts at every moment of a state file's life: everything acknowledged is there, and nothing is there by half.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;

use super::values::Values;

/// The bytes that a disk writes as a whole or not at all.
const SECTOR: usize = 512;

/// An event in the file's history.
#[derive(Debug, Clone)]
enum Event {
    Write {
        offset: usize,
        bytes: Vec<u8>,
    },
    SetLen(usize),
    /// Everything before this is on stable storage.
    Sync,
    /// The save of this number was acknowledged.
    Saved(u64),
}

impl Event {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => file[*offset..][..bytes.len()].copy_from_slice(bytes),
            Self::SetLen(len) => file.resize(*len, 0),
            Self::Sync | Self::Saved(_) => {}
        }
    }

    /// Applies what a power cut during the event leaves: of a write, any of its sectors.
    fn apply_in_part(&self, file: &mut [u8], coins: &mut Coins) {
        if let Self::Write { offset, bytes } = self {
            for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                let at = offset + index * SECTOR;
                if coins.toss() && at + sector.len() <= file.len() {
                    file[at..][..sector.len()].copy_from_slice(sector);
                }
            }
        }
    }
}

/// A file in memory that records its history.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<History>>);

#[derive(Debug, Default)]
struct History {
    file: Vec<u8>,
    events: Vec<Event>,
}

impl Disk {
    fn holding(file: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(History { file, events: Vec::new() })))
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap()
    }

    fn note(&self, event: Event) {
        let mut history = self.history();
        event.apply(&mut history.file);
        history.events.push(event);
    }

    fn open(&self) -> Values {
        Values::open(self.clone()).expect("a database after a cut is repaired")
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.history().file.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.history().file.get(offset as usize..offset as usize + out.len()).map(<[u8]>::to_vec);
        out.copy_from_slice(&bytes.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.note(Event::SetLen(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.note(Event::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.note(Event::Write { offset: offset as usize, bytes: data.to_vec() });
        Ok(())
    }
}

/// A seeded generator of random bits (xorshift).
struct Coins(u64);

impl Coins {
    fn toss(&mut self) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 & 0x100 != 0
    }
}

/// The file after a power cut behind `events`: everything up to the last synchronization, and of each later write any
/// part. Changes of the length are in the journal of a file system, which keeps their order.
fn cut(events: &[Event], seed: u64) -> Vec<u8> {
    let synced = events.iter().rposition(|event| matches!(event, Event::Sync)).map_or(0, |at| at + 1);
    let mut file = Vec::new();
    events[..synced].iter().for_each(|event| event.apply(&mut file));
    let mut coins = Coins(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for event in &events[synced..] {
        match event {
            Event::SetLen(_) => event.apply(&mut file),
            _ => event.apply_in_part(&mut file, &mut coins),
        }
    }
    file
}

/// Saves two values, a short one and one that comes and goes, each with the number of the save in it.
fn save(values: &Values, number: u64) {
    let bytes = [&number.to_be_bytes()[..], &vec![number as u8; 40 * (number as usize % 300)]].concat();
    values.write([("reservations/disk", Some(&*bytes))]).unwrap();
}

#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged() {
    const SAVES: u64 = 40;
    let disk = Disk::default();
    let values = disk.open();
    let first = disk.history().events.len();
    for number in 1..=SAVES {
        save(&values, number);
        disk.note(Event::Saved(number));
    }
    let events = disk.history().events.clone();
    assert!(events.len() - first > 3 * SAVES as usize, "there is something to cut");
    for end in first..=events.len() {
        for seed in 1..=3 {
            let last = |events: &[Event]| {
                events
                    .iter()
                    .rev()
                    .find_map(|event| if let Event::Saved(number) = event { Some(*number) } else { None })
            };
            let acknowledged = last(&events[..end]).unwrap_or(0);
            let after = Disk::holding(cut(&events[..end], seed)).open();
            let found = after.read("reservations/disk").unwrap();
            let number = found.as_ref().map_or(0, |bytes| u64::from_be_bytes(*bytes.first_chunk().unwrap()));
            // The save that was cut short may have been completed.
            assert!(
                (acknowledged..=acknowledged + 1).contains(&number),
                "cut behind event {end}, seed {seed}: {number} is there, {acknowledged} was acknowledged"
            );
            let whole = found.is_none_or(|bytes| bytes.len() == 8 + 40 * (number as usize % 300));
            assert!(whole, "cut behind event {end}, seed {seed}: {number} is torn");
        }
    }
}
