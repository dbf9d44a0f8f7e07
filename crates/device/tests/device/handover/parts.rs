//! The parts of a unit that go over to its successor, one by one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lunette_device::{CommandKind, HoldUp, Nexus, Response};
use lunette_scsi::{AdditionalSense, SenseKey, Status};
use lunette_state::StateStore;
use lunette_store::{Space, StoreError};

use super::{Successor, handover};
use crate::fixture::{Fixture, Medium, THIN, TestState, cdb, code, name, sense};
use crate::tokens::{populate, write};

const READ: &[u8] = &[0x28, 0, 0, 0, 0, 0, 0, 0, 1];
const WRITE: &[u8] = &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1];
const B: &str = "iqn.2026-11.host:b";
const C: &str = "iqn.2026-11.host:c";

fn run(fixture: &Fixture, nexus: &Nexus, bytes: &[u8]) -> Response {
    fixture.run_on(nexus, [0; 8], cdb(bytes), &[0; 512])
}

fn status(fixture: &Fixture, nexus: &Nexus, bytes: &[u8]) -> Status {
    run(fixture, nexus, bytes).status
}

/// PERSISTENT RESERVE OUT, which succeeds.
fn out(fixture: &Fixture, nexus: &Nexus, action: u8, kind: u8, keys: [u64; 2], flags: u8) {
    let mut list = [keys[0].to_be_bytes(), keys[1].to_be_bytes(), [0; 8]].concat();
    list[20] = flags;
    let response = fixture.run_on(nexus, [0; 8], cdb(&[0x5f, action, kind, 0, 0, 0, 0, 0, 24]), &list);
    assert_eq!(response.status, Status::GOOD, "{response:?}");
}

/// The pending unit attentions.
pub(super) fn attentions(fixture: &Fixture, nexus: &Nexus) -> Vec<AdditionalSense> {
    let next = || run(fixture, nexus, &[0x03, 0, 0, 0, 252]).data_in.to_vec();
    let decoded = std::iter::repeat_with(next).map(|data| lunette_scsi::SenseData::decode(&data).unwrap());
    decoded.take_while(|sense| sense.key == SenseKey::UNIT_ATTENTION).map(|sense| sense.code).collect()
}

/// A nexus that has heard of all.
pub(super) fn attach(fixture: &Fixture, initiator: &str) -> Nexus {
    let nexus = fixture.device.attach(name(initiator));
    attentions(fixture, &nexus);
    nexus
}

#[test]
fn registrations_and_each_kind_of_reservation_go_over() {
    for (kind, aptpl) in [1, 3, 5, 6, 7, 8].into_iter().flat_map(|kind| [(kind, 0), (kind, 1)]) {
        let state = Arc::new(TestState::default());
        let fixture = Fixture::after(THIN, &state);
        let (registered, other) = (attach(&fixture, B), attach(&fixture, C));
        out(&fixture, &fixture.nexus, 0, 0, [0, 7], aptpl);
        out(&fixture, &registered, 0, 0, [0, 8], aptpl);
        out(&fixture, &fixture.nexus, 1, kind, [7, 0], 0);
        let saved = state.values.lock().unwrap().clone();
        let (after, nexuses) = Successor::of(&fixture).take_over(&fixture, &[&registered, &other]);
        for action in 0..4 {
            let read_in = [0x5e, action, 0, 0, 0, 0, 0, 0x10, 0];
            assert_eq!(after.read(&read_in), fixture.read(&read_in), "{kind} {aptpl} {action}");
        }
        let come = [&after.nexus, &nexuses[0], &nexuses[1]];
        for (before, come) in [&fixture.nexus, &registered, &other].into_iter().zip(come) {
            for bytes in [READ, WRITE, &[0x00]] {
                assert_eq!(status(&after, come, bytes), status(&fixture, before, bytes), "{kind} {bytes:?}");
            }
        }
        assert_eq!(status(&after, &nexuses[1], WRITE), Status::RESERVATION_CONFLICT);
        assert_eq!(*state.values.lock().unwrap(), saved, "inheriting saves nothing");
        // The holder goes on with it, and what is not to survive does not.
        out(&after, &after.nexus, 2, kind, [7, 0], 0);
        assert_eq!(status(&after, &nexuses[1], WRITE), Status::GOOD);
        assert_eq!(Fixture::after(THIN, &state).read(&[0x5e, 0, 0, 0, 0, 0, 0, 0x10, 0])[7], 16 * aptpl);
    }
}

