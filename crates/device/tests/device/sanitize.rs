//! SANITIZE: what it does to the medium, to other commands, and over failures and restarts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lunette_device::{LogicalUnit, LogicalUnitConfig, LogicalUnitError};
use lunette_scsi::{AdditionalSense, FieldPointer, SenseData, SenseKey, Status};
use lunette_store::{Capabilities, OpKind, StoreError};

use crate::alone::Slow;
use crate::rig::{Medium, Rig, Seen, THIN, TestState, cdb, code, name, sense};

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

/// SANITIZE, OVERWRITE, and its list.
fn overwrite(flags: u8, first: u8, pattern: &[u8]) -> ([u8; 10], Vec<u8>) {
    let [high, low] = (pattern.len() as u16).to_be_bytes();
    let list = [&[first, 0, high, low], pattern].concat();
    let [list_high, list_low] = (list.len() as u16).to_be_bytes();
    ([0x48, flags | 1, 0, 0, 0, 0, 0, list_high, list_low, 0], list)
}

fn good(rig: &Rig, (cdb, list): ([u8; 10], Vec<u8>)) {
    let response = rig.run(&cdb, &list);
    assert_eq!(response.status, Status::GOOD, "{response:?}");
}

/// The sense data that REQUEST SENSE returns.
fn requested(rig: &Rig) -> SenseData {
    SenseData::decode(&rig.read(&[0x03, 0, 0, 0, 252, 0])).unwrap()
}

fn fill(rig: &Rig) {
    rig.store.bytes.lock().unwrap().fill(0x5a);
}

fn holds_only(rig: &Rig, byte: u8) -> bool {
    rig.store.bytes.lock().unwrap().iter().all(|found| *found == byte)
}

#[test]
fn every_block_is_overwritten_with_the_pattern() {
    let rig = Rig::new(THIN);
    good(&rig, overwrite(0, 0x01, &[1, 2, 3]));
    let bytes = rig.bytes(0, 1024 * 512);
    assert!(bytes.chunks(512).all(|block| block.iter().zip([1, 2, 3].iter().cycle()).all(|(a, b)| a == b)));
    good(&rig, overwrite(0, 0x01, &[7; 512]));
    assert!(holds_only(&rig, 7));
    assert_eq!(rig.run(&READ, &[]).status, Status::GOOD);
}

#[test]
fn each_pass_is_on_stable_storage_before_the_next() {
    let rig = Rig::new(THIN);
    rig.seen();
    good(&rig, overwrite(0, 0x82, &[0x0f]));
    let seen = |kind, len| Seen { kind, offset: 0, len, fua: false };
    let pass = [seen(OpKind::Write, 1024 * 512), seen(OpKind::Flush, 0)];
    assert_eq!(rig.seen(), [pass, pass].concat());
    assert!(holds_only(&rig, 0x0f), "INVERT leaves the pattern itself");
}

#[test]
fn erased_blocks_read_as_zero_and_are_free() {
    for action in [BLOCK_ERASE, CRYPTOGRAPHIC_ERASE] {
        let rig = Rig::new(THIN);
        fill(&rig);
        assert_eq!(rig.run(&sanitize(action), &[]).status, Status::GOOD);
        assert!(holds_only(&rig, 0));
        assert_eq!(rig.seen().last().map(|seen| seen.kind), Some(OpKind::Flush));
    }
}

#[test]
fn units_have_the_erasures_that_their_store_can_do() {
    let characteristics = |rig: &Rig| rig.read(&[0x12, 1, 0xb1, 0, 64])[7];
    let thin = Rig::new(THIN);
    assert_eq!(characteristics(&thin), 0x50);
    let capabilities = Capabilities { unmap: false, memory: false, ..THIN.capabilities };
    let thick = Rig::new(Medium { capabilities, ..THIN });
    assert_eq!(characteristics(&thick), 0);
    for action in [0, BLOCK_ERASE, CRYPTOGRAPHIC_ERASE, 4] {
        assert_eq!(thick.refused(&sanitize(action), &[]).field, Some(FieldPointer::cdb(1).bit(4)), "{action}");
    }
    good(&thick, overwrite(0, 1, &[1]));
}

