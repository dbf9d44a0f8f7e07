//! Multi-task aborts: the data that is still under way, the news for others, and response fences (RFC 7143 sections
//! 4.2.2.3 and 4.2.3.3 to 4.2.3.5).

use lunette_pdu::{AsyncEvent, TaskManagementFunction as Function, TaskManagementResponseCode as Answer};

use crate::common::{Initiator, Port, Target, blocks, memory, start_held_write};

const FAST: &[(&str, &str)] = &[("TaskReporting", "FastAbort"), ("MaxConnections", "2")];
const FENCED: &[(&str, &str)] = &[("TaskReporting", "ResponseFence"), ("MaxConnections", "2")];
const STANDARD: &[(&str, &str)] = &[("TaskReporting", "RFC3720"), ("MaxConnections", "2")];
const RESET: (u8, u8, u8) = (6, 0x29, 3);

fn attach(target: &Target, port: Port, keys: &[(&str, &str)]) -> Initiator {
    let mut initiator = Initiator::log_in(target, port, keys);
    assert_eq!(initiator.test_unit_ready(0).sense(), (6, 0x29, 0));
    initiator.answers_r2ts = false;
    initiator
}

/// A write whose data has been asked for and does not come.
fn hang(initiator: &mut Initiator) {
    initiator.start_write(0, 0, blocks(8, 1), 0);
    while initiator.r2ts.is_empty() {
        initiator.take_one();
    }
}

/// Waits until the target has handled earlier PDUs: it comes to the second echo in another batch.
fn settle(initiator: &mut Initiator) {
    initiator.round_trip();
    initiator.round_trip();
}

#[test]
fn the_answer_waits_for_data_that_was_asked_for() {
    for keys in [STANDARD, FENCED] {
        let target = Target::on_one_core(vec![memory()]);
        let mut a = attach(&target, Port::A, keys);
        hang(&mut a);
        let reset = a.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
        settle(&mut a);
        assert!(!a.has_answer(reset), "{keys:?}");
        let r2t = a.r2ts.remove(0);
        a.answer_r2t(&r2t);
        assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
    }
}

#[test]
fn the_answer_does_not_wait_for_ever() {
    let target = Target::on_one_core(vec![memory()]);
    let mut a = attach(&target, Port::A, STANDARD);
    hang(&mut a);
    let reset = a.start_management(Function::ABORT_TASK_SET, 0, None);
    assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
}

#[test]
fn the_answer_waits_for_no_data_with_fast_abort() {
    let target = Target::on_one_core(vec![memory()]);
    let mut a = attach(&target, Port::A, FAST);
    hang(&mut a);
    let reset = a.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
    settle(&mut a);
    assert!(a.has_answer(reset));
}

#[test]
fn others_with_fast_abort_are_told_of_their_tasks() {
    for issuer in [FAST, STANDARD] {
        let target = Target::on_one_core(vec![memory(), memory()]);
        let mut a = attach(&target, Port::A, issuer);
        let mut b = attach(&target, Port::B, FAST);
        let mut idle = attach(&target, Port { isid: 77, ..Port::B }, FAST);
        hang(&mut b);
        let reset = a.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
        assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
        let message = b.message(AsyncEvent::TASK_TERMINATION);
        assert_eq!(message.lun.0, [0; 8]);
        b.acknowledge(message.lun);
        assert_eq!(b.test_unit_ready(0).sense(), RESET);
        b.is_undisturbed();
        assert_eq!(idle.test_unit_ready(0).sense(), RESET);
        idle.is_undisturbed();
    }
}

#[test]
fn others_are_told_when_the_store_is_done() {
    let (target, delay) = Target::over_delay();
    let mut a = attach(&target, Port::A, STANDARD);
    let mut b = attach(&target, Port::B, FAST);
    start_held_write(&mut b, &delay);
    let after = b.cmd_sn;
    let reset = a.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
    settle(&mut a);
    // An initiator that hears of the end may write the same blocks again.
    b.is_undisturbed();
    assert_eq!(b.test_unit_ready(0).sense(), RESET);
    delay.release();
    let message = b.message(AsyncEvent::TASK_TERMINATION);
    assert_eq!(message.exp_cmd_sn, after, "later commands are not concerned");
    assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
}

#[test]
fn other_connections_of_the_issuing_session_are_told_too() {
    let target = Target::on_one_core(vec![memory()]);
    let mut a = attach(&target, Port::A, FAST);
    let mut b = a.join(&target, Port::A, 1);
    b.answers_r2ts = false;
    b.cmd_sn = a.cmd_sn;
    hang(&mut b);
    a.cmd_sn = b.cmd_sn;
    let reset = a.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
    let message = b.message(AsyncEvent::TASK_TERMINATION);
    b.acknowledge(message.lun);
    b.round_trip();
    assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
    a.is_undisturbed();
}

#[test]
fn others_without_fast_abort_are_not_told() {
    let target = Target::on_one_core(vec![memory()]);
    let mut a = attach(&target, Port::A, FAST);
    let mut b = attach(&target, Port::B, FENCED);
    hang(&mut b);
    let reset = a.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
    assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
    b.is_undisturbed();
}

#[test]
fn a_response_that_tells_of_a_reset_waits_for_what_was_sent_before() {
    for (keys, waits) in [(FENCED, true), (FAST, true), (STANDARD, false)] {
        let target = Target::on_one_core(vec![memory()]);
        let mut a = attach(&target, Port::A, STANDARD);
        let mut b = attach(&target, Port::B, keys);
        let mut c = b.join(&target, Port::B, 1);
        c.cmd_sn = b.cmd_sn;
        // An answer that is not acknowledged.
        c.round_trip();
        let reset = a.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
        assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
        b.cmd_sn = c.cmd_sn;
        let told = b.start_read(0, 0, 1);
        settle(&mut b);
        assert_eq!(b.has_answer(told), !waits, "{keys:?}");
        // The target's ping is answered, and with it the rest acknowledged.
        c.round_trip();
        assert_eq!(b.finish(told).sense(), RESET);
        // What follows waits for the acknowledgement of that.
        c.cmd_sn = b.cmd_sn;
        b.round_trip();
        assert!(c.test_unit_ready(0).good().is_empty(), "{keys:?}");
    }
}
