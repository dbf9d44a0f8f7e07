//! Connection recovery (ErrorRecoveryLevel 2): tasks outlive their connection and go on over another one (RFC 7143
//! sections 6.3.4, 7.2.2, 11.5.1 and 11.14).

mod answered;
mod members;
mod requests;

use std::time::Duration;

use lunette_pdu::{
    Ahs, AsyncEvent, Cid, DataOut, InitiatorTaskTag, LoginRequest, LogoutReason, LogoutRequest, LogoutResponseCode,
    LunField, R2t, Residual, ScsiCommand, SerialNumber, TargetTransferTag, TaskManagementFunction,
    TaskManagementRequest, TaskManagementResponseCode,
};
use lunette_session::iscsi_target::{CloseReason, Response, TaskTag};
use lunette_session::keys::Offer;
use lunette_session::limits::COMMAND_WINDOW;

use crate::harness::{
    INITIATOR, Peer, Setup, TARGET, command, data_out, login_request, pattern, read, solicited, task_management, text,
    write,
};

/// Seconds that the tests agree to.
const WAIT: u64 = 2;

const RETAIN: u64 = 20;

fn setup() -> Setup {
    Setup {
        offer: Offer { error_recovery_level: 2, time2retain_s: 3600, ..Offer::default() },
        keys: vec![
            ("ErrorRecoveryLevel", "2"),
            ("DefaultTime2Wait", "2"),
            ("DefaultTime2Retain", "20"),
            ("MaxConnections", "2"),
            ("InitialR2T", "No"),
            ("DataDigest", "CRC32C"),
            ("iSCSIProtocolLevel", "2"),
        ],
        ..Setup::default()
    }
}

/// The first connection of a session whose tasks outlive it, driven by hand.
fn first() -> Peer {
    Peer::logged_in(setup()).manual()
}

/// One more connection of the session of `peer`, or one in its place.
fn join(peer: &mut Peer, cid: Cid) -> Peer {
    let mut joining = Peer::connect(setup());
    joining.driver.share(&peer.driver);
    joining.cmd_sn = peer.cmd_sn;
    let tsih = peer.driver.session().unwrap().tsih;
    let names = text(&[("InitiatorName", INITIATOR), ("TargetName", TARGET)]);
    joining.login(LoginRequest { tsih, cid, ..login_request() }, &names);
    assert!(joining.login_response().0.status.is_success());
    joining.manual()
}

/// The socket of the connection is gone, and the driver drains what follows.
fn cut(peer: &mut Peer) -> bool {
    let suspended = peer.driver.stream_lost();
    peer.collect();
    suspended
}

/// Logs a connection out for recovery over another one. `received`: ExpStatSN of the lost connection.
fn log_out_cid(over: &mut Peer, cid: Cid, received: SerialNumber) -> LogoutResponseCode {
    let request = LogoutRequest {
        immediate: true,
        reason: LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY,
        itt: InitiatorTaskTag(0x7000_0000),
        cid,
        cmd_sn: over.cmd_sn,
        exp_stat_sn: received,
    };
    over.send(request.emit(), &[]);
    over.logout_response().0.response
}

/// Logs a lost connection out, of which its driver hears.
fn log_out(lost: &mut Peer, over: &mut Peer, received: SerialNumber) {
    assert_eq!(log_out_cid(over, lost.cid, received), LogoutResponseCode::CLOSED);
    lost.collect();
    assert!(lost.driver.detached);
}

/// The answer to TASK REASSIGN of a task; a request that finds none waits for the driver, which ends none.
fn ask_for(to: &mut Peer, itt: u32, exp_data_sn: u32) -> TaskManagementResponseCode {
    let request = task_management(0x7000_0001, TaskManagementFunction::TASK_REASSIGN);
    to.task_management(TaskManagementRequest { referenced_task_tag: InitiatorTaskTag(itt), exp_data_sn, ..request });
    to.driver.done(request.itt);
    to.task_management_response().0.response
}