#[test]
fn bad_fields_have_their_sense_codes() {
    let rig = Rig::new(THIN);
    fill(&rig);
    for (list_len, field) in [(4, 7), (517, 7)] {
        let (mut cdb, list) = overwrite(0, 1, &[0; 512]);
        cdb[7..9].copy_from_slice(&u16::to_be_bytes(list_len));
        let sense = rig.refused(&cdb, &[&list[..], &[0]].concat());
        assert_eq!((sense.code, sense.field), (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(field))));
    }
    let (cdb, list) = overwrite(0, 0, &[0; 512]);
    assert_eq!(rig.refused(&cdb, &list).field, Some(FieldPointer::data(0).bit(4)));
    let sense = rig.refused(&cdb, &list[..3]);
    assert_eq!(sense.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let znr = rig.refused(&overwrite(0x40, 1, &[0]).0, &[]);
    assert_eq!(znr.field, Some(FieldPointer::cdb(1).bit(6)), "ZNR");
    for action in [BLOCK_ERASE, CRYPTOGRAPHIC_ERASE, EXIT_FAILURE_MODE] {
        let mut cdb = sanitize(action);
        cdb[8] = 8;
        assert_eq!(rig.refused(&cdb, &[0; 8]).field, Some(FieldPointer::cdb(8).bit(3)));
    }
    assert!(holds_only(&rig, 0x5a));
    assert_eq!(rig.run(&sanitize(EXIT_FAILURE_MODE), &[]).status, Status::GOOD, "nothing to exit from");
}

#[test]
fn protected_media_are_not_sanitized() {
    let rig = Rig::new(Medium { read_only: true, ..THIN });
    for action in [BLOCK_ERASE, CRYPTOGRAPHIC_ERASE] {
        assert_eq!(rig.refused(&sanitize(action), &[]).key, SenseKey::DATA_PROTECT);
    }
}

#[test]
fn while_it_runs_the_medium_is_not_ready_and_progress_is_reported() {
    let rig = Rig::new(THIN);
    fill(&rig);
    assert!(!rig.unit.is_being_sanitized());
    good(&rig, overwrite(IMMED, 0x03, &[9]));
    assert!(rig.unit.is_being_sanitized());
    for refused in [&[0x00][..], &READ, &[0x25], &[0x1b, 0, 0, 0, 1], &[0x15, 0x10], &sanitize(EXIT_FAILURE_MODE)] {
        assert_eq!(code(rig.refused(refused, &[])), IN_PROGRESS, "{refused:x?}");
    }
    let (cdb, list) = overwrite(0, 1, &[1]);
    assert_eq!(code(rig.refused(&cdb, &list)), IN_PROGRESS);
    for passes in [
        &[0x12, 0, 0, 0, 96][..],
        &[0xa0, 0, 0, 0, 0, 0, 0, 0, 16],
        &[0x1a, 0, 8, 0, 64],
        &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0, 8],
    ] {
        assert_eq!(rig.run(passes, &[]).status, Status::GOOD, "{passes:x?}");
    }
    let mut told = Vec::new();
    while rig.step_background() {
        let sense = requested(&rig);
        if let Some(progress) = sense.progress {
            assert_eq!(code(sense), IN_PROGRESS);
            told.push(progress);
        }
    }
    told.dedup();
    assert_eq!(told, [0, 0x5555, 0xaaaa, 0xffff]);
    assert_eq!(requested(&rig).key, SenseKey::NO_SENSE);
    assert_eq!(rig.run(&READ, &[]).status, Status::GOOD);
    assert!(holds_only(&rig, 9) && !rig.unit.is_being_sanitized());
}

#[test]
fn neither_a_reset_nor_the_loss_of_the_nexus_ends_it() {
    let rig = Rig::new(THIN);
    let other = rig.device.attach(name("iqn.2026-11.host:b"));
    rig.run_on(&other, [0; 8], cdb(&[]), &[]);
    rig.run_on(&other, [0; 8], cdb(&sanitize(IMMED | BLOCK_ERASE)), &[]);
    drop(other);
    rig.device.reset_target();
    while code(rig.refused(&[0x00], &[])).0 == SenseKey::UNIT_ATTENTION {}
    assert_eq!(code(rig.refused(&[0x00], &[])), IN_PROGRESS);
    rig.finish_background();
    assert_eq!(rig.run(&[0x00], &[]).status, Status::GOOD);
}

/// A command that has asked for a sanitize operation may be aborted; the operation may not.
#[test]
fn an_aborted_command_leaves_the_operation_behind() {
    let rig = Rig::new(THIN);
    fill(&rig);
    let mut command = Slow::new(&rig, &rig.nexus, cdb(&sanitize(BLOCK_ERASE)), Vec::new());
    while !command.waits() {
        command = command.go_on(&rig).continue_value().unwrap();
    }
    drop(command);
    assert_eq!(code(rig.refused(&[0x00], &[])), IN_PROGRESS);
    rig.finish_background();
    assert!(holds_only(&rig, 0));
}

