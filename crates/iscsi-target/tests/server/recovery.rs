//! Connection recovery (ErrorRecoveryLevel 2): sockets break, tasks go on over other connections of the session.

use std::sync::Arc;

use lunette_pdu::{
    Cid, LoginStatus, LogoutReason, LogoutResponseCode, TargetPdu, TaskManagementFunction as Function,
    TaskManagementResponseCode as Answer,
};
use lunette_session::limits::COMMAND_WINDOW;
use lunette_store::Store;
use lunette_store::filters::Delay;
use lunette_target::ServerConfig;
use lunette_target::Statistics;

use crate::common::{
    Initiator, Outcome, Port, TARGET, Target, blocks, cdb_10, device, manage_held, memory, start_held_write,
};

fn target(store: Arc<dyn Store>) -> Target {
    Target::of(vec![device(TARGET, vec![store])], recover)
}

/// A target whose single core has all buffers.
fn on_one_core(store: Arc<dyn Store>) -> Target {
    let change = |config: &mut ServerConfig| {
        recover(config);
        config.cores = 1;
    };
    Target::of(vec![device(TARGET, vec![store])], change)
}

fn recover(config: &mut ServerConfig) {
    for target in &mut config.targets {
        target.offer.error_recovery_level = 2;
        target.offer.time2retain_s = 3600;
    }
}

/// Recovery from here to the end of the test, however long that takes.
const KEYS: [(&str, &str); 5] = [
    ("ErrorRecoveryLevel", "2"),
    ("DefaultTime2Wait", "0"),
    ("DefaultTime2Retain", "3600"),
    ("MaxConnections", "4"),
    ("iSCSIProtocolLevel", "2"),
];

fn log_in(target: &Target) -> Initiator {
    let mut initiator = Initiator::log_in(target, Port::A, &KEYS);
    assert_eq!(initiator.test_unit_ready(0).sense(), Outcome::POWER_ON);
    initiator
}

fn pair(target: &Target) -> (Initiator, Initiator) {
    let a = log_in(target);
    let mut b = a.join(target, Port::A, 1);
    b.cmd_sn = a.cmd_sn;
    (a, b)
}

/// A login takes the place of a connection.
fn reinstate(target: &Target, old: &Initiator, cid: u16) -> Initiator {
    let again = old.join(target, Port::A, cid);
    // Names of tasks are those of the session.
    again.with_tags_after(old)
}

#[test]
fn the_only_connection_breaks_while_a_write_is_in_the_store() {
    let delay = Arc::new(Delay::new(memory()));
    let target = target(delay.clone());
    let mut a = log_in(&target);
    let write = start_held_write(&mut a, &delay);
    a.cut();
    target.wait_until("the loss", |now| now.connections == 0 && now.suspended == 1 && now.sessions == 1);
    let mut again = reinstate(&target, &a, 0);
    assert_eq!(again.reassign(&mut a, write), Answer::FUNCTION_COMPLETE);
    again.round_trip();
    assert!(!again.has_answer(write), "the store still works on it");
    delay.release();
    again.finish(write).good();
    assert_eq!(again.read(0, 0, 8).good(), blocks(8, 1), "on the same nexus");
    let left = target.wait_until("the end of the old connection", |now| now.suspended == 0);
    assert_eq!((left.tasks, left.sessions, left.connections), (0, 1, 1));
}

#[test]
fn the_store_is_done_before_the_task_moves() {
    let delay = Arc::new(Delay::new(memory()));
    let target = target(delay.clone());
    let mut a = log_in(&target);
    a.write(0, 0, blocks(8, 3)).good();
    delay.hold();
    let write = a.start_write(0, 8, blocks(8, 1), 4096);
    let read = a.start_read(0, 0, 8);
    delay.wait_until_held(2);
    a.cut();
    target.wait_until("the loss", |now| now.suspended == 1);
    delay.release();
    target.wait_until("the end of the tasks", |now| now.tasks == 0);
    let mut again = reinstate(&target, &a, 0);
    for task in [read, write] {
        assert_eq!(again.reassign(&mut a, task), Answer::FUNCTION_COMPLETE);
    }
    assert_eq!(again.finish(read).good(), blocks(8, 3));
    again.finish(write).good();
    let left = target.wait_until("the end of the old connection", |now| now.suspended == 0);
    assert_eq!(again.read(0, 8, 8).good(), blocks(8, 1));
    assert_eq!(left.sessions, 1);
    // Its data is kept until it has.
    again.round_trip();
    target.wait_until("the initiator to acknowledge the answer", |now| now.buffer_bytes == 0);
}

