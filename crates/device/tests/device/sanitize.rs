//! SANITIZE: its effect on the medium and on other commands, failures and restarts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lunette_device::{LogicalUnit, LogicalUnitConfig, LogicalUnitError};
use lunette_scsi::{AdditionalSense, FieldPointer, SenseData, SenseKey, Status};
use lunette_store::{Capabilities, OpKind, StoreError};

use crate::atomic::SteppedTask;
use crate::fixture::{Fixture, Medium, Seen, THIN, TestState, cdb, code, name, sense};

const IMMED: u8 = 0x80;
const AUSE: u8 = 0x20;
const BLOCK_ERASE: u8 = 2;
const CRYPTOGRAPHIC_ERASE: u8 = 3;
const EXIT_FAILURE_MODE: u8 = 0x1f;
const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];

const IN_PROGRESS: (SenseKey, AdditionalSense) = (SenseKey::NOT_READY, AdditionalSense::SANITIZE_IN_PROGRESS);
const HAS_FAILED: (SenseKey, AdditionalSense) = (SenseKey::MEDIUM_ERROR, AdditionalSense::SANITIZE_COMMAND_FAILED);

/// SANITIZE without a list.
fn sanitize(action_and_flags: u8) -> [u8; 10] {
    [0x48, action_and_flags, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// SANITIZE with OVERWRITE, and its list.
fn overwrite(flags: u8, first: u8, pattern: &[u8]) -> ([u8; 10], Vec<u8>) {
    let [high, low] = (pattern.len() as u16).to_be_bytes();
    let list = [&[first, 0, high, low], pattern].concat();
    let [list_high, list_low] = (list.len() as u16).to_be_bytes();
    ([0x48, flags | 1, 0, 0, 0, 0, 0, list_high, list_low, 0], list)
}

fn good(fixture: &Fixture, (cdb, list): ([u8; 10], Vec<u8>)) {
    let response = fixture.run(&cdb, &list);
    assert_eq!(response.status, Status::GOOD, "{response:?}");
}

/// The sense data that REQUEST SENSE returns.
fn requested(fixture: &Fixture) -> SenseData {
    SenseData::decode(&fixture.read(&[0x03, 0, 0, 0, 252, 0])).unwrap()
}

fn fill(fixture: &Fixture) {
    fixture.store.bytes.lock().unwrap().fill(0x5a);
}

fn holds_only(fixture: &Fixture, byte: u8) -> bool {
    fixture.store.bytes.lock().unwrap().iter().all(|found| *found == byte)
}

#[test]
fn every_block_is_overwritten_with_the_pattern() {
    let fixture = Fixture::new(THIN);
    good(&fixture, overwrite(0, 0x01, &[1, 2, 3]));
    let bytes = fixture.bytes(0, 1024 * 512);
    assert!(bytes.chunks(512).all(|block| block.iter().zip([1, 2, 3].iter().cycle()).all(|(a, b)| a == b)));
    good(&fixture, overwrite(0, 0x01, &[7; 512]));
    assert!(holds_only(&fixture, 7));
    assert_eq!(fixture.run(&READ, &[]).status, Status::GOOD);
}

#[test]
fn each_pass_is_on_stable_storage_before_the_next() {
    let fixture = Fixture::new(THIN);
    fixture.seen();
    good(&fixture, overwrite(0, 0x82, &[0x0f]));
    let seen = |kind, len| Seen { kind, offset: 0, len, fua: false };
    let pass = [seen(OpKind::Write, 1024 * 512), seen(OpKind::Flush, 0)];
    assert_eq!(fixture.seen(), [pass, pass].concat());
    assert!(holds_only(&fixture, 0x0f), "INVERT leaves the pattern itself");
}

#[test]
fn erased_blocks_read_as_zero_and_are_free() {
    for action in [BLOCK_ERASE, CRYPTOGRAPHIC_ERASE] {
        let fixture = Fixture::new(THIN);
        fill(&fixture);
        assert_eq!(fixture.run(&sanitize(action), &[]).status, Status::GOOD);
        assert!(holds_only(&fixture, 0));
        assert_eq!(fixture.seen().last().map(|seen| seen.kind), Some(OpKind::Flush));
    }
}

#[test]
fn units_have_the_erasures_that_their_store_can_do() {
    let characteristics = |fixture: &Fixture| fixture.read(&[0x12, 1, 0xb1, 0, 64])[7];
    let thin = Fixture::new(THIN);
    assert_eq!(characteristics(&thin), 0x50);
    let capabilities = Capabilities { unmap: false, memory: false, ..THIN.capabilities };
    let thick = Fixture::new(Medium { capabilities, ..THIN });
    assert_eq!(characteristics(&thick), 0);
    for action in [0, BLOCK_ERASE, CRYPTOGRAPHIC_ERASE, 4] {
        assert_eq!(thick.refused(&sanitize(action), &[]).field, Some(FieldPointer::cdb(1).bit(4)), "{action}");
    }
    good(&thick, overwrite(0, 1, &[1]));
}

#[test]
fn bad_fields_have_their_sense_codes() {
    let fixture = Fixture::new(THIN);
    fill(&fixture);
    for (list_len, field) in [(4, 7), (517, 7)] {
        let (mut cdb, list) = overwrite(0, 1, &[0; 512]);
        cdb[7..9].copy_from_slice(&u16::to_be_bytes(list_len));
        let sense = fixture.refused(&cdb, &[&list[..], &[0]].concat());
        assert_eq!((sense.code, sense.field), (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(field))));
    }
    let (cdb, list) = overwrite(0, 0, &[0; 512]);
    assert_eq!(fixture.refused(&cdb, &list).field, Some(FieldPointer::data(0).bit(4)));
    let sense = fixture.refused(&cdb, &list[..3]);
    assert_eq!(sense.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let znr = fixture.refused(&overwrite(0x40, 1, &[0]).0, &[]);
    assert_eq!(znr.field, Some(FieldPointer::cdb(1).bit(6)), "ZNR");
    for action in [BLOCK_ERASE, CRYPTOGRAPHIC_ERASE, EXIT_FAILURE_MODE] {
        let mut cdb = sanitize(action);
        cdb[8] = 8;
        assert_eq!(fixture.refused(&cdb, &[0; 8]).field, Some(FieldPointer::cdb(8).bit(3)));
    }
    assert!(holds_only(&fixture, 0x5a));
    assert_eq!(fixture.run(&sanitize(EXIT_FAILURE_MODE), &[]).status, Status::GOOD, "nothing to exit from");
}

#[test]
fn protected_media_are_not_sanitized() {
    let fixture = Fixture::new(Medium { read_only: true, ..THIN });
    for action in [BLOCK_ERASE, CRYPTOGRAPHIC_ERASE] {
        assert_eq!(fixture.refused(&sanitize(action), &[]).key, SenseKey::DATA_PROTECT);
    }
}

#[test]
fn while_it_runs_the_medium_is_not_ready_and_progress_is_reported() {
    let fixture = Fixture::new(THIN);
    fill(&fixture);
    assert!(!fixture.unit.is_being_sanitized());
    good(&fixture, overwrite(IMMED, 0x03, &[9]));
    assert!(fixture.unit.is_being_sanitized());
    for refused in [&[0x00][..], &READ, &[0x25], &[0x1b, 0, 0, 0, 1], &[0x15, 0x10], &sanitize(EXIT_FAILURE_MODE)] {
        assert_eq!(code(fixture.refused(refused, &[])), IN_PROGRESS, "{refused:x?}");
    }
    let (cdb, list) = overwrite(0, 1, &[1]);
    assert_eq!(code(fixture.refused(&cdb, &list)), IN_PROGRESS);
    for passes in [
        &[0x12, 0, 0, 0, 96][..],
        &[0xa0, 0, 0, 0, 0, 0, 0, 0, 16],
        &[0x1a, 0, 8, 0, 64],
        &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0, 8],
    ] {
        assert_eq!(fixture.run(passes, &[]).status, Status::GOOD, "{passes:x?}");
    }
    let mut told = Vec::new();
    while fixture.step_background() {
        let sense = requested(&fixture);
        if let Some(progress) = sense.progress {
            assert_eq!(code(sense), IN_PROGRESS);
            told.push(progress);
        }
    }
    told.dedup();
    assert_eq!(told, [0, 0x5555, 0xaaaa, 0xffff]);
    assert_eq!(requested(&fixture).key, SenseKey::NO_SENSE);
    assert_eq!(fixture.run(&READ, &[]).status, Status::GOOD);
    assert!(holds_only(&fixture, 9) && !fixture.unit.is_being_sanitized());
}

#[test]
fn neither_a_reset_nor_the_loss_of_the_nexus_ends_it() {
    let fixture = Fixture::new(THIN);
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    fixture.run_on(&other, [0; 8], cdb(&[]), &[]);
    fixture.run_on(&other, [0; 8], cdb(&sanitize(IMMED | BLOCK_ERASE)), &[]);
    drop(other);
    fixture.device.reset_target();
    while code(fixture.refused(&[0x00], &[])).0 == SenseKey::UNIT_ATTENTION {}
    assert_eq!(code(fixture.refused(&[0x00], &[])), IN_PROGRESS);
    fixture.finish_background();
    assert_eq!(fixture.run(&[0x00], &[]).status, Status::GOOD);
}

/// Aborting the command that requested a sanitize operation does not abort the operation.
#[test]
fn an_aborted_command_leaves_the_operation_behind() {
    let fixture = Fixture::new(THIN);
    fill(&fixture);
    let mut command = SteppedTask::new(&fixture, &fixture.nexus, cdb(&sanitize(BLOCK_ERASE)), Vec::new());
    while !command.waits() {
        command = command.go_on(&fixture).continue_value().unwrap();
    }
    drop(command);
    assert_eq!(code(fixture.refused(&[0x00], &[])), IN_PROGRESS);
    fixture.finish_background();
    assert!(holds_only(&fixture, 0));
}

#[test]
fn none_begins_on_a_unit_that_is_to_go() {
    let fixture = Fixture::new(THIN);
    assert!(fixture.unit.prepare_removal());
    let absent = (SenseKey::ILLEGAL_REQUEST, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    assert_eq!(code(fixture.refused(&sanitize(BLOCK_ERASE), &[])), absent);
    fixture.unit.cancel_removal();
    assert_eq!(fixture.run(&sanitize(IMMED | BLOCK_ERASE), &[]).status, Status::GOOD);
    assert!(!fixture.unit.prepare_removal(), "one runs");
    fixture.finish_background();
    assert!(fixture.unit.prepare_removal());
}

#[test]
fn commands_that_came_before_do_not_write_after() {
    let fixture = Fixture::new(THIN);
    let write = |lba| cdb(&[0x2a, 0, 0, 0, 0, lba, 0, 0, 1, 0]);
    // One command has claimed its block; the others wait for their data.
    let at_the_store =
        SteppedTask::new(&fixture, &fixture.nexus, write(1), vec![1; 512]).until_it_has_its_buffers(&fixture);
    let late = SteppedTask::new(&fixture, &fixture.nexus, write(2), vec![2; 512]);
    let compares =
        SteppedTask::new(&fixture, &fixture.nexus, cdb(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1]), vec![0; 1024]);
    let (command, list) = overwrite(0, 0x01, &[9]);
    let mut sanitize = SteppedTask::new(&fixture, &fixture.nexus, cdb(&command), list);
    while !sanitize.waits() {
        sanitize = sanitize.go_on(&fixture).continue_value().unwrap();
    }
    while fixture.step_background() {}
    assert!(fixture.seen().is_empty(), "it waits for the first write");
    let [late, compares] = [late, compares].map(|command| command.until_it_has_its_buffers(&fixture));
    assert_eq!(at_the_store.finish(&fixture).status, Status::GOOD);
    fixture.finish_background();
    for command in [late, compares] {
        assert_eq!(code(sense(&command.finish(&fixture))), IN_PROGRESS, "though it is over by now");
    }
    assert_eq!(sanitize.finish(&fixture).status, Status::GOOD);
    assert!(holds_only(&fixture, 9));
}

#[test]
fn a_failed_sanitize_refuses_medium_access_of_every_nexus() {
    let fixture = Fixture::new(THIN);
    let fail = || *fixture.store.fails.lock().unwrap() = Some(StoreError::NoSpace);
    fail();
    assert_eq!(code(fixture.refused(&sanitize(BLOCK_ERASE), &[])), HAS_FAILED);
    for refused in [&[0x00][..], &READ, &[0x25]] {
        assert_eq!(code(fixture.refused(refused, &[])), HAS_FAILED);
    }
    assert_eq!(code(requested(&fixture)), HAS_FAILED);
    assert_eq!(fixture.run(&[0x12, 0, 0, 0, 96], &[]).status, Status::GOOD);
    let exit = fixture.refused(&sanitize(EXIT_FAILURE_MODE), &[]);
    assert_eq!((exit.code, exit.field), (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(1).bit(4))));
    assert_eq!(fixture.refused(&sanitize(AUSE | BLOCK_ERASE), &[]).field, Some(FieldPointer::cdb(1).bit(5)));
    assert_eq!(fixture.run(&sanitize(BLOCK_ERASE), &[]).status, Status::GOOD);
    assert_eq!(fixture.run(&READ, &[]).status, Status::GOOD);
    fail();
    assert_eq!(code(fixture.refused(&sanitize(AUSE | BLOCK_ERASE), &[])), HAS_FAILED);
    assert_eq!(fixture.run(&sanitize(EXIT_FAILURE_MODE), &[]).status, Status::GOOD);
    assert_eq!(fixture.run(&READ, &[]).status, Status::GOOD);
}