#[test]
fn none_begins_on_a_unit_that_is_to_go() {
    let rig = Rig::new(THIN);
    assert!(rig.unit.prepare_removal());
    let absent = (SenseKey::ILLEGAL_REQUEST, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    assert_eq!(code(rig.refused(&sanitize(BLOCK_ERASE), &[])), absent);
    rig.unit.cancel_removal();
    assert_eq!(rig.run(&sanitize(IMMED | BLOCK_ERASE), &[]).status, Status::GOOD);
    assert!(!rig.unit.prepare_removal(), "one runs");
    rig.finish_background();
    assert!(rig.unit.prepare_removal());
}

#[test]
fn commands_that_came_before_do_not_write_after() {
    let rig = Rig::new(THIN);
    let write = |lba| cdb(&[0x2a, 0, 0, 0, 0, lba, 0, 0, 1, 0]);
    // One has claimed its block; the others wait for their data.
    let at_the_store = Slow::new(&rig, &rig.nexus, write(1), vec![1; 512]).until_it_has_its_buffers(&rig);
    let late = Slow::new(&rig, &rig.nexus, write(2), vec![2; 512]);
    let compares = Slow::new(&rig, &rig.nexus, cdb(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1]), vec![0; 1024]);
    let (command, list) = overwrite(0, 0x01, &[9]);
    let mut sanitize = Slow::new(&rig, &rig.nexus, cdb(&command), list);
    while !sanitize.waits() {
        sanitize = sanitize.go_on(&rig).continue_value().unwrap();
    }
    while rig.step_background() {}
    assert!(rig.seen().is_empty(), "it waits for the first write");
    let [late, compares] = [late, compares].map(|command| command.until_it_has_its_buffers(&rig));
    assert_eq!(at_the_store.finish(&rig).status, Status::GOOD);
    rig.finish_background();
    for command in [late, compares] {
        assert_eq!(code(sense(&command.finish(&rig))), IN_PROGRESS, "though it is over by now");
    }
    assert_eq!(sanitize.finish(&rig).status, Status::GOOD);
    assert!(holds_only(&rig, 9));
}

#[test]
fn a_failed_sanitize_refuses_medium_access_of_every_nexus() {
    let rig = Rig::new(THIN);
    let fail = || *rig.store.fails.lock().unwrap() = Some(StoreError::NoSpace);
    fail();
    assert_eq!(code(rig.refused(&sanitize(BLOCK_ERASE), &[])), HAS_FAILED);
    for refused in [&[0x00][..], &READ, &[0x25]] {
        assert_eq!(code(rig.refused(refused, &[])), HAS_FAILED);
    }
    assert_eq!(code(requested(&rig)), HAS_FAILED);
    assert_eq!(rig.run(&[0x12, 0, 0, 0, 96], &[]).status, Status::GOOD);
    let exit = rig.refused(&sanitize(EXIT_FAILURE_MODE), &[]);
    assert_eq!((exit.code, exit.field), (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(1).bit(4))));
    assert_eq!(rig.refused(&sanitize(AUSE | BLOCK_ERASE), &[]).field, Some(FieldPointer::cdb(1).bit(5)));
    assert_eq!(rig.run(&sanitize(BLOCK_ERASE), &[]).status, Status::GOOD);
    assert_eq!(rig.run(&READ, &[]).status, Status::GOOD);
    fail();
    assert_eq!(code(rig.refused(&sanitize(AUSE | BLOCK_ERASE), &[])), HAS_FAILED);
    assert_eq!(rig.run(&sanitize(EXIT_FAILURE_MODE), &[]).status, Status::GOOD);
    assert_eq!(rig.run(&READ, &[]).status, Status::GOOD);
}

#[test]
fn it_goes_on_after_a_restart() {
    let state: Arc<TestState> = Arc::default();
    let rig = Rig::after(THIN, &state);
    good(&rig, overwrite(IMMED, 0x83, &[0xf0]));
    rig.seen();
    while rig.seen().iter().all(|seen| seen.kind != OpKind::Flush) {
        assert!(rig.step_background());
    }
    // The first pass is recorded by the next step.
    rig.step_background();
    drop(rig);

    let rig = Rig::after(THIN, &state);
    fill(&rig);
    assert_eq!(code(rig.refused(&READ, &[])), IN_PROGRESS, "before it is resumed");
    rig.resume_background();
    assert!(rig.device.background().is_empty(), "once is enough");
    rig.seen();
    rig.finish_background();
    assert_eq!(rig.seen().iter().filter(|seen| seen.kind == OpKind::Write).count(), 2, "of three passes");
    assert!(holds_only(&rig, 0xf0));
    assert_eq!(rig.run(&READ, &[]).status, Status::GOOD);
    assert!(state.values.lock().unwrap().is_empty());
    assert!(Rig::after(THIN, &state).device.background().is_empty());
}

