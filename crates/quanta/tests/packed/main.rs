//! Power cuts on a packed volume: after each, every quantum is old or new, and every flushed one is new.

#![allow(clippy::cast_precision_loss, reason = "ratios for people")]

mod disk;

use std::collections::BTreeSet;

use disk::{Disk, Driver};
use lunette_quanta::limits::{MAX_QUANTA_AT_OPEN, MAX_RECORD_ENTRIES, MAX_SEQUENCE_AT_OPEN};
use lunette_quanta::packed::record::{self, Shape};
use lunette_quanta::packed::{Journal, Layout, ReplayError, replay};
use lunette_quanta::{QuantumSize, packed};
use proptest::prelude::*;

const QUANTA: u64 = 12;

/// Room for few records, so that campaigns make checkpoints and go round the ring.
fn journal_len(size: QuantumSize) -> u64 {
    if size > QuantumSize::B1024 { 32 << 10 } else { 24 << 10 }
}

#[derive(Debug, Clone)]
enum Step {
    Write(Vec<u64>),
    Unmap(Vec<u64>),
    Flush,
    Checkpoint,
    /// The process is killed, and another one opens the volume.
    Reopen,
}

/// The content that each quantum may have after a power cut.
#[derive(Clone)]
struct Allowed(Vec<BTreeSet<u8>>);

impl Allowed {
    fn new() -> Self {
        Self(vec![BTreeSet::from([0]); QUANTA as usize])
    }

    fn check(&self, driver: &Driver) {
        for (position, allowed) in self.0.iter().enumerate() {
            let found = driver.get(position as u64);
            assert!(allowed.contains(&found), "quantum {position} is {found}, and may be one of {allowed:?}");
        }
    }
}

fn layout(size: QuantumSize) -> Layout {
    let journal_len = journal_len(size);
    let len = 8192 + journal_len + 4096 + QUANTA * size.bytes() as u64;
    let layout = Layout::largest(len, size, 512, journal_len).expect("room for twelve quanta");
    assert_eq!(layout.quanta(), QUANTA);
    layout
}

/// Runs a campaign, and gives every state of the disk with what is allowed after a cut there.
fn campaign(steps: &[Step], size: QuantumSize) -> (Driver, Vec<(Disk, Allowed)>) {
    let mut driver = Driver::format(layout(size), size);
    let (mut allowed, mut now) = (Allowed::new(), vec![0_u8; QUANTA as usize]);
    let mut states = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        driver.disk.history = Some(Vec::new());
        match step {
            Step::Write(positions) | Step::Unmap(positions) => {
                let content = matches!(step, Step::Write(_)).then_some(index as u8 + 1);
                for position in positions {
                    now[*position as usize] = content.unwrap_or(0);
                    allowed.0[*position as usize].insert(content.unwrap_or(0));
                }
                driver.put(positions, content);
            }
            Step::Flush => driver.flush(),
            Step::Checkpoint => driver.checkpoint(),
            Step::Reopen => driver = Driver::open(driver.disk, layout(size), size),
        }
        let history = driver.disk.history.take().unwrap_or_default();
        states.extend(history.into_iter().map(|disk| (disk, allowed.clone())));
        if matches!(step, Step::Flush | Step::Checkpoint) {
            allowed = Allowed(now.iter().map(|content| BTreeSet::from([*content])).collect());
        }
        states.push((driver.disk.clone(), allowed.clone()));
        for (position, content) in now.iter().enumerate() {
            assert_eq!(driver.get(position as u64), *content, "quantum {position} after step {index}");
        }
    }
    (driver, states)
}