/// Moves a task over `to`; gives its new tag, when the driver has it.
fn reassign(from: &mut Peer, to: &mut Peer, itt: u32, exp_data_sn: u32) -> Option<TaskTag> {
    if !from.driver.detached {
        log_out(from, to, SerialNumber(0));
    }
    to.checker.task_sent(InitiatorTaskTag(itt), false);
    // It counts R2Ts from 0.
    to.checker.strict &= exp_data_sn == 0;
    assert_eq!(ask_for(to, itt, exp_data_sn), TaskManagementResponseCode::FUNCTION_COMPLETE);
    let (handle, old, new) = to.driver.moved.pop()?;
    assert_eq!(handle, from.driver.handle);
    assert!(!from.driver.completed.borrow().contains(&old), "the driver has the task as before");
    Some(new)
}

/// Whether the session knows the task of that name, on another connection than `by`.
fn knows(by: &mut Peer, itt: u32) -> bool {
    knows_at(by, itt, command(itt).lun)
}

fn knows_at(by: &mut Peer, itt: u32, lun: LunField) -> bool {
    let request = task_management(0x7000_0002, TaskManagementFunction::QUERY_TASK);
    by.task_management(TaskManagementRequest { referenced_task_tag: InitiatorTaskTag(itt), lun, ..request });
    by.driver.done(request.itt);
    match by.task_management_response().0.response {
        TaskManagementResponseCode::FUNCTION_SUCCEEDED => true,
        TaskManagementResponseCode::FUNCTION_COMPLETE => false,
        other => panic!("{other:?} to QUERY TASK"),
    }
}

/// Nothing is left on a lost connection that another one could take over: when it is logged out, it is let go of.
fn is_gone(lost: &mut Peer, over: &mut Peer) -> bool {
    log_out(lost, over, SerialNumber(0));
    lost.driver.gone
}

fn tag(peer: &Peer) -> TaskTag {
    peer.driver.commands.last().unwrap().task
}

fn range(r2t: &R2t) -> (u32, u32) {
    (r2t.buffer_offset, r2t.desired_data_transfer_length)
}

fn answer(len: usize) -> Response {
    Response { data_out_transfer_len: len as u64, ..Response::default() }
}

#[test]
fn a_write_that_nobody_has_looked_at_keeps_what_was_verified() {
    // With data digests a command counts only when its immediate data is verified. Without, that data is still in the
    // stream.
    for (digest, missing) in [("CRC32C", (4096, 4096)), ("None", (0, 8192))] {
        let mut setup = setup();
        setup.keys.retain(|(key, _)| *key != "DataDigest");
        setup.keys.push(("DataDigest", digest));
        let mut a = Peer::logged_in(setup).manual();
        let data = pattern(8192);
        a.command(write(1, 8192), &data[..4096]);
        let old = tag(&a);
        assert!(cut(&mut a));
        a.driver.want_data(old, 8192);
        assert_eq!(a.rest(), [], "nothing is sent");
        let mut b = join(&mut a, Cid(7));
        let new = reassign(&mut a, &mut b, 1, 0).unwrap();
        let (r2t, _) = b.r2t();
        assert_eq!(range(&r2t), missing);
        b.answer(&r2t, &data, 8192);
        assert_eq!(b.driver.data_out, [(new, data)]);
        b.driver.complete(new, answer(8192));
        assert_eq!(b.scsi_response().0.itt.0, 1);
    }
}

#[test]
fn a_task_may_be_decided_on_after_it_has_moved() {
    let mut a = first();
    a.command(write(1, 4096), &[]);
    cut(&mut a);
    let mut b = join(&mut a, Cid(7));
    let new = reassign(&mut a, &mut b, 1, 0).unwrap();
    b.silence();
    b.driver.want_data(new, 4096);
    assert_eq!(range(&b.r2t().0), (0, 4096));
}