#[test]
fn it_is_recorded_now_and_then_and_not_more_often() {
    const MIB: u64 = 1 << 20;
    let large = Medium { len_bytes: 4 * MIB, ..THIN };
    let state: Arc<TestState> = Arc::default();
    let rig = Rig::after(large, &state);
    good(&rig, overwrite(IMMED, 0x01, &[1]));
    let writes = || rig.store.seen.lock().unwrap().iter().filter(|seen| seen.kind == OpKind::Write).count();
    while writes() < 2 {
        assert!(rig.step_background());
    }
    let recorded = state.values.lock().unwrap().clone();
    rig.now_ms.fetch_add(1000, Ordering::Relaxed);
    while writes() < 3 {
        assert!(rig.step_background());
    }
    assert!(rig.seen().iter().all(|seen| seen.kind != OpKind::Flush), "not within the second");
    assert_eq!(*state.values.lock().unwrap(), recorded);
    // A flush, then the record.
    assert!(rig.step_background() && rig.step_background());
    assert_eq!(rig.seen().iter().map(|seen| seen.kind).collect::<Vec<_>>(), [OpKind::Flush]);
    drop(rig);
    let rig = Rig::after(large, &state);
    rig.resume_background();
    rig.seen();
    rig.finish_background();
    let first = rig.seen().first().map(|seen| (seen.kind, seen.offset));
    assert_eq!(first, Some((OpKind::Write, 3 * MIB)));
}

#[test]
fn a_failure_survives_a_restart() {
    for (flags, exit) in [(0, Status::CHECK_CONDITION), (AUSE, Status::GOOD)] {
        let state: Arc<TestState> = Arc::default();
        let rig = Rig::after(THIN, &state);
        *rig.store.fails.lock().unwrap() = Some(StoreError::NoSpace);
        rig.refused(&sanitize(flags | BLOCK_ERASE), &[]);
        let rig = Rig::after(THIN, &state);
        assert!(rig.device.background().is_empty());
        assert_eq!(code(rig.refused(&READ, &[])), HAS_FAILED);
        assert_eq!(rig.run(&sanitize(EXIT_FAILURE_MODE), &[]).status, exit);
        let rig = Rig::after(THIN, &state);
        assert_eq!(rig.run(&READ, &[]).status, exit);
    }
}

#[test]
fn an_operation_that_cannot_be_saved_does_not_begin() {
    let state: Arc<TestState> = Arc::default();
    let rig = Rig::after(THIN, &state);
    fill(&rig);
    *state.broken.lock().unwrap() = true;
    for flags in [0, IMMED] {
        let sense = rig.refused(&sanitize(flags | BLOCK_ERASE), &[]);
        assert_eq!(code(sense), (SenseKey::HARDWARE_ERROR, AdditionalSense::INTERNAL_TARGET_FAILURE));
    }
    assert!(holds_only(&rig, 0x5a));
    assert_eq!(rig.run(&READ, &[]).status, Status::GOOD);
}

/// Else a restart would sanitize what was written after it.
#[test]
fn an_end_that_cannot_be_recorded_is_a_failure() {
    let state: Arc<TestState> = Arc::default();
    let rig = Rig::after(THIN, &state);
    good(&rig, (sanitize(IMMED | BLOCK_ERASE), Vec::new()));
    *state.broken.lock().unwrap() = true;
    rig.finish_background();
    assert_eq!(code(rig.refused(&READ, &[])), HAS_FAILED);
}

#[test]
fn overwriting_is_no_quicker_than_it_may_be() {
    let rig = Rig::new(Medium { len_bytes: 4 << 20, sanitize_rate: Some(64 << 20), ..THIN });
    good(&rig, overwrite(0, 0x01, &[9]));
    assert_eq!(*rig.paused.lock().unwrap(), Duration::from_micros(62_500), "4 MiB at 64 MiB/s");
    assert!(holds_only(&rig, 9));
    let config = LogicalUnitConfig { sanitize_rate: Some(1000), ..rig.unit.config().clone() };
    assert_eq!(LogicalUnit::new(config).err(), Some(LogicalUnitError::SanitizeRate(1000)));
}