#[test]
fn answers_that_did_not_arrive_come_again() {
    let target = target(memory());
    let (mut a, mut b) = pair(&target);
    b.write(0, 0, blocks(64, 3)).good();
    b.round_trip();
    let read = b.start_read(0, 0, 64);
    let write = b.start_write(0, 64, blocks(8, 1), 4096);
    let aborted = b.start_read(0, 0, 8);
    // The answers are on their way when this is answered.
    a.cmd_sn = b.cmd_sn;
    a.test_unit_ready(0).good();
    target.wait_until("the end of the tasks", |now| now.tasks == 0);
    b.cut();
    a.hear_of_loss();
    a.recover(&b);
    for task in [read, write] {
        assert_eq!(a.reassign(&mut b, task), Answer::FUNCTION_COMPLETE);
    }
    assert_eq!(a.finish(read).good(), blocks(64, 3));
    a.finish(write).good();
    let request = a.start_management(Function::ABORT_TASK_SET, 0, None);
    assert_eq!(a.finish_management(request), Answer::FUNCTION_COMPLETE);
    assert_eq!(a.reassign(&mut b, aborted), Answer::TASK_DOES_NOT_EXIST);
    a.round_trip();
    let left = target.wait_until("the end of the old connection", |now| now.suspended == 0 && now.buffer_bytes == 0);
    assert_eq!((left.sessions, left.connections), (1, 1));
}

#[test]
fn a_write_goes_on_where_its_data_broke_off() {
    let target = target(memory());
    let (mut a, mut b) = pair(&target);
    b.answers_r2ts = false;
    let write = b.start_write(0, 0, blocks(64, 1), 0);
    b.take_one();
    let r2t = b.r2ts[0];
    b.send_part_of(&r2t, 3).unwrap();
    b.round_trip();
    b.cut();
    assert_eq!(a.hear_of_loss(), Cid(1), "the other connection is told");
    a.cmd_sn = b.cmd_sn;
    assert_eq!(a.reassign(&mut b, write), Answer::TASK_STILL_ALLEGIANT);
    a.recover(&b);
    a.answers_r2ts = false;
    assert_eq!(a.reassign(&mut b, write), Answer::FUNCTION_COMPLETE);
    a.take_one();
    let again = a.r2ts[0];
    assert_eq!((again.buffer_offset, again.r2t_sn), (3 * 8192, 0), "what has come is kept");
    a.answer_r2t(&again);
    a.finish(write).good();
    assert_eq!(a.read(0, 0, 64).good(), blocks(64, 1));
    a.send_logout_of(LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY, 1);
    assert_eq!(a.logout_response(), LogoutResponseCode::CID_NOT_FOUND);
    target.wait_until("the end of the old connection", |now| now.suspended == 0);
}

#[test]
fn a_connection_that_lives_is_logged_out_for_recovery() {
    let target = target(memory());
    let (mut a, mut b) = pair(&target);
    b.answers_r2ts = false;
    let write = b.start_write(0, 0, blocks(8, 1), 0);
    b.take_one();
    a.cmd_sn = b.cmd_sn;
    assert_eq!(a.reassign(&mut b, write), Answer::TASK_STILL_ALLEGIANT);
    a.recover(&b);
    assert!(b.receive().is_err(), "it is closed");
    assert_eq!(a.reassign(&mut b, write), Answer::FUNCTION_COMPLETE);
    a.finish(write).good();
    assert_eq!(a.reassign(&mut b, write), Answer::TASK_STILL_ALLEGIANT, "its end is not acknowledged");
    a.round_trip();
    assert_eq!(a.reassign(&mut b, write), Answer::TASK_DOES_NOT_EXIST);
    assert_eq!(a.read(0, 0, 8).good(), blocks(8, 1));
}