#[test]
fn data_that_has_just_become_complete_moves_with_its_task() {
    let mut a = first();
    let data = pattern(4096);
    a.command(write(1, 4096), &data);
    let old = tag(&a);
    cut(&mut a);
    // The driver does not hear of it before the task moves.
    a.driver.want_data(old, 4096);
    let mut b = join(&mut a, Cid(7));
    assert_eq!(log_out_cid(&mut b, a.cid, SerialNumber(0)), LogoutResponseCode::CLOSED);
    b.checker.task_sent(InitiatorTaskTag(1), false);
    assert_eq!(ask_for(&mut b, 1, 0), TaskManagementResponseCode::FUNCTION_COMPLETE);
    let (_, _, new) = b.driver.moved[0];
    assert_eq!(b.driver.data_out, [(new, data)]);
    a.collect();
    assert_eq!(a.driver.data_out, []);
}

#[test]
fn only_what_is_missing_is_asked_for_again() {
    let mut a = first();
    let data = pattern(16384);
    a.command(write(1, 16384), &[]);
    let old = tag(&a);
    a.driver.want_data(old, 16384);
    let (r2t, _) = a.r2t();
    let pdus = solicited(&r2t, 4096);
    for pdu in &pdus[..2] {
        let from = pdu.buffer_offset as usize;
        a.data_out(*pdu, &data[from..from + 4096]);
    }
    // The third one is cut in its data segment.
    let third = DataOut { data_segment_len: 4096, ..pdus[2] };
    let bytes = a.frame(third.emit(), &[], &data[8192..12288]);
    a.raw(&bytes[..1000]);
    assert!(cut(&mut a));
    let mut b = join(&mut a, Cid(7));
    let new = reassign(&mut a, &mut b, 1, 0).unwrap();
    let (again, _) = b.r2t();
    assert_eq!((range(&again), again.r2t_sn), ((8192, 8192), 0));
    b.answer(&again, &data, 8192);
    assert_eq!(b.driver.data_out, [(new, data)]);
}

#[test]
fn r2ts_are_numbered_after_those_that_the_initiator_has() {
    for (exp_data_sn, expected) in [(0, 0), (1, 1), (2, 0)] {
        let mut a = first();
        a.command(write(1, 4096), &[]);
        let old = tag(&a);
        a.driver.want_data(old, 4096);
        a.r2t();
        cut(&mut a);
        let mut b = join(&mut a, Cid(7));
        reassign(&mut a, &mut b, 1, exp_data_sn);
        // A number that no R2T had is ignored: the next one follows what was sent.
        let expected = if exp_data_sn == 2 { 1 } else { expected };
        assert_eq!(b.r2t().0.r2t_sn, expected, "ExpDataSN {exp_data_sn}");
    }
}

#[test]
fn unsolicited_data_that_was_lost_is_asked_for() {
    let mut a = first();
    let data = pattern(8192);
    a.command(ScsiCommand { final_: false, ..write(1, 8192) }, &[]);
    let old = tag(&a);
    a.driver.want_data(old, 8192);
    a.data_out(DataOut { final_: false, ..data_out(1, 0) }, &data[..1024]);
    cut(&mut a);
    let mut b = join(&mut a, Cid(7));
    reassign(&mut a, &mut b, 1, 0);
    assert_eq!(range(&b.r2t().0), (1024, 7168));
}

#[test]
fn a_task_that_runs_is_answered_where_it_has_come_to() {
    let mut a = first();
    a.command(read(1, 4096), &[]);
    let old = tag(&a);
    assert!(cut(&mut a));
    let mut b = join(&mut a, Cid(7));
    let new = reassign(&mut a, &mut b, 1, 0).unwrap();
    b.silence();
    assert_eq!(ask_for(&mut b, 1, 0), TaskManagementResponseCode::TASK_STILL_ALLEGIANT, "it is here alone");
    let response = b.driver.read_response(4096);
    a.driver.complete(old, answer(0));
    b.driver.complete(new, response);
    let (data, bytes) = b.data_in();
    assert_eq!((data.itt.0, bytes), (1, pattern(4096)));
    assert!(data.status.is_some());
    assert_eq!(a.rest(), [], "the old tag is harmless");
}