#[test]
fn a_reserve_ends_when_the_session_of_its_nexus_does_not_go_over() {
    for goes_over in [true, false] {
        let fixture = Fixture::new(THIN);
        let other = attach(&fixture, B);
        assert_eq!(status(&fixture, &fixture.nexus, &[0x16]), Status::GOOD);
        let (after, others) = Successor::of(&fixture).take_over(&fixture, &[&other]);
        let going_on = [fixture.nexus.name().clone()];
        after.unit.lose_all_but(if goes_over { &going_on } else { &[] });
        let expected = if goes_over { Status::RESERVATION_CONFLICT } else { Status::GOOD };
        assert_eq!(status(&after, &others[0], WRITE), expected);
    }
}

#[test]
fn a_reserve_goes_over_and_ends_with_its_nexus() {
    let fixture = Fixture::new(THIN);
    let holder = attach(&fixture, B);
    assert_eq!(status(&fixture, &holder, &[0x16]), Status::GOOD);
    let (after, mut nexuses) = Successor::of(&fixture).take_over(&fixture, &[&holder]);
    drop(holder);
    assert_eq!(status(&after, &after.nexus, READ), Status::RESERVATION_CONFLICT);
    assert_eq!(status(&after, &nexuses[0], READ), Status::GOOD);
    nexuses.clear();
    assert_eq!(status(&after, &after.nexus, READ), Status::GOOD);
}

/// MODE SELECT of a page with other bits in the byte `at`.
fn select(fixture: &Fixture, saves: u8, page: u8, at: usize, flip: u8) {
    let mut list = fixture.read(&[0x1a, 0x08, page, 0, 255]);
    (list[0], list[2]) = (0, 0);
    list[4] &= 0x7f;
    list[6 + at] ^= flip;
    assert_eq!(fixture.run(&[0x15, 0x10 | saves, 0, 0, list.len() as u8], &list).status, Status::GOOD);
}

#[test]
fn current_mode_pages_go_over_and_saved_ones_stay_saved() {
    const D_SENSE: u8 = 4;
    const SWP: u8 = 8;
    const WCE: u8 = 4;
    let state = Arc::new(TestState::default());
    let fixture = Fixture::after(THIN, &state);
    let other = attach(&fixture, B);
    select(&fixture, 1, 0x08, 0, WCE);
    select(&fixture, 0, 0x0a, 2, SWP);
    select(&fixture, 0, 0x0a, 0, D_SENSE);
    attentions(&fixture, &other);
    let saved = state.values.lock().unwrap().clone();
    let (after, nexuses) = Successor::of(&fixture).take_over(&fixture, &[&other]);
    for control in [0x00, 0x40, 0x80, 0xc0] {
        let mode_sense = [0x1a, 0x08, control | 0x3f, 0xff, 255];
        assert_eq!(after.read(&mode_sense), fixture.read(&mode_sense), "{control}");
    }
    let response = after.run(WRITE, &[0; 512]);
    assert_eq!(response.sense.as_ref().unwrap()[0], 0x72, "descriptor sense data");
    assert_eq!(sense(&response).code, AdditionalSense::SOFTWARE_WRITE_PROTECTED);
    assert_eq!(attentions(&after, &nexuses[0]), []);
    assert_eq!(*state.values.lock().unwrap(), saved, "inheriting saves nothing");
    after.device.reset_target();
    attentions(&after, &after.nexus);
    assert_eq!(after.run(WRITE, &[0; 512]).status, Status::GOOD, "a reset restores what is saved");
    assert_eq!(after.read(&[0x1a, 0x08, 0x08, 0, 255])[6] & WCE, 0);
}