#[test]
fn a_connection_logs_itself_out_for_recovery() {
    let target = target(memory());
    let mut a = log_in(&target);
    a.answers_r2ts = false;
    let write = a.start_write(0, 0, blocks(8, 1), 0);
    a.take_one();
    a.send_logout_of(LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY, 0);
    assert_eq!(a.logout_response(), LogoutResponseCode::CLOSED);
    assert!(a.receive().is_err());
    target.wait_until("the end of the connection", |now| now.connections == 0 && now.suspended == 1);
    let mut again = reinstate(&target, &a, 5);
    assert_eq!(again.reassign(&mut a, write), Answer::FUNCTION_COMPLETE);
    again.finish(write).good();
}

#[test]
fn an_idle_connection_that_is_replaced_hands_on_its_nexus() {
    let target = target(memory());
    let a = log_in(&target);
    // No unit attention of a new nexus.
    reinstate(&target, &a, 0).test_unit_ready(0).good();
}

#[test]
fn below_level_2_nothing_is_recovered() {
    let target = target(memory());
    let mut a = Initiator::log_in(&target, Port::A, &[("MaxConnections", "4")]);
    assert_eq!(a.test_unit_ready(0).sense(), Outcome::POWER_ON);
    let mut b = a.join(&target, Port::A, 1);
    a.send_logout_of(LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY, 1);
    assert_eq!(a.logout_response(), LogoutResponseCode::RECOVERY_NOT_SUPPORTED);
    let nothing = b.start_read(0, 0, 1);
    assert_eq!(a.reassign(&mut b, nothing), Answer::REASSIGNMENT_NOT_SUPPORTED);
}

#[test]
fn what_nobody_recovers_ends_in_time() {
    let delay = Arc::new(Delay::new(memory()));
    let target = target(delay.clone());
    let keys = KEYS.map(|(key, value)| (key, if key == "DefaultTime2Retain" { "1" } else { value }));
    let mut a = Initiator::log_in(&target, Port::A, &keys);
    assert_eq!(a.test_unit_ready(0).sense(), Outcome::POWER_ON);
    let mut b = a.join(&target, Port::A, 1);
    b.cmd_sn = a.cmd_sn.next();
    for lost in [&mut a, &mut b] {
        lost.answers_r2ts = false;
        lost.start_write(0, 0, blocks(8, 1), 0);
        lost.take_one();
    }
    b.cut();
    a.cut();
    // The numbers are not of one moment, so all of them are waited for.
    let ended = |now: &Statistics| (now.sessions, now.suspended, now.tasks, now.buffer_bytes) == (0, 0, 0, 0);
    target.wait_until("the end of the session", ended);
    let refused = a.send_join(&target, Port::A, 0, &[]).login_status();
    assert_eq!(refused, LoginStatus::SESSION_DOES_NOT_EXIST);
    Initiator::attach_again(&target, Port::A);
}

#[test]
fn a_session_goes_on_without_what_nobody_recovers() {
    let target = target(memory());
    let keys = KEYS.map(|(key, value)| (key, if key == "DefaultTime2Retain" { "1" } else { value }));
    let mut a = Initiator::log_in(&target, Port::A, &keys);
    assert_eq!(a.test_unit_ready(0).sense(), Outcome::POWER_ON);
    let mut b = a.join(&target, Port::A, 1);
    b.cmd_sn = a.cmd_sn;
    b.answers_r2ts = false;
    let write = b.start_write(0, 0, blocks(8, 1), 0);
    b.take_one();
    b.cut();
    target.wait_until("the end of the wait", |now| now.connections == 1 && now.suspended == 0 && now.tasks == 0);
    a.cmd_sn = b.cmd_sn;
    assert_eq!(a.test_unit_ready(0).sense(), Outcome::COMMANDS_CLEARED);
    assert_eq!(a.reassign(&mut b, write), Answer::TASK_DOES_NOT_EXIST);
    a.send_logout_of(LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY, 1);
    assert_eq!(a.logout_response(), LogoutResponseCode::CID_NOT_FOUND);
}