#[test]
fn a_task_that_ended_meanwhile_is_answered_by_whoever_takes_it_over() {
    let mut a = first();
    a.command(read(1, 4096), &[]);
    let old = tag(&a);
    cut(&mut a);
    let response = a.driver.read_response(4096);
    a.driver.complete(old, response);
    assert_eq!((a.rest(), a.driver.act(|c| c.answer_bytes())), (vec![], 4096));
    let mut b = join(&mut a, Cid(7));
    assert!(knows(&mut b, 1) && !knows_at(&mut b, 1, LunField([0; 8])));
    assert_eq!(reassign(&mut a, &mut b, 1, 0), None);
    assert_eq!(b.data_in().1, pattern(4096));
    a.collect();
    assert!(a.driver.gone, "it keeps nothing");
}

#[test]
fn an_answer_that_waited_for_data_does_not_wait_any_more() {
    let mut a = first();
    a.command(ScsiCommand { final_: false, ..write(1, 8192) }, &[]);
    let old = tag(&a);
    a.driver.complete(old, Response { status: 8, ..Response::default() });
    a.silence();
    cut(&mut a);
    let mut b = join(&mut a, Cid(7));
    assert_eq!(reassign(&mut a, &mut b, 1, 0), None);
    assert_eq!(b.scsi_response().0.status, 8);
}

#[test]
fn a_task_moves_more_than_once() {
    let mut a = first();
    let data = pattern(8192);
    a.command(write(1, 8192), &[]);
    let old = tag(&a);
    a.driver.want_data(old, 8192);
    a.r2t();
    cut(&mut a);
    let mut b = join(&mut a, Cid(7));
    reassign(&mut a, &mut b, 1, 0).unwrap();
    let (r2t, _) = b.r2t();
    let pdus = solicited(&r2t, 4096);
    b.data_out(pdus[0], &data[..4096]);
    cut(&mut b);
    let mut c = join(&mut b, Cid(5));
    let new = reassign(&mut b, &mut c, 1, 1).unwrap();
    let (r2t, _) = c.r2t();
    assert_eq!((range(&r2t), r2t.r2t_sn), ((4096, 4096), 1));
    c.answer(&r2t, &data, 4096);
    assert_eq!(c.driver.data_out, [(new, data)]);
}

#[test]
fn the_command_window_counts_tasks_wherever_they_are() {
    let mut a = first();
    for itt in 0..128 {
        a.command(command(itt), &[]);
    }
    cut(&mut a);
    let mut b = join(&mut a, Cid(7));
    b.command(command(500), &[]);
    assert!(b.driver.commands.is_empty(), "the window is shut");
    for itt in 0..128 {
        let tag = reassign(&mut a, &mut b, itt, 0).unwrap();
        b.driver.complete(tag, Response::default());
        b.scsi_response();
    }
    b.cmd_sn = a.cmd_sn;
    b.command(command(500), &[]);
    assert_eq!(b.driver.commands.len(), 1);
}

#[test]
fn a_name_that_is_used_twice_costs_no_place_in_the_window() {
    let mut a = first();
    a.command(command(1), &[]);
    cut(&mut a);
    let mut b = join(&mut a, Cid(7));
    b.command(ScsiCommand { final_: false, ..write(1, 8192) }, &[]);
    let draining = tag(&b);
    b.driver.complete(draining, Response { status: 8, ..Response::default() });
    let moved = reassign(&mut a, &mut b, 1, 0).unwrap();
    b.driver.complete(moved, Response::default());
    let (response, _) = b.scsi_response();
    assert_eq!(response.max_cmd_sn, response.exp_cmd_sn.add(127));
}