#[test]
fn it_goes_on_after_a_restart() {
    let state: Arc<TestState> = Arc::default();
    let fixture = Fixture::after(THIN, &state);
    good(&fixture, overwrite(IMMED, 0x83, &[0xf0]));
    fixture.seen();
    while fixture.seen().iter().all(|seen| seen.kind != OpKind::Flush) {
        assert!(fixture.step_background());
    }
    // The next step saves the first pass.
    fixture.step_background();
    drop(fixture);

    let fixture = Fixture::after(THIN, &state);
    fill(&fixture);
    assert_eq!(code(fixture.refused(&READ, &[])), IN_PROGRESS, "before it is resumed");
    fixture.resume_background();
    assert!(fixture.device.background().is_empty(), "once is enough");
    fixture.seen();
    fixture.finish_background();
    assert_eq!(fixture.seen().iter().filter(|seen| seen.kind == OpKind::Write).count(), 2, "of three passes");
    assert!(holds_only(&fixture, 0xf0));
    assert_eq!(fixture.run(&READ, &[]).status, Status::GOOD);
    assert!(state.values.lock().unwrap().is_empty());
    assert!(Fixture::after(THIN, &state).device.background().is_empty());
}

#[test]
fn it_is_recorded_now_and_then_and_not_more_often() {
    const MIB: u64 = 1 << 20;
    let large = Medium { len_bytes: 4 * MIB, ..THIN };
    let state: Arc<TestState> = Arc::default();
    let fixture = Fixture::after(large, &state);
    good(&fixture, overwrite(IMMED, 0x01, &[1]));
    let writes = || fixture.store.seen.lock().unwrap().iter().filter(|seen| seen.kind == OpKind::Write).count();
    while writes() < 2 {
        assert!(fixture.step_background());
    }
    let recorded = state.values.lock().unwrap().clone();
    fixture.now_ms.fetch_add(1000, Ordering::Relaxed);
    while writes() < 3 {
        assert!(fixture.step_background());
    }
    assert!(fixture.seen().iter().all(|seen| seen.kind != OpKind::Flush), "not within the second");
    assert_eq!(*state.values.lock().unwrap(), recorded);
    // A flush, then the checkpoint.
    assert!(fixture.step_background() && fixture.step_background());
    assert_eq!(fixture.seen().iter().map(|seen| seen.kind).collect::<Vec<_>>(), [OpKind::Flush]);
    drop(fixture);
    let fixture = Fixture::after(large, &state);
    fixture.resume_background();
    fixture.seen();
    fixture.finish_background();
    let first = fixture.seen().first().map(|seen| (seen.kind, seen.offset));
    assert_eq!(first, Some((OpKind::Write, 3 * MIB)));
}