#[test]
fn the_window_opens_again_when_tasks_end_with_their_connection() {
    let target = target(memory());
    let keys = KEYS.map(|(key, value)| (key, if key == "DefaultTime2Retain" { "0" } else { value }));
    for breaks_a_rule in [false, true] {
        let mut a = Initiator::log_in(&target, Port { isid: 9 + u16::from(breaks_a_rule), ..Port::A }, &keys);
        assert_eq!(a.test_unit_ready(0).sense(), Outcome::POWER_ON);
        let mut b = a.join(&target, Port { isid: 9 + u16::from(breaks_a_rule), ..Port::A }, 1);
        b.cmd_sn = a.cmd_sn;
        b.answers_r2ts = false;
        b.start_write(0, 0, blocks(8, 1), 0);
        b.take_one();
        if breaks_a_rule {
            // A login request.
            b.send_bytes(&[&[0x43][..], &[0; 47]].concat());
        } else {
            b.cut();
        }
        let (pdu, _) = a.receive().unwrap();
        let TargetPdu::NopIn(news) = pdu else { panic!("{pdu:?} is no news of the window") };
        assert!(news.itt.is_reserved() && news.ttt.is_reserved());
        assert_eq!(news.exp_cmd_sn, b.cmd_sn);
        assert_eq!(news.max_cmd_sn, b.cmd_sn.add(COMMAND_WINDOW - 1), "nothing is under way");
    }
}

#[test]
fn a_second_connection_may_come_where_one_is_allowed() {
    let target = target(memory());
    let mut a = Initiator::log_in(&target, Port::A, &KEYS[..3]);
    assert_eq!(a.test_unit_ready(0).sense(), Outcome::POWER_ON);
    a.answers_r2ts = false;
    let write = a.start_write(0, 0, blocks(8, 1), 0);
    a.take_one();
    let mut b = reinstate(&target, &a, 1);
    assert_eq!(a.send_join(&target, Port::A, 2, &[]).login_status(), LoginStatus::TOO_MANY_CONNECTIONS);
    b.recover(&a);
    assert_eq!(b.reassign(&mut a, write), Answer::FUNCTION_COMPLETE);
    b.finish(write).good();
}

#[test]
fn commands_that_were_not_received_come_again_elsewhere() {
    let target = target(memory());
    let (mut a, mut b) = pair(&target);
    // B brings the second of two commands; the first one is lost with it.
    b.cmd_sn = a.cmd_sn.next();
    b.start_write(0, 0, blocks(8, 1), 0);
    b.round_trip();
    b.cut();
    a.hear_of_loss();
    a.recover(&b);
    a.test_unit_ready(0).good();
    assert!(a.write(0, 0, blocks(8, 2)).good().is_empty(), "under the number of the write");
    assert_eq!(a.read(0, 0, 8).good(), blocks(8, 2));
}

// Requests and logins that end what waits.

/// A session whose connection 1, `b`, is lost with a write in the store.
struct Lost {
    target: Target,
    delay: Arc<Delay>,
    a: Initiator,
    b: Initiator,
    write: lunette_pdu::InitiatorTaskTag,
}

fn with_a_lost_write() -> Lost {
    let delay = Arc::new(Delay::new(memory()));
    let target = target(delay.clone());
    let (mut a, mut b) = pair(&target);
    let write = start_held_write(&mut b, &delay);
    b.cut();
    target.wait_until("the loss", |now| now.suspended == 1);
    a.cmd_sn = b.cmd_sn;
    a.hear_of_loss();
    Lost { target, delay, a, b, write }
}

#[test]
fn query_task_finds_a_task_of_a_lost_connection_and_takes_over_one_that_is_logged_out() {
    let Lost { target, delay, mut a, mut b, write } = with_a_lost_write();
    let ask = |a: &mut Initiator| {
        let query = a.start_management(Function::QUERY_TASK, 0, Some(write));
        a.finish_management(query)
    };
    assert_eq!(ask(&mut a), Answer::FUNCTION_SUCCEEDED);
    a.recover(&b);
    a.take_over(&mut b, write);
    assert_eq!(ask(&mut a), Answer::FUNCTION_SUCCEEDED);
    assert_eq!(a.reassign(&mut b, write), Answer::TASK_STILL_ALLEGIANT);
    delay.release();
    a.finish(write).good();
    assert_eq!(ask(&mut a), Answer::FUNCTION_COMPLETE);
    target.wait_until("the end of the old connection", |now| now.suspended == 0);
}