/// Sets of unflushed sectors that survive: all sets when there are few, else none, all, each prefix, all but one, one
/// alone, and random ones.
fn survivors(unflushed: usize) -> Vec<Box<dyn Fn(usize) -> bool>> {
    if unflushed <= 6 {
        return (0_u32..1 << unflushed)
            .map(|set| -> Box<dyn Fn(usize) -> bool> { Box::new(move |at| set >> at & 1 == 1) })
            .collect();
    }
    let mut sets: Vec<Box<dyn Fn(usize) -> bool>> = Vec::new();
    for at in 0..=unflushed {
        sets.push(Box::new(move |index| index < at));
        sets.push(Box::new(move |index| index >= at));
        sets.push(Box::new(move |index| index != at));
        sets.push(Box::new(move |index| index == at));
    }
    for seed in 1..=16_u64 {
        sets.push(Box::new(move |index| {
            (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 63 == 0
        }));
    }
    sets
}

/// Cuts at a state, opens what is left, and perhaps cuts again while the first checkpoint after that runs.
fn cut(disk: &Disk, allowed: &Allowed, survives: &dyn Fn(usize) -> bool, size: QuantumSize, again: bool) {
    let mut driver = Driver::open(disk.cut(survives), layout(size), size);
    allowed.check(&driver);
    if !again {
        return;
    }
    let found = (0..QUANTA).map(|position| BTreeSet::from([driver.get(position)]));
    let found = Allowed(found.collect());
    driver.disk.history = Some(Vec::new());
    driver.checkpoint();
    found.check(&driver);
    for (index, state) in driver.disk.history.take().unwrap_or_default().iter().enumerate() {
        let again = Driver::open(state.cut(|sector| (sector + index) % 3 != 0), layout(size), size);
        found.check(&again);
    }
}

#[test]
fn every_cut_of_a_campaign_leaves_old_or_new_and_flushed_quanta_new() {
    use Step::{Checkpoint, Flush, Reopen, Unmap, Write};
    let steps = [
        Write(vec![3]),
        Write(vec![3, 4, 5]),
        Flush,
        Write(vec![4]),
        Unmap(vec![3]),
        Checkpoint,
        Write(vec![0, 1, 2, 3, 4, 5, 6, 7]),
        Write(vec![11, 3]),
        Flush,
        Write(vec![3]),
        // From here on the ring wraps, and wraps again.
        Write(vec![8, 9, 10, 3]),
        Write(vec![0, 1, 2, 3, 4, 5, 6]),
        Reopen,
        Write(vec![5, 4, 3]),
        Flush,
        Write(vec![3, 8, 10]),
        Unmap(vec![8, 0]),
        Write(vec![2, 3, 4, 5, 6, 7, 8]),
    ];
    let mut cuts = 0;
    for size in [QuantumSize::B512, QuantumSize::B2048] {
        let (_, states) = campaign(&steps, size);
        for (disk, allowed) in &states {
            for survives in survivors(disk.unflushed()) {
                cut(disk, allowed, &survives, size, cuts % 8 == 0);
                cuts += 1;
            }
        }
    }
    println!("{cuts} cuts");
    assert!(cuts > 2_000, "only {cuts} cuts");
}

fn step() -> impl Strategy<Value = Step> {
    let positions = || prop::collection::btree_set(0..QUANTA, 1..6).prop_map(|set| set.into_iter().collect::<Vec<_>>());
    prop_oneof![
        8 => positions().prop_map(Step::Write),
        1 => positions().prop_map(Step::Unmap),
        2 => Just(Step::Flush),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn any_campaign_survives_a_cut_anywhere(
        steps in prop::collection::vec(step(), 1..40),
        at in any::<prop::sample::Index>(),
        sectors in any::<u64>(),
    ) {
        let size = QuantumSize::B1024;
        let (_, states) = campaign(&steps, size);
        let (disk, allowed) = at.get(&states);
        cut(disk, allowed, &|index| sectors >> (index % 64) & 1 == 1, size, true);
    }
}

/// Bytes written for each byte of plain text, journal, places and tails together.
#[test]
fn the_journal_costs_what_the_description_says() {
    let cost = |size: QuantumSize, batch: u64| {
        let unit_len = 64 << 20;
        let layout = Layout::largest(unit_len, size, 512, 4 << 20).expect("room");
        let mut driver = Driver::format(layout, size);
        driver.disk.written = 0;
        // Batches of adjacent quanta, far apart.
        let batches = 512 / batch;
        let apart = layout.quanta() / batches / batch * batch;
        for index in 0..batches {
            let first = index * 37 % batches * apart;
            driver.put(&(first..first + batch).collect::<Vec<_>>(), Some(1));
            if index % 64 == 63 {
                driver.flush();
            }
        }
        driver.checkpoint();
        driver.disk.written as f64 / (batches * batch * size.bytes() as u64) as f64
    };
    for (size, batch, most) in [
        (QuantumSize::B4096, 1, 2.26),
        (QuantumSize::B4096, 2, 2.2),
        (QuantumSize::B4096, 16, 2.06),
        (QuantumSize::B4096, 128, 2.04),
        (QuantumSize::B512, 1, 4.1),
        (QuantumSize::B512, 8, 2.5),
        (QuantumSize::B512, 128, 2.3),
    ] {
        let cost = cost(size, batch);
        println!("{size:?}, {batch} at once: {cost:.3}");
        assert!(cost <= most, "{size:?}, {batch} at once: {cost:.3} bytes for each");
    }
}

#[test]
fn a_journal_without_a_tail_is_refused() {
    let size = QuantumSize::B512;
    let driver = Driver::format(layout(size), size);
    let mut area = driver.disk.bytes[8192..][..journal_len(size) as usize].to_vec();
    area[0] ^= 1;
    assert!(packed::replay(&area, &layout(size), disk::VOLUME).is_ok(), "the other copy is whole");
    area[4096 + 24] ^= 1;
    assert_eq!(packed::replay(&area, &layout(size), disk::VOLUME).err(), Some(packed::ReplayError::TailLost));
}

#[test]
fn a_flushed_record_that_has_rotted_is_missed_and_an_unflushed_one_is_not() {
    let size = QuantumSize::B512;
    // Records of 1024 bytes, the last of them behind the last flush.
    let written = |checkpoint: bool| {
        let mut driver = Driver::format(layout(size), size);
        driver.put(&[3], Some(8));
        if checkpoint {
            driver.checkpoint();
        }
        driver.put(&[3], Some(9));
        driver.put(&[4], Some(9));
        driver.flush();
        driver.put(&[5], Some(9));
        driver
    };
    for checkpoint in [false, true] {
        for (rotten, lost) in [(0, u64::from(!checkpoint)), (1, 1), (2, 1), (3, 0)] {
            let mut driver = written(checkpoint);
            let area = &mut driver.disk.bytes[8192..][..journal_len(size) as usize];
            area[8192 + rotten * 1024 + 600] ^= 1;
            let opened = replay(area, &layout(size), disk::VOLUME);
            let salvaged = packed::salvage(area, &layout(size), disk::VOLUME).unwrap();
            match opened {
                Ok(_) => assert_eq!(lost, 0, "record {rotten}"),
                Err(error) => assert_eq!(error, ReplayError::RecordsLost(lost), "record {rotten}"),
            }
            assert_eq!(salvaged.lost(), lost);
        }
    }
}

#[test]
fn a_failed_write_is_not_missed_later() {
    let size = QuantumSize::B512;
    let mut driver = Driver::format(layout(size), size);
    driver.put(&[3], Some(9));
    let ticket = driver.journal.reserve(Shape { sealed: 1, holes: 0 }).unwrap();
    driver.journal.abandoned(&ticket);
    driver.put(&[4], Some(9));
    assert_eq!(driver.journal.written_through(), 1);
    driver.flush();
    let driver = Driver::open(driver.disk, layout(size), size);
    assert_eq!((driver.journal.missing(), driver.journal.lost()), (1, 0));
    assert_eq!(driver.journal.written_through(), 1, "nor after the next opening");
}

#[test]
fn writes_between_the_steps_of_a_checkpoint_are_kept_and_so_is_what_they_replace() {
    let size = QuantumSize::B512;
    // The quantum that is written between the steps: looked at already, next, and later.
    for written in [1, 5, 9] {
        let mut driver = Driver::format(layout(size), size);
        driver.put(&[1, 5, 9], Some(1));
        driver.flush();
        driver.disk.history = Some(Vec::new());
        let mut steps = 0;
        driver.checkpoint_in_steps(1, |driver, gathers| {
            steps += 1;
            if gathers && steps == 1 {
                driver.put(&[written], Some(2));
            }
            assert_eq!([1, 5, 9].map(|at| driver.get(at)), [1, 5, 9].map(|at| 1 + u8::from(at == written)));
        });
        assert!(steps > 4, "{steps} steps");
        let mut states = driver.disk.history.take().unwrap();
        states.push(driver.disk.clone());
        for state in states {
            for survives in survivors(state.unflushed()) {
                let driver = Driver::open(state.cut(survives), layout(size), size);
                for at in [1, 5, 9] {
                    let found = driver.get(at);
                    assert!(found == 1 || (found == 2 && at == written), "quantum {at} is {found}");
                }
            }
        }
        assert_eq!(driver.get(written), 2);
    }
}

#[test]
fn notes_of_a_client_that_lost_the_volume_leave_the_name_of_the_next_one() {
    let size = QuantumSize::B512;
    let mut first = Driver::format(layout(size), size);
    let second = Driver::open(first.disk.clone(), layout(size), size);
    first.disk = second.disk;
    first.put(&[3], Some(9));
    first.flush();
    first.put(&[4], Some(9));
    first.flush();
    assert!(first.journal.has_another_owner(&first.disk.bytes[8192..][..packed::TAILS_LEN]));
}

#[test]
fn records_of_another_volume_are_not_replayed() {
    let size = QuantumSize::B512;
    let mut driver = Driver::format(layout(size), size);
    driver.put(&[3], Some(9));
    let area = &mut driver.disk.bytes[8192..][..journal_len(size) as usize];
    let other = lunette_quanta::VolumeId([8; 16]);
    for tail in packed::Journal::first_tails(other) {
        area[tail.offset as usize..][..tail.bytes.len()].copy_from_slice(&tail.bytes);
    }
    let journal = packed::replay(area, &layout(size), other).expect("tails");
    assert_eq!(journal.live(0..QUANTA).count(), 0);
}

/// A journal of `records` records, each of which unmaps as many quanta as it can, and those of no other.
fn journal_of_holes(layout: &Layout, records: u64) -> Vec<u8> {
    let mut area = vec![0; layout.journal_len() as usize];
    for tail in Journal::first_tails(disk::VOLUME) {
        area[tail.offset as usize..][..tail.bytes.len()].copy_from_slice(&tail.bytes);
    }
    let mut journal = Journal::new(*layout, disk::VOLUME);
    let shape = Shape { sealed: 0, holes: MAX_RECORD_ENTRIES };
    for number in 0..records {
        let ticket = journal.reserve(shape).expect("room");
        let bytes = &mut area[ticket.offset as usize..][..shape.len(layout)];
        let positions = (0..MAX_RECORD_ENTRIES).map(|at| number * MAX_RECORD_ENTRIES as u64 + at as u64);
        record::finish(bytes, layout, disk::VOLUME, &ticket, positions);
    }
    area
}

#[test]
fn a_journal_of_more_quanta_than_a_client_leaves_there_is_refused() {
    let layout = Layout::largest(1 << 30, QuantumSize::B512, 512, 48 << 20).expect("room");
    let most = (MAX_QUANTA_AT_OPEN / MAX_RECORD_ENTRIES) as u64;
    let open = |records| replay(&journal_of_holes(&layout, records), &layout, disk::VOLUME);
    assert_eq!(open(most).map(|journal| journal.live_len()), Ok(MAX_QUANTA_AT_OPEN));
    assert_eq!(open(most + 1).err(), Some(ReplayError::TooManyQuanta));
}

/// Gives the tail or the record at the beginning of `bytes` another sequence number, and the CRC that fits, as anyone
/// can.
fn renumber(bytes: &mut [u8], sequence: u64) {
    bytes[24..32].copy_from_slice(&sequence.to_le_bytes());
    let crc = lunette_crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn numbers_that_leave_none_for_later_records_are_refused() {
    let layout = layout(QuantumSize::B512);
    // Places of a tail and of a record.
    for at in [0, 8192] {
        for (sequence, refused) in [(MAX_SEQUENCE_AT_OPEN, false), (MAX_SEQUENCE_AT_OPEN + 1, true)] {
            let mut driver = Driver::format(layout, QuantumSize::B512);
            driver.put(&[3], Some(9));
            let area = &mut driver.disk.bytes[8192..][..layout.journal_len() as usize];
            renumber(&mut area[at..], sequence);
            let error = replay(area, &layout, disk::VOLUME).err();
            assert_eq!(error, refused.then_some(ReplayError::Sequence(sequence)), "at {at}");
        }
    }
}

#[test]
fn numbers_without_a_whole_record_are_counted_up_to_the_last_whole_one() {
    let layout = layout(QuantumSize::B512);
    for (rotten, missing) in [(&[][..], 0), (&[1], 1), (&[0, 2], 2), (&[3], 0), (&[1, 3], 1)] {
        let mut driver = Driver::format(layout, QuantumSize::B512);
        (0..4).for_each(|position| driver.put(&[position], Some(9)));
        let area = &mut driver.disk.bytes[8192..][..layout.journal_len() as usize];
        for &record in rotten {
            area[8192 + record * 1024 + 700] ^= 1;
        }
        let journal = replay(area, &layout, disk::VOLUME).expect("tails");
        assert_eq!((journal.missing(), journal.live_len()), (missing, 4 - rotten.len()), "{rotten:?}");
    }
}