#[test]
fn a_failure_survives_a_restart() {
    for (flags, exit) in [(0, Status::CHECK_CONDITION), (AUSE, Status::GOOD)] {
        let state: Arc<TestState> = Arc::default();
        let fixture = Fixture::after(THIN, &state);
        *fixture.store.fails.lock().unwrap() = Some(StoreError::NoSpace);
        fixture.refused(&sanitize(flags | BLOCK_ERASE), &[]);
        let fixture = Fixture::after(THIN, &state);
        assert!(fixture.device.background().is_empty());
        assert_eq!(code(fixture.refused(&READ, &[])), HAS_FAILED);
        assert_eq!(fixture.run(&sanitize(EXIT_FAILURE_MODE), &[]).status, exit);
        let fixture = Fixture::after(THIN, &state);
        assert_eq!(fixture.run(&READ, &[]).status, exit);
    }
}

#[test]
fn the_record_of_an_operation_outlives_the_exit_from_an_earlier_failure() {
    let state: Arc<TestState> = Arc::default();
    let fixture = Fixture::after(THIN, &state);
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    fixture.run_on(&other, [0; 8], cdb(&[]), &[]);
    *fixture.store.fails.lock().unwrap() = Some(StoreError::NoSpace);
    assert_eq!(code(fixture.refused(&sanitize(AUSE | BLOCK_ERASE), &[])), HAS_FAILED);
    let exit = SteppedTask::new(&fixture, &fixture.nexus, cdb(&sanitize(EXIT_FAILURE_MODE)), Vec::new());
    let exit = exit.until_it_saves(&fixture);
    let begun = fixture.run_on(&other, [0; 8], cdb(&sanitize(IMMED | BLOCK_ERASE)), &[]);
    assert_eq!(begun.status, Status::GOOD);
    assert_eq!(exit.finish(&fixture).status, Status::GOOD);
    assert!(fixture.unit.is_being_sanitized());
    let restarted = Fixture::after(THIN, &state);
    assert!(restarted.unit.is_being_sanitized());
    assert_eq!(restarted.device.background().len(), 1);
}