#[test]
fn the_name_of_a_lost_task_means_nothing_to_another_logical_unit() {
    let Lost { target: _target, delay, mut a, mut b, write } = with_a_lost_write();
    let nowhere =
        [(Function::QUERY_TASK, Answer::FUNCTION_COMPLETE), (Function::ABORT_TASK, Answer::TASK_DOES_NOT_EXIST)];
    let ask_another = |a: &mut Initiator| {
        for (function, answer) in nowhere {
            let request = a.start_management(function, 1, Some(write));
            assert_eq!(a.finish_management(request), answer, "{function}");
        }
    };
    ask_another(&mut a);
    a.recover(&b);
    ask_another(&mut a);
    a.take_over(&mut b, write);
    let reassign = a.send_management(Function::TASK_REASSIGN, 1, Some(write), 0);
    assert_eq!(a.finish_management(reassign), Answer::FUNCTION_COMPLETE, "there the unit is not looked at");
    ask_another(&mut a);
    delay.release();
    a.finish(write).good();
}

#[test]
fn each_function_is_answered_when_the_store_is_done() {
    for function in
        [Function::ABORT_TASK, Function::ABORT_TASK_SET, Function::LOGICAL_UNIT_RESET, Function::TARGET_WARM_RESET]
    {
        println!("{function}");
        let Lost { target: _target, delay, mut a, mut b, write } = with_a_lost_write();
        manage_held(&mut a, function, write, &delay);
        a.recover(&b);
        assert_eq!(a.reassign(&mut b, write), Answer::TASK_DOES_NOT_EXIST);
    }
}

#[test]
fn the_reassignment_of_a_task_that_a_reset_is_ending_waits_too() {
    let delay = Arc::new(Delay::new(memory()));
    let target = target(delay.clone());
    let (mut a, mut b) = pair(&target);
    let write = start_held_write(&mut b, &delay);
    a.cmd_sn = b.cmd_sn;
    let reset = a.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
    a.round_trip();
    b.cut();
    target.wait_until("the loss", |now| now.connections == 1);
    a.hear_of_loss();
    a.recover(&b);
    a.take_over(&mut b, write);
    let reassignment = a.send_management(Function::TASK_REASSIGN, 0, Some(write), 0);
    a.round_trip();
    a.round_trip();
    assert!(!a.has_answer(reassignment), "the store still works on the write");
    delay.release();
    assert_eq!(a.finish_management(reassignment), Answer::TASK_DOES_NOT_EXIST);
    assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
}

#[test]
fn answers_that_wait_are_dropped_by_a_request_that_covers_them() {
    let Lost { target, delay, mut a, mut b, write } = with_a_lost_write();
    delay.release();
    target.wait_until("the end of the task", |now| now.tasks == 0);
    let request = a.start_management(Function::ABORT_TASK_SET, 0, None);
    assert_eq!(a.finish_management(request), Answer::FUNCTION_COMPLETE);
    a.recover(&b);
    assert_eq!(a.reassign(&mut b, write), Answer::TASK_DOES_NOT_EXIST);
}

#[test]
fn an_answer_that_has_moved_comes_before_that_of_a_request_that_waits_for_acknowledgements() {
    let target = target(memory());
    let (mut a, mut b) = pair(&target);
    let read = b.start_read(0, 0, 8);
    // The read is answered when this is.
    a.cmd_sn = b.cmd_sn;
    a.test_unit_ready(0).good();
    let mut c = a.join(&target, Port::A, 2);
    // The answer to the ping waits for its acknowledgement.
    c.round_trip();
    let request = a.start_management(Function::ABORT_TASK_SET, 0, None);
    a.round_trip();
    b.cut();
    a.hear_of_loss();
    a.recover(&b);
    assert_eq!(c.reassign(&mut b, read), Answer::FUNCTION_COMPLETE);
    a.round_trip();
    a.round_trip();
    assert!(!a.has_answer(request), "C has not acknowledged the answer that it brings again");
    assert_eq!(c.finish(read).good().len(), 4096);
    c.round_trip();
    assert_eq!(a.finish_management(request), Answer::FUNCTION_COMPLETE);
}

