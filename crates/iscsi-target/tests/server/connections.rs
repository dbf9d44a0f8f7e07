//! Several connections of one session.

use lunette_pdu::{
    AsyncEvent, LoginStatus, LogoutReason, LogoutResponseCode, TargetPdu, TaskManagementFunction as Function,
    TaskManagementResponseCode as Answer,
};

use crate::common::{Initiator, Outcome, Port, Target, blocks, memory, start_held_write};

/// Two connections of one session, the unit attention of the new nexus taken.
fn pair(target: &Target) -> (Initiator, Initiator) {
    let mut a = Initiator::log_in(target, Port::A, &[("MaxConnections", "4")]);
    assert_eq!(a.test_unit_ready(0).sense(), (6, 0x29, 0));
    let mut b = a.join(target, Port::A, 1);
    b.cmd_sn = a.cmd_sn;
    (a, b)
}

#[test]
fn connections_share_a_nexus_and_are_told_apart() {
    let target = Target::over(vec![memory()]);
    let (mut a, mut b) = pair(&target);
    assert!(b.test_unit_ready(0).good().is_empty(), "no new nexus");
    a.cmd_sn = b.cmd_sn;
    a.write(0, 0, blocks(8, 1)).good();
    b.cmd_sn = a.cmd_sn;
    assert_eq!(b.read(0, 0, 8).good(), blocks(8, 1));
    let statistics = target.monitor.read();
    assert_eq!((statistics.sessions, statistics.connections), (1, 2));
}

#[test]
fn commands_run_in_the_order_of_their_numbers() {
    let target = Target::over(vec![memory()]);
    let (mut a, mut b) = pair(&target);
    // B brings the second, third and fifth command; the third with immediate data, so that the fifth waits in the
    // stream.
    let first = a.cmd_sn;
    b.cmd_sn = first.next();
    let read = b.start_read(0, 0, 8);
    let write = b.start_write(0, 0, blocks(8, 2), 4096);
    b.cmd_sn = first.add(4);
    let last = b.start_read(0, 0, 8);
    let wrote = a.start_write(0, 0, blocks(8, 1), 0);
    a.finish(wrote).good();
    a.cmd_sn = first.add(3);
    assert_eq!(b.finish(read).good().len(), 4096);
    b.finish(write).good();
    assert!(!b.has_answer(last));
    let fourth = a.start_write(0, 0, blocks(8, 3), 0);
    a.finish(fourth).good();
    b.finish(last).good();
}

#[test]
fn immediate_requests_pass_commands_that_wait() {
    let target = Target::over(vec![memory()]);
    let (mut a, mut b) = pair(&target);
    b.cmd_sn = a.cmd_sn.next();
    let early = b.start_read(0, 0, 1);
    b.round_trip();
    assert!(!b.has_answer(early));
    a.test_unit_ready(0).good();
    b.finish(early).good();
}

#[test]
fn a_command_that_waits_is_aborted_and_its_number_passed_over() {
    let target = Target::over(vec![memory()]);
    let (mut a, mut b) = pair(&target);
    b.cmd_sn = a.cmd_sn.next();
    let early = b.start_write(0, 0, blocks(8, 1), 0);
    let abort = b.start_management(Function::ABORT_TASK, 0, Some(early));
    assert_eq!(b.finish_management(abort), Answer::FUNCTION_COMPLETE);
    a.test_unit_ready(0).good();
    a.cmd_sn = a.cmd_sn.next();
    assert_eq!(a.read(0, 0, 1).good(), vec![0; 512], "the number after it comes next");
    assert!(!b.has_answer(early));
}

