//! Tests of the counts of commands, for metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lunette_device::{Command, CommandKind, Input, LATENCY_BUCKETS, Step, Task};
use lunette_scsi::{SenseKey, Status, TaskAttribute};
use lunette_store::StoreError;

use crate::fixture::{Fixture, THIN, cdb, name};

const READ_2_BLOCKS: [u8; 9] = [0x28, 0, 0, 0, 0, 0, 0, 0, 2];
const WRITE_3_BLOCKS: [u8; 9] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 3];

/// A READ that has begun and waits for its buffer.
fn begun(fixture: &Fixture) -> Task {
    let (attribute, data_out_len, data_in_len) = (TaskAttribute::Simple, 0, 1024);
    let command = Command { lun: [0; 8], cdb: cdb(&READ_2_BLOCKS).into(), attribute, data_out_len, data_in_len };
    let mut task = fixture.device.start(&fixture.nexus, command);
    assert!(matches!(task.step(Input::Start), Step::Buffer { .. }));
    task
}

#[test]
fn commands_count_by_what_they_do_and_how_they_end() {
    let fixture = Fixture::new(THIN);
    let before = fixture.unit.counts();
    fixture.read(&READ_2_BLOCKS);
    fixture.run(&WRITE_3_BLOCKS, &[1; 3 * 512]);
    fixture.run(&[0x93, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], &[1; 512]);
    fixture.run(&[0x35], &[]);
    fixture.run(&[0x42, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
    *fixture.store.fails.lock().unwrap() = Some(StoreError::NoSpace);
    fixture.run(&WRITE_3_BLOCKS, &[1; 3 * 512]);
    fixture.refused(&[0x28, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 1], &[]);
    fixture.refused(&[0xc5], &[]);
    let counts = fixture.unit.counts();
    let since = |kind| [counts.commands(kind) - before.commands(kind), counts.succeeded(kind) - before.succeeded(kind)];
    assert_eq!(CommandKind::ALL.map(since), [[2, 1], [3, 2], [1, 1], [1, 1], [1, 0]]);
    assert_eq!((counts.read_bytes(), counts.written_bytes()), (1024, 4 * 512));
    let errors = [SenseKey::ILLEGAL_REQUEST, SenseKey::DATA_PROTECT, SenseKey::MEDIUM_ERROR];
    assert_eq!(errors.map(|key| counts.errors(key)), [2, 1, 0]);
    assert_eq!((counts.in_flight(), counts.aborted()), (0, 0));
}

#[test]
fn a_command_is_in_flight_until_it_ends_or_is_dropped() {
    let fixture = Fixture::new(THIN);
    let [mut answered, dropped] = [begun(&fixture), begun(&fixture)];
    assert_eq!(fixture.unit.counts().in_flight(), 2);
    drop(dropped);
    answered.end_with(Status::TASK_SET_FULL);
    answered.end_with(Status::TASK_SET_FULL);
    let counts = fixture.unit.counts();
    assert_eq!([counts.in_flight(), counts.aborted(), counts.task_set_full()], [0, 1, 1]);
    assert_eq!((counts.commands(CommandKind::Read), counts.succeeded(CommandKind::Read)), (1, 0));
}

#[test]
fn the_latency_is_what_the_driver_says() {
    let fixture = Fixture::new(THIN);
    let mut task = begun(&fixture);
    task.took(Duration::from_millis(3));
    assert_eq!(fixture.unit.counts().latencies(CommandKind::Read), [0; LATENCY_BUCKETS], "it has not ended");
    task.end_with(Status::BUSY);
    task.took(Duration::from_millis(3));
    let counts = fixture.unit.counts();
    assert_eq!(counts.latencies(CommandKind::Read)[6], 1, "from 2.5 to 5 ms");
    assert_eq!(counts.total_latency(CommandKind::Read), Duration::from_millis(3));
}

#[test]
fn initiators_are_told_apart_and_outlive_their_sessions() {
    let fixture = Fixture::new(THIN);
    let other = fixture.device.attach(name("iqn.2026-11.host:B"));
    fixture.run_on(&other, [0; 8], [0; 16], &[]);
    fixture.read(&READ_2_BLOCKS);
    fixture.run_on(&other, [0; 8], cdb(&WRITE_3_BLOCKS), &[1; 3 * 512]);
    assert_eq!(fixture.device.nexuses(), 2);
    let before = (fixture.unit.counts(), fixture.device.initiator_bytes());
    drop(other);
    assert_eq!(fixture.device.nexuses(), 1);
    assert_eq!((fixture.unit.counts(), fixture.device.initiator_bytes()), before);
    assert_eq!(before.1["iqn.2026-11.host:b"].written_bytes, 1536);
    assert_eq!(before.1.values().map(|bytes| bytes.read_bytes).sum::<u64>(), 1024);
}

#[test]
fn commands_answered_at_once_share_the_time_of_their_stretch() {
    let store = Arc::new(lunette_store::MemoryStore::new(1 << 20).unwrap());
    let unit = lunette_device::LogicalUnit::new(lunette_device::LogicalUnitConfig::new(store, "fast")).unwrap();
    let device = Arc::new(lunette_device::TargetDevice::new("iqn.2026-11.test"));
    let unit = Arc::new(unit);
    device.add(lunette_scsi::Lun::ZERO, Arc::clone(&unit)).unwrap();
    let nexus = device.attach(name("iqn.2026-11.host:a,i,0x1"));
    let mut task = device.start(
        &nexus,
        Command { lun: [0; 8], cdb: [0; 16].into(), attribute: TaskAttribute::Simple, data_out_len: 0, data_in_len: 0 },
    );
    assert!(matches!(task.step(Input::Start), Step::Done(_)), "the unit attention");
    let (start, reads) = (Instant::now(), std::cell::Cell::new(0));
    let clock = || {
        reads.set(reads.get() + 1);
        start + Duration::from_micros(400) * (reads.get() - 1)
    };
    let mut at_once = nexus.at_once(clock);
    let mut place = [0; 1024];
    for _ in 0..3 {
        assert!(at_once.read([0; 8], cdb(&READ_2_BLOCKS), &mut place));
    }
    assert!(at_once.write([0; 8], cdb(&WRITE_3_BLOCKS), &[7; 3 * 512]));
    drop(at_once);
    assert_eq!(reads.get(), 2, "one reading at the begin of the stretch and one at its end");
    let counts = unit.counts();
    assert_eq!(counts.latencies(CommandKind::Read)[1], 3, "a quarter of 400 us each");
    assert_eq!(counts.total_latency(CommandKind::Read), Duration::from_micros(300));
    assert_eq!(counts.total_latency(CommandKind::Write), Duration::from_micros(100));
    assert_eq!((counts.read_bytes(), counts.written_bytes()), (3072, 1536));
}
