//! Frozen units: no command and no background work submits a request, and all go on at the thaw.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lunette_device::{FrozenUnit, LogicalUnit, LogicalUnitConfig, ScrubEnd, ScrubOwner, ScrubbedBlocks, scrub_once};
use lunette_scsi::{Lun, Status};
use lunette_store::{MemoryStore, OpKind};

use crate::atomic::SteppedTask;
use crate::fixture::{Fixture, Seen, THIN, cdb, name};

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];

fn freeze(fixture: &Fixture) -> FrozenUnit {
    fixture.unit.freeze().expect("it is not frozen yet")
}

/// Drives a command until it waits.
pub(crate) fn waiting(fixture: &Fixture, bytes: &[u8], data_out: &[u8]) -> SteppedTask {
    let mut task = SteppedTask::new(fixture, &fixture.nexus, cdb(bytes), data_out.to_vec());
    while !task.waits() {
        task = task.go_on(fixture).continue_value().expect("it does not end before it has waited");
    }
    until_told(fixture, task)
}

/// Lets the condition that a command waits for know of it.
fn until_told(fixture: &Fixture, task: SteppedTask) -> SteppedTask {
    task.go_on(fixture).continue_value().expect("it waits")
}

#[test]
fn every_command_that_has_a_request_waits_before_it_and_then_ends_as_ever() {
    let fixture = Fixture::new(THIN);
    let table: [(&str, &[u8], Vec<u8>); 9] = [
        ("READ", &READ, vec![]),
        ("WRITE", &WRITE, vec![7; 512]),
        ("VERIFY", &[0x2f, 0, 0, 0, 0, 0, 0, 0, 1, 0], vec![]),
        ("WRITE AND VERIFY", &[0x2e, 0, 0, 0, 0, 0, 0, 0, 1, 0], vec![7; 512]),
        ("WRITE SAME", &[0x41, 0, 0, 0, 0, 0, 0, 0, 8, 0], vec![7; 512]),
        ("SYNCHRONIZE CACHE", &[0x35], vec![]),
        ("GET LBA STATUS", &[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 24], vec![]),
        (
            "UNMAP",
            &[0x42, 0, 0, 0, 0, 0, 0, 0, 24],
            [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0; 8], &[0, 0, 0, 1, 0, 0, 0, 0]].concat(),
        ),
        ("COMPARE AND WRITE", &[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 30, 0, 0, 0, 1], vec![0; 1024]),
    ];
    for (name, bytes, data_out) in table {
        let frozen = freeze(&fixture);
        let task = waiting(&fixture, bytes, &data_out);
        assert_eq!(fixture.seen(), [], "{name} has reached the store");
        drop(frozen);
        let response = task.finish(&fixture);
        assert_eq!(response.status, Status::GOOD, "{name}: {response:?}");
        assert_ne!(fixture.seen(), [], "{name} has no request");
    }
}

#[test]
fn commands_that_need_no_store_are_answered_as_ever() {
    let fixture = Fixture::new(THIN);
    let _frozen = freeze(&fixture);
    for bytes in [&[0x00][..], &[0x12, 0, 0, 0, 96], &[0x25], &[0x03, 0, 0, 0, 18]] {
        assert_eq!(fixture.run(bytes, &[]).status, Status::GOOD, "{bytes:x?}");
    }
}

#[test]
fn an_atomic_command_keeps_its_blocks_through_a_freeze_in_its_middle() {
    let fixture = Fixture::new(THIN);
    let exchange = cdb(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    let data_out = [[0; 512], [7; 512]].concat();
    let mut task = SteppedTask::new(&fixture, &fixture.nexus, exchange, data_out).until_it_has_its_buffers(&fixture);
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    fixture.run_on(&other, [0; 8], [0; 16], &[]);
    let write = SteppedTask::new(&fixture, &other, cdb(&WRITE), vec![9; 512]).until_it_has_its_buffers(&fixture);
    // The read of the exchange was submitted before.
    let frozen = freeze(&fixture);
    task = task.go_on(&fixture).continue_value().unwrap();
    assert!(task.waits() && write.waits());
    let read = Seen { kind: OpKind::Read, offset: 0, len: 512, fua: false };
    assert_eq!(fixture.seen(), [read]);
    let (task, write) = (until_told(&fixture, task), until_told(&fixture, write));
    drop(frozen);
    assert_eq!(task.finish(&fixture).status, Status::GOOD);
    assert_eq!(write.finish(&fixture).status, Status::GOOD);
    assert_eq!(fixture.bytes(0, 512), [9; 512], "the write came after the exchange");
}

#[test]
fn an_aborted_command_is_gone_and_its_request_never_comes() {
    let fixture = Fixture::new(THIN);
    let frozen = freeze(&fixture);
    waiting(&fixture, &WRITE, &[7; 512]).abort();
    assert_eq!(fixture.buffer_bytes(), 0);
    drop(frozen);
    assert_eq!(fixture.seen(), []);
    assert_eq!(fixture.run(&WRITE, &[8; 512]).status, Status::GOOD, "it holds no claim");
}

#[test]
fn a_store_that_shrinks_meanwhile_refuses_what_lies_behind_its_end() {
    let fixture = Fixture::new(THIN);
    let frozen = freeze(&fixture);
    let task = waiting(&fixture, &[0x28, 0, 0, 0, 2, 0, 0, 0, 1, 0], &[]);
    fixture.store.len_bytes.store(512 * 512, Ordering::Relaxed);
    drop(frozen);
    assert_eq!(task.finish(&fixture).status, Status::CHECK_CONDITION);
}

#[test]
fn a_command_is_not_answered_at_once() {
    let store = Arc::new(MemoryStore::new(1 << 20).unwrap());
    let fixture = Fixture::new(THIN);
    let config = LogicalUnitConfig::new(store, "fast");
    let unit = Arc::new(LogicalUnit::new(config).unwrap());
    let lun = Lun::new(1).unwrap();
    fixture.device.add(lun, Arc::clone(&unit)).unwrap();
    fixture.run_on(&fixture.nexus, lun.encode(), [0; 16], &[]);
    let answers = |is_frozen: bool| {
        let mut at_once = fixture.nexus.at_once(Instant::now);
        let serves = [false, true].map(|is_write| at_once.serves(lun.encode(), is_write));
        assert_eq!(serves, [!is_frozen; 2]);
    };
    answers(false);
    let frozen = unit.freeze().unwrap();
    answers(true);
    drop(frozen);
    answers(false);
}

struct Owner;

impl ScrubOwner for Owner {
    fn scrubbed(&mut self, _: ScrubbedBlocks) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn ended(self, end: Result<(), ScrubEnd>) {
        assert_eq!(end, Ok(()));
    }
}

#[test]
fn background_work_waits_too() {
    let fixture = Fixture::new(THIN);
    // SANITIZE, overwrite, IMMED: one pass with one byte.
    let list = [1, 0, 0, 1, 9];
    let begin: [&dyn Fn(); 2] = [&|| fixture.begin_background(scrub_once(&fixture.unit, Owner)), &|| {
        fixture.run(&[0x48, 0x81, 0, 0, 0, 0, 0, 0, list.len() as u8], &list);
    }];
    for begin in begin {
        let frozen = freeze(&fixture);
        begin();
        while fixture.step_background() {}
        assert_eq!(fixture.seen(), []);
        drop(frozen);
        fixture.finish_background();
        assert_ne!(fixture.seen(), []);
    }
    assert_eq!(fixture.bytes(0, 512), [9; 512]);
}