#[test]
fn a_task_set_is_aborted_on_all_connections_when_all_its_commands_have_come() {
    let target = Target::over(vec![memory()]);
    let (mut a, mut b) = pair(&target);
    b.answers_r2ts = false;
    let write = b.start_write(0, 0, blocks(8, 1), 0);
    b.take_one();
    // The request was sent after a command of B that is still under way.
    a.cmd_sn = b.cmd_sn.next();
    let abort = a.start_management(Function::ABORT_TASK_SET, 0, None);
    // Commands after the request come before it is carried out.
    let after = [8, 16].map(|lba| a.start_write(0, lba, blocks(8, 2), 0));
    a.round_trip();
    assert!(!a.has_answer(abort), "a command that it covers is missing");
    let late = b.start_write(0, 24, blocks(8, 3), 0);
    target.wait_until("only the later commands", |now| now.tasks == 2);
    a.answers_r2ts = false;
    a.round_trip();
    assert!(!a.has_answer(abort), "the answer waits until B has acknowledged what was sent to it");
    b.round_trip();
    assert_eq!(a.finish_management(abort), Answer::FUNCTION_COMPLETE);
    assert!(!b.has_answer(write) && !b.has_answer(late));
    a.answers_r2ts = true;
    for r2t in std::mem::take(&mut a.r2ts) {
        a.answer_r2t(&r2t);
    }
    for write in after {
        a.finish(write).good();
    }
    b.cmd_sn = a.cmd_sn;
    assert_eq!(b.read(0, 8, 8).good(), blocks(8, 2));
    target.wait_until("the end of all tasks", |now| now.tasks == 0);
}

#[test]
fn a_connection_is_logged_out_through_another_one() {
    let (target, delay) = Target::over_delay();
    let (mut a, mut b) = pair(&target);
    start_held_write(&mut b, &delay);
    a.cmd_sn = b.cmd_sn;
    a.send_logout_of(LogoutReason::CLOSE_CONNECTION, 1);
    assert!(b.receive().is_err(), "the connection is closed");
    target.wait_until("the end of the connection", |now| now.connections == 1);
    assert!(a.hears_nothing(), "the store still works on its write");
    delay.release();
    assert_eq!(a.logout_response(), LogoutResponseCode::CLOSED);
    assert_eq!(a.write(0, 0, blocks(8, 2)).sense(), Outcome::COMMANDS_CLEARED);
    assert!(a.write(0, 0, blocks(8, 2)).good().is_empty(), "the session goes on, on the same nexus");
    assert_eq!(a.read(0, 0, 8).good(), blocks(8, 2));
    a.send_logout_of(LogoutReason::CLOSE_CONNECTION, 1);
    assert_eq!(a.logout_response(), LogoutResponseCode::CID_NOT_FOUND);
}

#[test]
fn a_connection_leaves_and_another_one_takes_its_number() {
    let target = Target::over(vec![memory()]);
    let (mut a, mut b) = pair(&target);
    b.send_logout_of(LogoutReason::CLOSE_CONNECTION, 1);
    assert_eq!(b.logout_response(), LogoutResponseCode::CLOSED);
    assert!(b.receive().is_err());
    a.test_unit_ready(0).good();
    let mut again = a.join(&target, Port::A, 1);
    assert!(again.test_unit_ready(0).good().is_empty());
}

#[test]
fn what_waited_on_a_connection_that_left_may_come_again() {
    let target = Target::over(vec![memory()]);
    let (mut a, mut b) = pair(&target);
    b.cmd_sn = a.cmd_sn.next();
    b.start_write(0, 0, blocks(8, 1), 0);
    b.round_trip();
    a.send_logout_of(LogoutReason::CLOSE_CONNECTION, 1);
    assert_eq!(a.logout_response(), LogoutResponseCode::CLOSED);
    a.test_unit_ready(0).good();
    assert_eq!(a.read(0, 0, 1).good(), vec![0; 512], "under the number of the write");
}

#[test]
fn the_end_of_the_session_closes_all_connections() {
    let target = Target::over(vec![memory()]);
    let (mut a, mut b) = pair(&target);
    b.send_logout();
    assert_eq!(b.logout_response(), LogoutResponseCode::CLOSED);
    assert!(a.receive().is_err());
    target.wait_until("the end", |now| now.sessions == 0 && now.connections == 0);
}

