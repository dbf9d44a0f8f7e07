//! TARGET COLD RESET ends all sessions of its target, and no others.

use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Answer};

use crate::common::{Initiator, Outcome, Port, TARGET, Target, device, memory, start_held_write};

const OTHER: &str = "iqn.2026-11.org.example:other";

#[test]
fn all_connections_of_the_target_are_closed() {
    let target = Target::of(vec![device(TARGET, vec![memory()]), device(OTHER, vec![memory()])], |_| {});
    let mut a = Initiator::attach(&target, Port::A);
    let b = Initiator::attach(&target, Port::B);
    let mut elsewhere = Initiator::attach(&target, Port { target: OTHER, ..Port::A });
    let reset = a.start_management(Function::TARGET_COLD_RESET, 0, None);
    assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
    a.wait_for_end();
    b.wait_for_end();
    target.wait_until("the end of the sessions", |now| now.sessions == 1);
    assert!(elsewhere.test_unit_ready(0).good().is_empty());
}

#[test]
fn answers_of_other_connections_come_first() {
    let target = Target::over(vec![memory()]);
    let mut a = Initiator::log_in(&target, Port::A, &[("MaxConnections", "2")]);
    assert_eq!(a.test_unit_ready(0).sense(), Outcome::POWER_ON);
    let mut b = a.join(&target, Port::A, 1);
    b.cmd_sn = a.cmd_sn;
    let read = b.start_read(0, 0, 8);
    // The read is answered when this is.
    a.cmd_sn = b.cmd_sn;
    a.test_unit_ready(0).good();
    let reset = a.start_management(Function::TARGET_COLD_RESET, 0, None);
    a.round_trip();
    a.round_trip();
    assert!(!a.has_answer(reset), "the read has not been acknowledged");
    assert_eq!(b.finish(read).good().len(), 4096);
    // With several cores it comes when all have ended the tasks that they have, which may be now.
    b.answer_first_ping();
    assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
    a.wait_for_end();
    b.wait_for_end();
}

#[test]
fn also_when_the_one_who_asked_goes_away_before_the_stores_are_done() {
    let (target, delay) = Target::over_delay();
    let mut a = Initiator::attach(&target, Port::A);
    let b = Initiator::attach(&target, Port::B);
    start_held_write(&mut a, &delay);
    a.start_management(Function::TARGET_COLD_RESET, 0, None);
    a.round_trip();
    drop(a);
    target.wait_until("the loss", |now| now.connections == 1);
    delay.release();
    b.wait_for_end();
    target.wait_until("the end of all", |now| now.sessions == 0 && now.tasks == 0);
}

#[test]
fn another_request_that_is_answered_with_it_does_not_undo_it() {
    let (target, delay) = Target::over_delay();
    let mut a = Initiator::attach(&target, Port::A);
    let b = Initiator::attach(&target, Port::B);
    let write = start_held_write(&mut a, &delay);
    let reset = a.start_management(Function::TARGET_COLD_RESET, 0, None);
    // It waits for the same store.
    a.start_management(Function::ABORT_TASK, 0, Some(write));
    a.round_trip();
    delay.release();
    assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
    b.wait_for_end();
    target.wait_until("the end of all", |now| now.sessions == 0 && now.tasks == 0);
}