#[test]
fn an_operation_that_cannot_be_saved_does_not_begin() {
    let state: Arc<TestState> = Arc::default();
    let fixture = Fixture::after(THIN, &state);
    fill(&fixture);
    *state.broken.lock().unwrap() = true;
    for flags in [0, IMMED] {
        let sense = fixture.refused(&sanitize(flags | BLOCK_ERASE), &[]);
        assert_eq!(code(sense), (SenseKey::HARDWARE_ERROR, AdditionalSense::INTERNAL_TARGET_FAILURE));
    }
    assert!(holds_only(&fixture, 0x5a));
    assert_eq!(fixture.run(&READ, &[]).status, Status::GOOD);
}

/// Otherwise a restart would sanitize data written after the operation.
#[test]
fn an_end_that_cannot_be_recorded_is_a_failure() {
    let state: Arc<TestState> = Arc::default();
    let fixture = Fixture::after(THIN, &state);
    good(&fixture, (sanitize(IMMED | BLOCK_ERASE), Vec::new()));
    *state.broken.lock().unwrap() = true;
    fixture.finish_background();
    assert_eq!(code(fixture.refused(&READ, &[])), HAS_FAILED);
}

#[test]
fn overwriting_is_no_quicker_than_it_may_be() {
    let fixture = Fixture::new(Medium { len_bytes: 4 << 20, sanitize_rate: Some(64 << 20), ..THIN });
    good(&fixture, overwrite(0, 0x01, &[9]));
    assert_eq!(*fixture.paused.lock().unwrap(), Duration::from_micros(62_500), "4 MiB at 64 MiB/s");
    assert!(holds_only(&fixture, 9));
    let config = LogicalUnitConfig { sanitize_rate: Some(1000), ..fixture.unit.config().clone() };
    assert_eq!(LogicalUnit::new(config).err(), Some(LogicalUnitError::SanitizeRate(1000)));
}