#[test]
fn a_lost_connection_ends_the_session_and_the_others_are_told() {
    let target = Target::over(vec![memory()]);
    let (mut a, mut b) = pair(&target);
    b.answers_r2ts = false;
    b.start_write(0, 0, blocks(8, 1), 0);
    b.take_one();
    drop(b);
    let (pdu, _) = a.receive().unwrap();
    assert!(matches!(pdu, TargetPdu::AsyncMessage(message) if message.event == AsyncEvent::SESSION_DROP), "{pdu:?}");
    assert!(a.receive().is_err());
    let left = target.wait_until("the end", |now| now.sessions == 0 && now.connections == 0);
    assert_eq!(left.tasks, 0);
    let refused = a.send_join(&target, Port::A, 1, &[]).login_status();
    assert_eq!(refused, LoginStatus::SESSION_DOES_NOT_EXIST);
    Initiator::attach_again(&target, Port::A);
}

#[test]
fn a_connection_is_reinstated_within_its_session() {
    let (target, delay) = Target::over_delay();
    let (mut a, mut b) = pair(&target);
    start_held_write(&mut b, &delay);
    a.cmd_sn = b.cmd_sn;
    let mut again = a.send_join(&target, Port::A, 1, &[]);
    assert!(b.receive().is_err(), "the old connection is closed");
    a.round_trip();
    assert!(again.hears_nothing(), "the store still works on its write");
    delay.release();
    again.finish_login();
    assert_eq!(again.write(0, 0, blocks(8, 2)).sense(), Outcome::COMMANDS_CLEARED);
    assert!(again.write(0, 0, blocks(8, 2)).good().is_empty(), "on the same nexus");
    a.cmd_sn = again.cmd_sn;
    assert_eq!(a.read(0, 0, 8).good(), blocks(8, 2));
}

#[test]
fn logins_that_have_no_place_in_the_session_are_refused() {
    let target = Target::over(vec![memory()]);
    let mut a = Initiator::log_in(&target, Port::A, &[("MaxConnections", "2")]);
    let _b = a.join(&target, Port::A, 1);
    let refused = |port: Port, cid| a.send_join(&target, port, cid, &[]).login_status();
    assert_eq!(refused(Port::A, 2), LoginStatus::TOO_MANY_CONNECTIONS);
    assert_eq!(refused(Port::B, 1), LoginStatus::SESSION_DOES_NOT_EXIST);
    assert_eq!(refused(Port { isid: 9, ..Port::A }, 1), LoginStatus::SESSION_DOES_NOT_EXIST);
    let with_keys = a.send_join(&target, Port::A, 1, &[("MaxBurstLength", "8192")]).login_status();
    assert_eq!(with_keys, LoginStatus::INITIATOR_ERROR);
    a.test_unit_ready(0).sense();
}

#[test]
fn a_new_session_replaces_all_connections_of_the_old_one() {
    let target = Target::over(vec![memory()]);
    let (mut a, mut b) = pair(&target);
    let mut new = Initiator::attach_again(&target, Port::A);
    assert!(a.receive().is_err() && b.receive().is_err());
    assert!(new.test_unit_ready(0).good().is_empty());
    target.wait_until("one connection", |now| now.sessions == 1 && now.connections == 1);
}

#[test]
fn a_reset_that_is_refused_leaves_the_tasks_of_other_connections() {
    let target = Target::over(vec![memory()]);
    let keys = [("MaxConnections", "4"), ("InitialR2T", "No")];
    let mut a = Initiator::log_in(&target, Port::A, &keys);
    assert_eq!(a.test_unit_ready(0).sense(), (6, 0x29, 0));
    let mut b = a.join(&target, Port::A, 1);
    b.cmd_sn = a.cmd_sn;
    // Ended at once, and answered when its data has come.
    b.announces_data = true;
    let write = b.start_write(7, 0, blocks(8, 1), 0);
    b.round_trip();
    a.cmd_sn = b.cmd_sn;
    let reset = a.start_management(Function::LOGICAL_UNIT_RESET, 7, None);
    assert_eq!(a.finish_management(reset), Answer::LUN_DOES_NOT_EXIST);
    b.send_unsolicited(7, write);
    assert_eq!(b.finish(write).sense(), (5, 0x25, 0));
}