#[test]
fn a_task_does_not_move_where_its_name_is_in_use() {
    let mut a = first();
    a.command(command(1), &[]);
    cut(&mut a);
    let mut b = join(&mut a, Cid(7));
    b.cmd_sn = a.cmd_sn;
    b.command(write(1, 8192), &[]);
    let own = tag(&b);
    log_out(&mut a, &mut b, SerialNumber(0));
    assert_eq!(ask_for(&mut b, 1, 0), TaskManagementResponseCode::TASK_STILL_ALLEGIANT);
    b.driver.complete(own, Response { status: 8, ..Response::default() });
    assert_eq!(b.scsi_response().0.status, 8);
}

#[test]
fn immediate_commands_end_with_their_connection() {
    let mut a = first();
    a.command(ScsiCommand { immediate: true, ..command(1) }, &[]);
    let task = tag(&a);
    cut(&mut a);
    assert_eq!(a.driver.aborted, [task]);
    assert!(!knows(&mut join(&mut a, Cid(7)), 1));
}

#[test]
fn a_task_that_ends_with_its_connection_is_not_told_of_its_data_first() {
    let mut setup = setup();
    setup.offer.marker_interval = Some(65_535);
    setup.keys.extend([("OFMarker", "Yes"), ("OFMarkInt", "65535")]);
    let mut a = Peer::logged_in(setup).manual();
    let immediate = ScsiCommand { immediate: true, final_: false, ..write(1, 8192) };
    a.command(immediate, &pattern(4096));
    let task = tag(&a);
    // Nothing is missing but the rest of what was announced.
    a.driver.want_data(task, 4096);
    // The driver sleeps for so long that several things are due at once: the rest is overdue, the answer to a ping too.
    for late in [35, 70] {
        a.driver.act(|c| c.time_has_come(a.driver.now + Duration::from_secs(late)));
    }
    a.driver.pump();
    assert!(a.driver.suspended.is_some());
    assert_eq!((a.driver.aborted, a.driver.data_out), (vec![task], vec![]));
}

#[test]
fn what_came_before_its_turn_may_come_again() {
    let mut a = first();
    let gap = a.cmd_sn;
    a.cmd_sn = gap.next();
    a.command(command(2), &[]);
    assert!(a.driver.commands.is_empty());
    cut(&mut a);
    a.cmd_sn = gap;
    let mut b = join(&mut a, Cid(7));
    assert!(!knows(&mut b, 2));
    b.command(command(1), &[]);
    b.command(command(2), &[]);
    assert_eq!(b.driver.commands.len(), 2);
}

#[test]
fn a_command_tells_how_long_it_waited_for_those_before_it() {
    let mut peer = first();
    let gap = peer.cmd_sn;
    peer.cmd_sn = gap.next();
    peer.command(command(2), &[]);
    peer.driver.now = peer.driver.now + Duration::from_millis(40);
    peer.cmd_sn = gap;
    peer.command(command(1), &[]);
    let waits: Vec<_> = peer.driver.commands.iter().map(|command| command.window_wait).collect();
    assert_eq!(waits, [Duration::ZERO, Duration::from_millis(40)]);
}

#[test]
fn an_aborted_task_is_gone() {
    let mut a = first();
    a.command(command(1), &[]);
    let task = tag(&a);
    cut(&mut a);
    a.driver.act(|c| c.abort(task));
    let mut b = join(&mut a, Cid(7));
    assert!(is_gone(&mut a, &mut b));
    assert_eq!(ask_for(&mut b, 1, 0), TaskManagementResponseCode::TASK_DOES_NOT_EXIST);
}