#[test]
fn an_ejected_medium_stays_ejected_and_a_prevented_one_loaded() {
    const EJECT: &[u8] = &[0x1b, 0, 0, 0, 0x02, 0];
    let fixture = Fixture::new(Medium { removable: true, ..THIN });
    let other = attach(&fixture, B);
    assert_eq!(status(&fixture, &other, &[0x1e, 0, 0, 0, 1]), Status::GOOD);
    let (after, nexuses) = Successor::of(&fixture).take_over(&fixture, &[&other]);
    assert_eq!(code(after.refused(EJECT, &[])).1, AdditionalSense::MEDIUM_REMOVAL_PREVENTED);
    assert_eq!(status(&after, &nexuses[0], &[0x1e, 0, 0, 0, 0]), Status::GOOD);
    assert_eq!(after.run(EJECT, &[]).status, Status::GOOD);
    let (last, _) = Successor::of(&after).take_over(&after, &[]);
    assert_eq!(code(last.refused(READ, &[])).1, AdditionalSense::MEDIUM_NOT_PRESENT);
    let cycles = [0x4d, 0, 0x4e, 0, 0, 0, 0, 1, 0];
    assert_eq!(last.read(&cycles), after.read(&cycles), "ejections");
    // One that is not removable any more cannot be without its medium.
    let (fixed, _) = Successor::with(&after, |config| config.removable = false).take_over(&after, &[]);
    assert_eq!(attentions(&fixed, &fixed.nexus), [AdditionalSense::INQUIRY_DATA_CHANGED]);
    assert_eq!(fixed.run(READ, &[]).status, Status::GOOD);
}