#[test]
fn a_task_that_has_ended_is_answered_before_its_abort() {
    let Lost { target, delay, mut a, mut b, write } = with_a_lost_write();
    delay.release();
    target.wait_until("the end of the task", |now| now.tasks == 0);
    a.take_over(&mut b, write);
    let request = a.start_management(Function::ABORT_TASK, 0, Some(write));
    a.finish(write).good();
    assert!(!a.has_answer(request));
    assert_eq!(a.finish_management(request), Answer::FUNCTION_COMPLETE);
}

#[test]
fn a_connection_that_waits_is_logged_out_and_closed() {
    let Lost { target, delay, mut a, b: _b, write: _ } = with_a_lost_write();
    a.send_logout_of(LogoutReason::CLOSE_CONNECTION, 1);
    target.wait_until("the logout", |now| now.suspended == 0);
    assert!(a.hears_nothing(), "the store still works on the write");
    delay.release();
    assert_eq!(a.logout_response(), LogoutResponseCode::CLOSED);
    target.wait_until("the end of the connection", |now| now.suspended == 0 && now.tasks == 0);
}

#[test]
fn a_new_session_ends_what_waits() {
    let Lost { target, delay, a, b, write: _ } = with_a_lost_write();
    a.cut();
    target.wait_until("the loss", |now| now.connections == 0 && now.suspended == 2);
    let mut witness = Initiator::attach(&target, Port::B);
    let mut new = Initiator::connect(target.address);
    new.send_login(Port::A, &[]);
    target.wait_until("the login", |now| now.connections == 2 && now.suspended == 0);
    witness.round_trip();
    assert!(new.hears_nothing(), "the store still works on the write");
    delay.release();
    new.finish_login();
    assert_eq!(new.test_unit_ready(0).sense(), Outcome::NEXUS_LOSS);
    drop(b);
}

#[test]
fn the_end_of_the_session_ends_what_waits() {
    let Lost { target, delay, mut a, b: _b, write: _ } = with_a_lost_write();
    a.send_logout();
    assert_eq!(a.logout_response(), LogoutResponseCode::CLOSED);
    target.wait_until("the end", |now| now.sessions == 0 && now.suspended == 0);
    delay.release();
    target.wait_until("the end of the write", |now| now.tasks == 0 && now.buffer_bytes == 0);
}

#[test]
fn a_stop_does_not_wait_for_what_waits() {
    let target = target(memory());
    let mut a = log_in(&target);
    a.answers_r2ts = false;
    a.start_write(0, 0, blocks(8, 1), 0);
    a.take_one();
    a.cut();
    target.wait_until("the loss", |now| now.suspended == 1);
    target.stop().unwrap();
}

#[test]
fn what_waits_holds_no_more_than_its_share_of_the_buffers() {
    let target = on_one_core(memory());
    let mut lost = Vec::new();
    // Eight sessions with 16 MiB each, of which a quarter of 256 MiB may wait.
    for isid in 0..8 {
        let port = Port { isid: 100 + isid, ..Port::A };
        let mut a = Initiator::log_in(&target, port, &KEYS);
        a.test_unit_ready(0).sense();
        a.answers_r2ts = false;
        for n in 0..16 {
            a.start_write(0, n * 2048, blocks(2048, 1), 0);
            a.take_one();
        }
        a.cut();
        lost.push(a);
    }
    let left = target.wait_until("the bound", |now| now.connections == 0 && now.suspended == 4);
    assert_eq!(left.buffer_bytes, 64 << 20);
}

#[test]
fn buffers_of_which_few_bytes_are_wanted_are_counted_too() {
    let target = on_one_core(memory());
    let mut lost = Vec::new();
    // Eight sessions whose answers keep 16 MiB each and say four bytes of each MiB.
    for isid in 0..8 {
        let port = Port { isid: 100 + isid, ..Port::A };
        let mut a = Initiator::log_in(&target, port, &KEYS);
        a.test_unit_ready(0).sense();
        for _ in 0..16 {
            a.start(0, &cdb_10(0x28, 0, 2048), Vec::new(), 4, 0);
        }
        for _ in 0..16 {
            a.take_one();
        }
        a.cut();
        lost.push(a);
    }
    let left = target.wait_until("the bound", |now| now.connections == 0 && now.suspended == 4);
    assert_eq!(left.buffer_bytes, 64 << 20);
}