/// TARGET WARM RESET, with that CmdSN.
fn reset(by: &mut Peer, cmd_sn: SerialNumber) {
    let next = std::mem::replace(&mut by.cmd_sn, cmd_sn);
    let request = task_management(0x7000_0003, TaskManagementFunction::TARGET_WARM_RESET);
    by.task_management(request);
    by.cmd_sn = next;
    by.driver.done(request.itt);
    assert_eq!(by.task_management_response().0.response, TaskManagementResponseCode::FUNCTION_COMPLETE);
}

#[test]
fn kept_answers_are_dropped_when_a_request_covers_their_tasks() {
    let mut a = first();
    a.command(command(1), &[]);
    let task = tag(&a);
    cut(&mut a);
    a.driver.complete(task, Response::default());
    let before = a.driver.commands[0].order.cmd_sn;
    let mut b = join(&mut a, Cid(7));
    reset(&mut b, before);
    assert!(knows(&mut b, 1), "the request was sent before");
    reset(&mut b, before.next());
    assert!(!knows(&mut b, 1));
    assert!(is_gone(&mut a, &mut b));
}

#[test]
fn tasks_wait_for_time2wait_and_time2retain() {
    let mut a = first();
    a.command(command(1), &[]);
    let lost = a.driver.now;
    assert!(cut(&mut a));
    assert_eq!(a.driver.next_timeout(), Some(lost + Duration::from_secs(WAIT + RETAIN)));
    a.pass(Duration::from_secs(10));
    let logged_out = a.driver.now;
    let mut b = join(&mut a, Cid(7));
    log_out(&mut a, &mut b, SerialNumber(0));
    assert_eq!(a.driver.next_timeout(), Some(logged_out + Duration::from_secs(WAIT + RETAIN)), "the time starts again");
    a.pass(Duration::from_secs(WAIT + RETAIN));
    assert_eq!(a.driver.closed, Some(CloseReason::NotRecovered));
    assert_eq!(a.driver.next_timeout(), None);
    assert_eq!(ask_for(&mut b, 1, 0), TaskManagementResponseCode::TASK_DOES_NOT_EXIST);
}

#[test]
fn nothing_waits_below_level_2_nor_without_time() {
    for (key, value) in [("ErrorRecoveryLevel", "1"), ("DefaultTime2Retain", "0")] {
        let mut setup = setup();
        let keys = setup.keys.iter().map(|(known, old)| (*known, if *known == key { value } else { *old }));
        setup.keys = keys.collect();
        let mut a = Peer::logged_in(setup).manual();
        a.command(command(1), &[]);
        assert!(!cut(&mut a), "{key}={value}");
    }
}

#[test]
fn a_connection_that_fails_by_itself_is_suspended_too() {
    let mut a = first();
    a.command(command(1), &[]);
    a.checker.strict = false;
    let cmd_sn = a.cmd_sn;
    a.command_numbered(ScsiCommand { final_: false, cmd_sn, ..command(2) }, &[], &[]);
    assert!(matches!(a.driver.suspended, Some(CloseReason::Protocol(_))), "{:?}", a.driver.suspended);
    a.reject();
    assert!(!a.driver.wants_input());
    assert!(a.driver.next_timeout().is_some());
    assert!(knows(&mut join(&mut a, Cid(7)), 1));
}

#[test]
fn a_ping_without_an_answer_suspends() {
    let mut a = first();
    a.command(command(1), &[]);
    a.pass(Duration::from_secs(51));
    assert_eq!(a.driver.suspended, Some(CloseReason::PingTimeout));
}

#[test]
fn a_login_says_what_was_received_on_the_connection_that_it_replaces() {
    let mut a = first();
    let mut joining = Peer::connect(setup()).manual();
    let tsih = a.driver.session().unwrap().tsih;
    let request = LoginRequest { tsih, exp_stat_sn: SerialNumber(77), ..login_request() };
    let names = text(&[("InitiatorName", INITIATOR), ("TargetName", TARGET)]);
    let bytes = joining.frame(LoginRequest { data_segment_len: names.len(), ..request }.emit(), &[], &names);
    joining.driver.feed(&bytes);
    assert_eq!(joining.driver.admissions, 1);
    assert_eq!(joining.driver.admit_requests[0].exp_stat_sn, SerialNumber(77));
    a.silence();
}