#[test]
fn unit_attentions_keep_their_order_and_none_comes_beside_them() {
    let fixture = Fixture::new(THIN);
    let (told, fresh) = (attach(&fixture, B), fixture.device.attach(name(C)));
    fixture.unit.capacity_changed();
    attentions(&fixture, &fixture.nexus);
    fixture.run(&[0xa4, 0x0f, 0, 0, 0, 0, 0, 0, 0, 12], &[1; 12]);
    let (after, nexuses) = Successor::of(&fixture).take_over(&fixture, &[&told, &fresh]);
    let pending = [AdditionalSense::CAPACITY_DATA_CHANGED, AdditionalSense::TIMESTAMP_CHANGED];
    assert_eq!(attentions(&after, &after.nexus), []);
    assert_eq!(attentions(&after, &nexuses[0]), pending);
    assert_eq!(attentions(&after, &nexuses[1])[0], AdditionalSense::POWER_ON_OR_RESET, "it had not been told yet");
    let timestamp = [0xa3, 0x0f, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(after.read(&timestamp), fixture.read(&timestamp));
}

#[test]
fn what_is_raised_between_attaching_and_inheriting_is_kept() {
    let fixture = Fixture::new(THIN);
    let left = handover(&fixture, &[]);
    let successor = Successor::of(&fixture);
    let nexus = successor.device.attach(fixture.nexus.name().clone());
    successor.unit.capacity_changed();
    nexus.inherit(&left.sessions[0].nexus);
    let after = fixture.successor(successor.device, successor.unit, nexus);
    assert_eq!(attentions(&after, &after.nexus), [AdditionalSense::CAPACITY_DATA_CHANGED]);
}

#[test]
fn a_lost_nexus_that_returns_to_the_successor_has_only_lost_its_connection() {
    let fixture = Fixture::new(THIN);
    drop(attach(&fixture, B));
    let (after, _) = Successor::of(&fixture).take_over(&fixture, &[]);
    let nexus = after.device.attach(name(B));
    assert_eq!(attentions(&after, &nexus), [AdditionalSense::I_T_NEXUS_LOSS]);
    drop(nexus);
    // It has missed a change of the number of blocks.
    let successor = Successor::of(&after);
    let left = handover(&after, &[]);
    after.store.len_bytes.fetch_sub(4096, Ordering::Relaxed);
    successor.unit.inherit(&left.units[0]).unwrap();
    let nexus = successor.device.attach(name(B));
    let last = after.successor(successor.device, successor.unit, nexus);
    assert_eq!(attentions(&last, &last.nexus), [AdditionalSense::POWER_ON_OR_RESET]);
}

#[test]
fn no_number_falls() {
    let fixture = Fixture::new(THIN);
    let other = attach(&fixture, B);
    fixture.read(READ);
    fixture.run(&[0x4c, 0x02, 0x40], &[]);
    attentions(&fixture, &other);
    fixture.run_on(&other, [0; 8], cdb(WRITE), &[0; 512]);
    *fixture.store.fails.lock().unwrap() = Some(StoreError::NoSpace);
    fixture.run(WRITE, &[0; 512]);
    fixture.run(&[0x1b, 0, 0, 0, 0x00], &[]);
    fixture.now_ms.fetch_add(600_000, Ordering::Relaxed);
    let (after, mut nexuses) = Successor::of(&fixture).take_over(&fixture, &[&other]);
    assert_eq!(after.unit.counts(), fixture.unit.counts());
    assert_eq!(after.device.initiator_bytes(), fixture.device.initiator_bytes());
    assert_eq!(after.unit.store_failures(), fixture.unit.store_failures());
    for page in [0x42, 0x43, 0x45, 0x4e, 0x55, 0x59] {
        let log_sense = [0x4d, 0, page, 0, 0, 0, 0, 0x10, 0];
        assert_eq!(after.read(&log_sense), fixture.read(&log_sense), "{page}");
    }
    let before = after.unit.counts();
    after.run_on(&nexuses[0], [0; 8], cdb(WRITE), &[0; 512]);
    assert_eq!(after.unit.counts().commands(CommandKind::Write), before.commands(CommandKind::Write) + 1);
    nexuses.clear();
    assert_eq!(after.device.initiator_bytes()[B].written_bytes, 1024);
}

#[test]
fn a_number_of_a_later_release_is_left_out() {
    let fixture = Fixture::new(THIN);
    let mut left = handover(&fixture, &[]).units.remove(0);
    left.counters.push(("commands.telepathy".into(), 7));
    left.counters.push(("commands.read".into(), u64::MAX));
    let successor = Successor::of(&fixture);
    successor.unit.inherit(&left).unwrap();
    assert_eq!(successor.unit.counts().commands(CommandKind::Flush), 0);
}

#[test]
fn a_threshold_is_not_reported_again() {
    let fixture = Fixture::new(Medium { soft_threshold_bytes: Some(10 << 20), ..THIN });
    let low = Some(Space { used_bytes: 0, free_bytes: 1 << 20 });
    fixture.unit.observe_space(low);
    let reached = AdditionalSense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED;
    assert_eq!(attentions(&fixture, &fixture.nexus), [reached]);
    let (after, _) = Successor::of(&fixture).take_over(&fixture, &[]);
    after.unit.observe_space(low);
    assert_eq!(attentions(&after, &after.nexus), []);
    for free_bytes in [20 << 20, 1 << 20] {
        after.unit.observe_space(Some(Space { used_bytes: 0, free_bytes }));
    }
    assert_eq!(attentions(&after, &after.nexus), [reached]);
}

/// SANITIZE with BLOCK ERASE, IMMED and AUSE.
const SANITIZE: [u8; 10] = [0x48, 0xa2, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn a_sanitize_operation_goes_on_in_the_successor_or_holds_up() {
    for state in [None, Some(Arc::new(TestState::default()) as Arc<dyn StateStore>)] {
        let is_saved = state.is_some();
        let fixture = Fixture::with_state(THIN, state);
        fixture.store.bytes.lock().unwrap().fill(7);
        assert_eq!(fixture.run(&SANITIZE, &[]).status, Status::GOOD);
        let expected = (!is_saved).then_some(HoldUp::Sanitizing);
        assert_eq!(fixture.unit.holds_up_handover(), expected);
        if is_saved {
            let (after, _) = Successor::of(&fixture).take_over(&fixture, &[]);
            assert_eq!(code(after.refused(READ, &[])).1, AdditionalSense::SANITIZE_IN_PROGRESS);
            assert_eq!(after.unit.holds_up_handover(), None, "the next successor can go on with it, too");
            after.resume_background();
            after.finish_background();
            assert_eq!(after.read(READ), [0; 512]);
        } else {
            fixture.finish_background();
            assert_eq!(fixture.unit.holds_up_handover(), None);
        }
    }
}

#[test]
fn a_sanitize_operation_that_is_not_saved_yet_holds_up() {
    let fixture = Fixture::after(THIN, &Arc::default());
    let mut begun = crate::atomic::SteppedTask::new(&fixture, &fixture.nexus, cdb(&SANITIZE), Vec::new());
    while !begun.waits() {
        begun = begun.go_on(&fixture).continue_value().expect("it waits until it is saved");
    }
    assert_eq!(fixture.unit.holds_up_handover(), Some(HoldUp::Sanitizing));
    while fixture.unit.holds_up_handover().is_some() {
        assert!(fixture.step_background());
    }
    assert!(fixture.unit.is_being_sanitized());
}

#[test]
fn a_failed_sanitize_operation_has_failed_in_the_successor() {
    for state in [None, Some(Arc::new(TestState::default()) as Arc<dyn StateStore>)] {
        let fixture = Fixture::with_state(THIN, state);
        assert_eq!(fixture.run(&SANITIZE, &[]).status, Status::GOOD);
        *fixture.store.fails.lock().unwrap() = Some(StoreError::NoSpace);
        fixture.finish_background();
        let (after, _) = Successor::of(&fixture).take_over(&fixture, &[]);
        assert_eq!(code(after.refused(READ, &[])).1, AdditionalSense::SANITIZE_COMMAND_FAILED);
        assert_eq!(after.run(&[0x48, 0x1f], &[]).status, Status::GOOD, "EXIT FAILURE MODE");
        assert_eq!(after.run(READ, &[]).status, Status::GOOD);
    }
}

#[test]
fn a_freeze_holds_up() {
    let fixture = Fixture::new(THIN);
    let frozen = fixture.unit.freeze().unwrap();
    assert_eq!(fixture.unit.holds_up_handover(), Some(HoldUp::Frozen));
    drop(frozen);
    assert_eq!(fixture.unit.holds_up_handover(), None);
}

#[test]
fn rod_tokens_and_the_results_of_copies_go_over() {
    let fixture = Fixture::new(THIN);
    fixture.store.bytes.lock().unwrap()[..2048].fill(5);
    let [good, written, revoked] = [0, 16, 32].map(|lba| populate(&fixture, &[(lba, 4)]));
    assert_eq!(fixture.run(&[0x2a, 0, 0, 0, 0, 32, 0, 0, 1], &[1; 512]).status, Status::GOOD);
    let (after, _) = Successor::of(&fixture).take_over(&fixture, &[]);
    for list_id in [5, 6] {
        let information = [0x84, 7, 0, 0, 0, list_id, 0, 0, 0, 0, 0, 0, 4];
        let [before, after] = [&fixture, &after].map(|fixture| {
            let response = fixture.run(&information, &[]);
            (response.status, response.data_in.to_vec())
        });
        assert_eq!(after, before, "{list_id}");
    }
    assert_eq!(write(&after, &good, 0, &[(8, 4)]), Ok(()));
    assert_eq!(after.bytes(8 * 512, 2048), [5; 2048]);
    assert_eq!(after.run(&[0x2a, 0, 0, 0, 0, 19, 0, 0, 1], &[1; 512]).status, Status::GOOD);
    for token in [&written, &revoked] {
        assert_eq!(write(&after, token, 0, &[(8, 4)]).unwrap_err().code, AdditionalSense::TOKEN_REVOKED);
    }
    // The numbers of tokens go on.
    let (id, next) = (|token: &[u8; 512]| token[8..16].to_vec(), populate(&after, &[(0, 4)]));
    assert!([good, written, revoked].iter().all(|token| id(token) != id(&next)));
    // The time without use goes on, too.
    after.now_ms.fetch_add(59_000, Ordering::Relaxed);
    let (last, _) = Successor::of(&after).take_over(&after, &[]);
    after.now_ms.fetch_add(2_000, Ordering::Relaxed);
    assert_eq!(write(&last, &good, 0, &[(8, 4)]).unwrap_err().code, AdditionalSense::TOKEN_EXPIRED);
    let (empty, _) = Successor::of(&last).take_over(&last, &[]);
    assert_eq!(write(&empty, &good, 0, &[(8, 4)]).unwrap_err().code, AdditionalSense::TOKEN_UNKNOWN);
}

#[test]
fn a_token_of_blocks_that_are_gone_is_unknown() {
    let fixture = Fixture::new(THIN);
    let token = populate(&fixture, &[(1020, 4)]);
    let left = handover(&fixture, &[]);
    fixture.store.len_bytes.fetch_sub(4096, Ordering::Relaxed);
    let Successor { device, unit } = Successor::of(&fixture);
    device.inherit(&left.targets[0]).unwrap();
    let nexus = device.attach(fixture.nexus.name().clone());
    let after = fixture.successor(device, unit, nexus);
    attentions(&after, &after.nexus);
    assert_eq!(write(&after, &token, 0, &[(8, 4)]).unwrap_err().code, AdditionalSense::TOKEN_UNKNOWN);
}