/// RFC 7143 sections 7.2.2 and 11.8.3: one numbering for R2Ts and Data-In.
#[test]
fn a_command_both_ways_moves_with_its_numbers() {
    let mut ahs = [0; 8];
    Ahs::BidiReadLength(4096).emit(&mut ahs).unwrap();
    let mut a = first();
    let data = pattern(8192);
    let command = ScsiCommand { read: true, ahs_len: ahs.len(), ..write(1, 8192) };
    a.command_numbered(ScsiCommand { cmd_sn: a.cmd_sn, ..command }, &ahs, &[]);
    a.cmd_sn = a.cmd_sn.next();
    let old = tag(&a);
    a.driver.want_data(old, 8192);
    assert_eq!(a.r2t().0.r2t_sn, 0);
    cut(&mut a);
    let mut b = join(&mut a, Cid(7));
    let new = reassign(&mut a, &mut b, 1, 1).unwrap();
    let (r2t, _) = b.r2t();
    assert_eq!((range(&r2t), r2t.r2t_sn), ((0, 8192), 1));
    b.answer(&r2t, &data, 8192);
    assert_eq!(b.driver.data_out, [(new, data)]);
    let response = Response { data_out_transfer_len: 8192, ..b.driver.read_response(4096) };
    b.driver.complete(new, response);
    let (data_in, bytes) = b.data_in();
    assert_eq!((data_in.data_sn, data_in.status, bytes), (2, None, pattern(4096)));
    assert_eq!(b.scsi_response().0.exp_data_sn, 3);
    // That was lost: the data is wanted again, the R2Ts are not.
    cut(&mut b);
    let mut c = join(&mut b, Cid(5));
    assert_eq!(reassign(&mut b, &mut c, 1, 2), None);
    let (data_in, bytes) = c.data_in();
    assert_eq!((data_in.data_sn, data_in.buffer_offset, bytes), (2, 0, pattern(4096)));
    let (response, _) = c.scsi_response();
    assert_eq!(
        (response.exp_data_sn, response.residual, response.bidi_read_residual),
        (3, Residual::None, Residual::None)
    );
}

#[test]
fn the_loss_of_another_connection_is_announced() {
    let mut a = first();
    let mut b = join(&mut a, Cid(9));
    cut(&mut b);
    let (message, _) = a.async_message();
    assert_eq!((message.event, message.parameter1), (AsyncEvent::CONNECTION_DROP, 9));
    assert_eq!((u64::from(message.parameter2), u64::from(message.parameter3)), (WAIT, RETAIN));
}

/// RFC 7143 section 11.19: no answer tells the initiator that it may send again.
#[test]
fn a_window_that_opens_with_the_end_of_a_connection_is_announced_without_tags() {
    for tasks in [0, 1, COMMAND_WINDOW] {
        let mut a = first();
        for itt in 0..tasks {
            a.command(command(itt), &[]);
        }
        let mut b = join(&mut a, Cid(9));
        cut(&mut a);
        assert_eq!(b.async_message().0.event, AsyncEvent::CONNECTION_DROP);
        a.pass(Duration::from_secs(WAIT + RETAIN));
        assert_eq!(a.driver.closed, Some(CloseReason::NotRecovered));
        a.driver.remove();
        if tasks == 0 {
            b.silence();
            continue;
        }
        let (nop, _) = b.nop_in();
        assert_eq!((nop.itt, nop.ttt), (InitiatorTaskTag::RESERVED, TargetTransferTag::RESERVED));
        assert_eq!(nop.max_cmd_sn.distance_from(nop.exp_cmd_sn), COMMAND_WINDOW.cast_signed() - 1);
    }
}
