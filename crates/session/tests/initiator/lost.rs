//! Recovery level 2: the loss of a connection costs no command (RFC 7143 sections 7.1.4.3, 7.2.2, 7.5 and 11.14).

use std::time::Duration;

use lunette_pdu::{
    AsyncEvent, AsyncMessage, Cid, InitiatorPdu, InitiatorTaskTag, LoginStatus, LogoutResponse, LogoutResponseCode,
    LunField, NopIn, Reject, RejectReason, TargetTransferTag, TaskManagementFunction, TaskManagementResponseCode,
    TextResponse, Tsih,
};
use lunette_session::Timers;
use lunette_session::initiator::{Event, SessionError};
use lunette_session::limits::{MAX_REASSIGNMENTS, MAX_UNANSWERED_REQUESTS, RECOVERY_PAUSE};

use crate::harness::{Crew, LUN};

const COMPLETE: TaskManagementResponseCode = TaskManagementResponseCode::FUNCTION_COMPLETE;

/// Two connections, and a read that the target has begun to answer on the one that is lost then.
fn lost_read(received: u32) -> (Crew, usize, InitiatorTaskTag) {
    let mut crew = Crew::new(2, 0, 20);
    let (lost, _, command) = crew.read(32 << 10);
    crew.exp_cmd_sn = command.cmd_sn.next();
    for n in 0..received {
        crew.data_in(lost, command.itt, n, n * 8192, 8192, false);
    }
    crew.cut(lost);
    (crew, 1 - lost, command.itt)
}

#[test]
fn a_read_goes_on_where_it_stopped() {
    let (mut crew, other, itt) = lost_read(2);
    assert!(!crew.session.is_over());
    let logout = crew.logout(other);
    assert_ne!(logout.cid, Cid(u16::MAX));
    assert!(crew.is_silent(other), "no task is reassigned before the logout has succeeded");
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = crew.reassign(other);
    assert_eq!((reassign.referenced_task_tag, reassign.exp_data_sn), (itt, 2));
    assert_eq!(reassign.lun, LunField::default(), "RFC 7143 section 11.5.3");
    crew.answer_task_management(other, &reassign, COMPLETE);
    crew.data_in(other, itt, 2, 16384, 8192, false);
    crew.data_in(other, itt, 3, 24576, 8192, true);
    crew.completed();
    let recoveries = crew.session.recoveries();
    assert_eq!((recoveries.connections, recoveries.reassignments, recoveries.retries), (1, 1, 0));
}

#[test]
fn the_target_may_begin_again() {
    for begin in [0, 1] {
        let (mut crew, other, itt) = lost_read(2);
        let logout = crew.logout(other);
        crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
        let reassign = crew.reassign(other);
        crew.answer_task_management(other, &reassign, COMPLETE);
        for n in begin..4 {
            crew.data_in(other, itt, n, n * 8192, 8192, n == 3);
        }
        crew.completed();
    }
}

#[test]
fn the_target_may_not_skip_data() {
    let (mut crew, other, itt) = lost_read(2);
    let logout = crew.logout(other);
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = crew.reassign(other);
    crew.answer_task_management(other, &reassign, COMPLETE);
    crew.data_in(other, itt, 2, 24576, 8192, true);
    assert!(matches!(crew.event(), Event::Closed { why: SessionError::Protocol { section: "11.7.6", .. }, .. }));
    assert!(crew.session.is_over());
}

#[test]
fn data_that_came_in_part_did_not_come() {
    for received in [1, 47, 48, 60, 48 + 8191] {
        let mut crew = Crew::new(2, 0, 20);
        let (lost, _, command) = crew.read(16 << 10);
        crew.exp_cmd_sn = command.cmd_sn.next();
        crew.data_in(lost, command.itt, 0, 0, 8192, false);
        let bytes = crew.data_in_bytes(lost, command.itt, 1, 8192, 8192, true);
        crew.raw(lost, &bytes[..received]);
        crew.cut(lost);
        let other = 1 - lost;
        let logout = crew.logout(other);
        crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
        let reassign = crew.reassign(other);
        assert_eq!(reassign.exp_data_sn, 1, "{received} bytes of the second PDU");
        crew.answer_task_management(other, &reassign, COMPLETE);
        crew.data_in(other, command.itt, 1, 8192, 8192, true);
        crew.completed();
    }
}

#[test]
fn a_write_is_asked_for_what_is_missing() {
    let mut crew = Crew::new(2, 0, 20);
    let (lost, _, command) = crew.write(24 << 10);
    crew.exp_cmd_sn = command.cmd_sn.next();
    crew.r2t(lost, command.itt, 0, 0, 8192);
    crew.r2t(lost, command.itt, 1, 8192, 8192);
    crew.cut(lost);
    let other = 1 - lost;
    let logout = crew.logout(other);
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = crew.reassign(other);
    assert_eq!(reassign.exp_data_sn, 0, "RFC 7143 section 11.5.6: only for what reads");
    crew.answer_task_management(other, &reassign, COMPLETE);
    // The second R2T's data was lost, and a third R2T.
    for (r2t_sn, offset) in [(3, 8192), (4, 16384)] {
        crew.r2t(other, command.itt, r2t_sn, offset, 8192);
        let sent = crew.next(other);
        let InitiatorPdu::DataOut(pdu) = sent.pdu else { panic!("{sent:?}") };
        assert_eq!((pdu.ttt, pdu.buffer_offset, pdu.data_sn), (TargetTransferTag(0x100 + r2t_sn), offset, 0));
        assert!(pdu.final_ && sent.data[..] == crate::harness::pattern(24 << 10)[offset as usize..][..8192]);
    }
    crew.respond(other, command.itt);
    crew.completed();
}

#[test]
fn what_the_target_does_not_have_is_sent_again_with_its_number() {
    let mut crew = Crew::new(2, 0, 20);
    let (lost, _, known) = crew.read(8192);
    crew.exp_cmd_sn = known.cmd_sn.next();
    let (other, _, gap) = crew.write(8192);
    // It lies on the other connection, and waits for those that are lost.
    let (same, _, unknown) = crew.read(4096);
    assert_eq!((lost, same), (1 - other, lost));
    crew.cut(lost);
    let logout = crew.logout(other);
    crew.exp_cmd_sn = gap.cmd_sn.next();
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    // First what fills the gap.
    let again = crew.command(other);
    assert_eq!((again.itt, again.cmd_sn, again.cdb), (unknown.itt, unknown.cmd_sn, unknown.cdb));
    assert_eq!(again.expected_data_transfer_length, 4096);
    let reassign = crew.reassign(other);
    assert_eq!(reassign.referenced_task_tag, known.itt);
    crew.exp_cmd_sn = unknown.cmd_sn.next();
    crew.answer_task_management(other, &reassign, COMPLETE);
    crew.data_in(other, unknown.itt, 0, 0, 4096, true);
    crew.data_in(other, known.itt, 0, 0, 8192, true);
    assert_eq!((crew.completed(), crew.completed()), (3, 1));
    assert_eq!(crew.session.recoveries().retries, 1);
}

#[test]
fn time2wait_is_waited_for_before_the_logout_and_after_it() {
    let mut crew = Crew::new(2, 3, 20);
    let (lost, _, command) = crew.read(4096);
    crew.exp_cmd_sn = command.cmd_sn.next();
    crew.cut(lost);
    let other = 1 - lost;
    crew.pass(Duration::from_millis(2999));
    assert!(crew.is_silent(other));
    crew.pass(Duration::from_millis(1));
    let logout = crew.logout(other);
    let response = LogoutResponse { time2wait: 5, ..crew.logout_response(other, &logout) };
    crew.send(other, response.emit(), &[]);
    crew.pass(Duration::from_millis(4999));
    assert!(crew.is_silent(other));
    crew.pass(Duration::from_millis(1));
    crew.reassign(other);
}

#[test]
fn the_session_is_lost_when_nobody_answers_within_time2retain() {
    let mut crew = Crew::new(2, 1, 9);
    let (lost, _, command) = crew.read(4096);
    crew.exp_cmd_sn = command.cmd_sn.next();
    crew.cut(lost);
    crew.pass(Duration::from_millis(9999));
    assert!(!crew.session.is_over());
    crew.pass(Duration::from_millis(1));
    assert!(matches!(crew.over(), SessionError::RecoveryFailed(_)));
    let unfinished: Vec<u64> = crew.session.into_unfinished().iter().map(|command| command.user).collect();
    assert_eq!(unfinished, [1]);
}

#[test]
fn nothing_is_recovered_when_nothing_is_retained() {
    let mut crew = Crew::new(2, 0, 0);
    let (lost, _, _) = crew.read(4096);
    crew.cut(lost);
    assert!(matches!(crew.over(), SessionError::RecoveryFailed(_)));
    assert_eq!(crew.session.into_unfinished().len(), 1);
}

#[test]
fn the_only_connection_is_replaced_by_a_login_with_its_number() {
    let mut crew = Crew::new(1, 2, 20);
    let (lost, _, known) = crew.read(8192);
    crew.exp_cmd_sn = known.cmd_sn.next();
    let (_, _, unknown) = crew.read(4096);
    let due = crew.stat_sn(lost);
    crew.cut(lost);
    assert!(!crew.session.wants_connection(), "Time2Wait");
    assert_eq!(crew.session.room(), 0);
    crew.pass(Duration::from_secs(2));
    assert!(crew.session.wants_connection());
    let new = crew.connect();
    assert!(!crew.session.wants_connection(), "one is enough");
    let request = crew.login_request(new);
    assert_eq!((request.tsih, request.cid), (Tsih(7), Cid(0)));
    assert_eq!(request.exp_stat_sn, due, "RFC 7143 section 11.12.9");
    crew.answer_login(new, &request, LoginStatus::SUCCESS, b"AuthMethod=None\0");
    let request = crew.login_request(new);
    crew.answer_login(new, &request, LoginStatus::SUCCESS, b"MaxRecvDataSegmentLength=8192\0");
    assert!(matches!(crew.event(), Event::LoggedIn(Cid(0))));
    let again = crew.command(new);
    assert_eq!((again.itt, again.cmd_sn), (unknown.itt, unknown.cmd_sn));
    let reassign = crew.reassign(new);
    assert_eq!(reassign.referenced_task_tag, known.itt);
    crew.exp_cmd_sn = unknown.cmd_sn.next();
    crew.answer_task_management(new, &reassign, COMPLETE);
    crew.data_in(new, known.itt, 0, 0, 8192, true);
    crew.data_in(new, unknown.itt, 0, 0, 4096, true);
    assert_eq!((crew.completed(), crew.completed()), (1, 2));
    assert_eq!(crew.session.recoveries().connections, 1);
    let (wire, _, _) = crew.read(4096);
    assert_eq!(wire, new);
}

/// The one that has its number is lost before all of its tasks have been taken over.
#[test]
fn the_only_connection_is_lost_again_while_its_tasks_are_taken_over() {
    for answered in [false, true] {
        let mut crew = Crew::new(1, 0, 20);
        let (first, _, command) = crew.read(8192);
        crew.exp_cmd_sn = command.cmd_sn.next();
        crew.cut(first);
        let second = crew.join();
        let reassign = crew.reassign(second);
        if answered {
            crew.answer_task_management(second, &reassign, COMPLETE);
        }
        crew.cut(second);
        let third = crew.join();
        // Its login has logged out both that had its number. A logout would be its own.
        let reassign = crew.reassign(third);
        assert_eq!(reassign.referenced_task_tag, command.itt);
        crew.answer_task_management(third, &reassign, COMPLETE);
        crew.data_in(third, command.itt, 0, 0, 8192, true);
        crew.completed();
        assert!(!crew.session.is_over() && !crew.session.is_recovering());
    }
}

#[test]
fn all_connections_are_lost_and_one_comes_back() {
    let mut crew = Crew::new(3, 0, 20);
    let commands: Vec<_> = (0..3).map(|_| crew.read(4096)).collect();
    crew.exp_cmd_sn = commands[2].2.cmd_sn.next();
    for wire in 0..3 {
        crew.cut(wire);
    }
    assert!(crew.session.wants_connection());
    let new = crew.join();
    // It stands for the first; the others are logged out by it.
    for _ in 0..3 {
        for _ in 0..2 {
            if crew.is_silent(new) {
                continue;
            }
            let sent = crew.next(new);
            match sent.pdu {
                InitiatorPdu::LogoutRequest(logout) => {
                    assert_ne!(logout.cid, Cid(0));
                    crew.answer_logout(new, &logout, LogoutResponseCode::CLOSED);
                }
                InitiatorPdu::TaskManagementRequest(reassign) => crew.answer_task_management(new, &reassign, COMPLETE),
                other => panic!("{other:?}"),
            }
        }
    }
    for (_, _, command) in &commands {
        crew.data_in(new, command.itt, 0, 0, 4096, true);
        crew.completed();
    }
    assert_eq!(crew.session.recoveries().connections, 3);
}

#[test]
fn a_login_that_is_refused_loses_the_session_and_one_that_fails_does_not() {
    for (status, lost) in [
        (LoginStatus::SESSION_DOES_NOT_EXIST, true),
        (LoginStatus::AUTHENTICATION_FAILURE, true),
        (LoginStatus::SERVICE_UNAVAILABLE, false),
    ] {
        let mut crew = Crew::new(1, 0, 20);
        crew.read(4096);
        crew.cut(0);
        let new = crew.connect();
        let request = crew.login_request(new);
        crew.answer_login(new, &request, status, &[]);
        assert!(matches!(crew.event(), Event::Closed { .. }));
        assert_eq!((crew.session.is_over(), crew.session.wants_connection()), (lost, !lost), "{status}");
        let new = crew.connect();
        if lost {
            crew.raw(new, &[]);
            assert!(matches!(crew.event(), Event::Closed { .. }), "nothing is connected to a session that is over");
            assert_eq!(crew.session.into_unfinished().len(), 1);
        } else {
            crew.cut(new);
            assert!(crew.session.wants_connection());
            crew.join();
        }
    }
}

#[test]
fn a_connection_that_is_lost_while_it_recovers_another_is_recovered_too() {
    for answered in [0, 1, 2] {
        let mut crew = Crew::new(3, 0, 20);
        let (first, _, command) = crew.read(8192);
        crew.exp_cmd_sn = command.cmd_sn.next();
        crew.cut(first);
        let second = (0..3).find(|wire| *wire != first && !crew.is_silent(*wire)).expect("a logout");
        let third = 3 - first - second;
        let logout = crew.logout(second);
        if answered == 0 {
            // The target did it, but the answer is lost.
            crew.cut(second);
            let mut logouts = [crew.logout(third), crew.logout(third)];
            logouts.sort_by_key(|logout| logout.cid != Cid(first as u16));
            crew.answer_logout(third, &logouts[0], LogoutResponseCode::CID_NOT_FOUND);
            crew.answer_logout(third, &logouts[1], LogoutResponseCode::CLOSED);
        } else {
            crew.answer_logout(second, &logout, LogoutResponseCode::CLOSED);
            let via = if crew.is_silent(second) { third } else { second };
            let reassign = crew.reassign(via);
            if answered == 2 {
                crew.answer_task_management(via, &reassign, COMPLETE);
            }
            crew.cut(via);
            let last = 3 - first - via;
            let logout = crew.logout(last);
            assert_eq!(logout.cid, Cid(via as u16));
            crew.answer_logout(last, &logout, LogoutResponseCode::CLOSED);
        }
        let last = (0..3).find(|wire| !crew.is_silent(*wire)).expect("a reassignment");
        let reassign = crew.reassign(last);
        assert_eq!(reassign.referenced_task_tag, command.itt);
        crew.answer_task_management(last, &reassign, COMPLETE);
        crew.data_in(last, command.itt, 0, 0, 8192, true);
        crew.completed();
        assert_eq!(crew.session.recoveries().connections, 2);
    }
}

#[test]
fn a_task_that_the_target_does_not_have_ends_without_an_answer() {
    let (mut crew, other, _) = lost_read(1);
    let logout = crew.logout(other);
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = crew.reassign(other);
    crew.answer_task_management(other, &reassign, TaskManagementResponseCode::TASK_DOES_NOT_EXIST);
    assert!(matches!(crew.event(), Event::Aborted(command) if command.user == 1));
    assert!(!crew.session.is_over());
    assert_eq!(crew.session.recoveries().connections, 1);
}

#[test]
fn refusals_lose_the_session() {
    for code in [
        TaskManagementResponseCode::TASK_STILL_ALLEGIANT,
        TaskManagementResponseCode::REASSIGNMENT_NOT_SUPPORTED,
        TaskManagementResponseCode::FUNCTION_REJECTED,
    ] {
        let (mut crew, other, _) = lost_read(1);
        let logout = crew.logout(other);
        crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
        let reassign = crew.reassign(other);
        crew.answer_task_management(other, &reassign, code);
        assert!(matches!(crew.over(), SessionError::RecoveryFailed(_)), "{code}");
        assert!(matches!(crew.event(), Event::Closed { why: SessionError::RecoveryFailed(_), .. }));
        assert_eq!(crew.session.into_unfinished().len(), 1);
    }
    let (mut crew, other, _) = lost_read(1);
    let logout = crew.logout(other);
    crew.answer_logout(other, &logout, LogoutResponseCode::RECOVERY_NOT_SUPPORTED);
    assert!(matches!(crew.over(), SessionError::RecoveryFailed(_)));
}

#[test]
fn a_cleanup_that_failed_is_asked_for_again() {
    let (mut crew, other, _) = lost_read(1);
    let logout = crew.logout(other);
    let response = LogoutResponse {
        response: LogoutResponseCode::CLEANUP_FAILED,
        time2wait: 2,
        ..crew.logout_response(other, &logout)
    };
    crew.send(other, response.emit(), &[]);
    crew.pass(Duration::from_millis(1999));
    assert!(crew.is_silent(other));
    crew.pass(Duration::from_millis(1));
    let logout = crew.logout(other);
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    crew.reassign(other);
}

#[test]
fn reassignments_do_not_flood_the_target() {
    let mut crew = Crew::new(2, 0, 20);
    let commands: Vec<_> = (0..30).map(|_| crew.read(4096)).collect();
    let lost = commands.iter().filter(|(connection, ..)| *connection == 0).count();
    assert!(lost > MAX_REASSIGNMENTS);
    crew.exp_cmd_sn = commands[29].2.cmd_sn.next();
    crew.cut(0);
    let logout = crew.logout(1);
    crew.answer_logout(1, &logout, LogoutResponseCode::CLOSED);
    let mut open: Vec<_> = (0..MAX_REASSIGNMENTS).map(|_| crew.reassign(1)).collect();
    assert!(crew.is_silent(1));
    let refused = open.remove(0);
    let reject = Reject {
        reason: RejectReason::TOO_MANY_IMMEDIATE_COMMANDS,
        stat_sn: crew.stat_sn(1),
        exp_cmd_sn: crew.exp_cmd_sn,
        max_cmd_sn: crew.max_cmd_sn(),
        data_sn: 0,
        data_segment_len: 48,
    };
    crew.send(1, reject.emit(), &refused.emit());
    assert!(crew.is_silent(1), "a busy target gets a pause");
    crew.pass(RECOVERY_PAUSE);
    let mut done = 0;
    while done < lost {
        if open.is_empty() || !crew.is_silent(1) {
            open.push(crew.reassign(1));
            continue;
        }
        assert!(open.len() <= MAX_REASSIGNMENTS);
        let reassign = open.remove(0);
        crew.answer_task_management(1, &reassign, COMPLETE);
        crew.data_in(1, reassign.referenced_task_tag, 0, 0, 4096, true);
        crew.completed();
        done += 1;
    }
    assert_eq!(crew.session.recoveries().connections, 1);
}

#[test]
fn other_requests_are_repeated_on_another_connection() {
    let mut crew = Crew::new(2, 0, 20);
    let (lost, tag, command) = crew.read(4096);
    crew.exp_cmd_sn = command.cmd_sn.next();
    let other = 1 - lost;
    assert!(crew.session.manage_tasks(7, TaskManagementFunction::ABORT_TASK, LUN, Some(tag)));
    assert!(crew.session.ping(8, Cid(lost as u16), b"here?".to_vec()));
    crew.raw(lost, &[]);
    crew.cut(lost);
    let logout = crew.logout(other);
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = crew.reassign(other);
    assert!(crew.is_silent(other), "ABORT TASK goes where its task is (RFC 7143 section 11.5.1)");
    crew.answer_task_management(other, &reassign, COMPLETE);
    let (mut abort, mut ping) = (None, None);
    for _ in 0..2 {
        let sent = crew.next(other);
        match sent.pdu {
            InitiatorPdu::TaskManagementRequest(pdu) => abort = Some(pdu),
            InitiatorPdu::NopOut(pdu) => ping = Some((pdu, sent.data)),
            other => panic!("{other:?}"),
        }
    }
    let abort = abort.expect("the abort");
    assert_eq!((abort.function, abort.referenced_task_tag), (TaskManagementFunction::ABORT_TASK, command.itt));
    let (ping, data) = ping.expect("the ping");
    assert_eq!(data, b"here?");
    crew.answer_task_management(other, &abort, COMPLETE);
    assert!(matches!(crew.event(), Event::Aborted(command) if command.user == 1));
    assert!(matches!(crew.event(), Event::TaskManagementDone { user: 7, response: COMPLETE, .. }));
    let echo = NopIn {
        lun: LunField::default(),
        itt: ping.itt,
        ttt: TargetTransferTag::RESERVED,
        stat_sn: crew.stat_sn(other),
        exp_cmd_sn: crew.exp_cmd_sn,
        max_cmd_sn: crew.max_cmd_sn(),
        data_segment_len: 5,
    };
    crew.send(other, echo.emit(), b"here?");
    assert!(matches!(crew.event(), Event::Pong { user: 8, intact: true }));
}

/// Answers the pings on all connections. Gives what else was sent, and where.
fn answer_pings(crew: &mut Crew, wires: usize) -> Vec<(usize, InitiatorPdu)> {
    let mut others = Vec::new();
    for wire in 0..wires {
        while !crew.is_silent(wire) {
            let ping = match crew.next(wire).pdu {
                InitiatorPdu::NopOut(ping) => ping,
                other => {
                    others.push((wire, other));
                    continue;
                }
            };
            let echo = NopIn {
                lun: LunField::default(),
                itt: ping.itt,
                ttt: TargetTransferTag::RESERVED,
                stat_sn: crew.stat_sn(wire),
                exp_cmd_sn: crew.exp_cmd_sn,
                max_cmd_sn: crew.max_cmd_sn(),
                data_segment_len: 0,
            };
            crew.send(wire, echo.emit(), &[]);
        }
    }
    others
}

/// The target answers nothing but pings, until that costs another connection. Gives what was sent there again and again, and the
/// requests after it on the next one.
fn wait_in_vain(crew: &mut Crew, wires: usize) -> (Vec<InitiatorPdu>, usize, Vec<InitiatorPdu>) {
    let mut sent = Vec::new();
    for _ in 0..100 {
        sent.extend(answer_pings(crew, wires));
        let messenger = sent[0].0;
        if let Some((next, _)) = sent.iter().find(|(wire, _)| *wire != messenger).copied() {
            let event = crew.event();
            assert!(matches!(event, Event::Closed { why: SessionError::Unrecovered(_), .. }), "{event:?}");
            let on = |wanted| sent.iter().filter(move |(wire, _)| *wire == wanted).map(|(_, pdu)| *pdu).collect();
            return (on(messenger), next, on(next));
        }
        crew.pass(Duration::from_secs(1));
    }
    panic!("{sent:?}");
}

#[test]
fn a_function_that_is_never_answered_goes_over_another_connection() {
    let mut crew = Crew::new(2, 0, 20);
    assert!(crew.session.manage_tasks(7, TaskManagementFunction::LOGICAL_UNIT_RESET, LUN, None));
    crew.raw(0, &[]);
    let (again, other, next) = wait_in_vain(&mut crew, 2);
    assert_eq!(again.len(), 1 + MAX_UNANSWERED_REQUESTS as usize, "{again:?}");
    let [InitiatorPdu::LogoutRequest(logout)] = next[..] else { panic!("{next:?}") };
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let request = crew.task_management(other);
    assert_eq!((request.function, request.lun), (TaskManagementFunction::LOGICAL_UNIT_RESET, LUN));
    crew.answer_task_management(other, &request, COMPLETE);
    assert!(matches!(crew.event(), Event::TaskManagementDone { user: 7, response: COMPLETE, .. }));
}

#[test]
fn steps_of_a_recovery_that_are_never_answered_go_over_another_connection() {
    for logs_out in [false, true] {
        let mut crew = Crew::new(3, 0, 3600);
        let (lost, _, command) = crew.read(4096);
        crew.exp_cmd_sn = command.cmd_sn.next();
        crew.cut(lost);
        if logs_out {
            let (wire, request) = answer_pings(&mut crew, 3).pop().expect("the logout");
            let InitiatorPdu::LogoutRequest(logout) = request else { panic!("{request:?}") };
            let closed = LogoutResponse { time2retain: 3600, ..crew.logout_response(wire, &logout) };
            crew.send(wire, closed.emit(), &[]);
        }
        let (again, last, mut requests) = wait_in_vain(&mut crew, 3);
        assert_eq!(again.len(), 1 + MAX_UNANSWERED_REQUESTS as usize, "{again:?}");
        let reassign = loop {
            match requests.remove(0) {
                InitiatorPdu::LogoutRequest(logout) => crew.answer_logout(last, &logout, LogoutResponseCode::CLOSED),
                InitiatorPdu::TaskManagementRequest(pdu) => break pdu,
                other => panic!("{other:?}"),
            }
            requests.extend(answer_pings(&mut crew, 3).into_iter().map(|(_, pdu)| pdu));
        };
        assert_eq!(reassign.referenced_task_tag, command.itt);
        crew.answer_task_management(last, &reassign, COMPLETE);
        crew.data_in(last, command.itt, 0, 0, 4096, true);
        crew.completed();
    }
}

/// RFC 7143 section 11.8.3: R2Ts and Data-In share one numbering, and ExpDataSN counts both.
#[test]
fn a_command_both_ways_goes_on_where_it_stopped() {
    let mut crew = Crew::new(2, 0, 20);
    let (lost, _, command) = crew.exchange(16 << 10);
    crew.exp_cmd_sn = command.cmd_sn.next();
    crew.r2t(lost, command.itt, 0, 0, 8192);
    crew.next(lost);
    crew.cut(lost);
    let other = 1 - lost;
    let logout = crew.logout(other);
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = crew.reassign(other);
    assert_eq!(reassign.exp_data_sn, 1);
    crew.answer_task_management(other, &reassign, COMPLETE);
    // All of the data was lost on its way; the numbers go on.
    for (r2t_sn, offset) in [(1, 0), (2, 8192)] {
        crew.r2t(other, command.itt, r2t_sn, offset, 8192);
        let sent = crew.next(other);
        assert!(matches!(sent.pdu, InitiatorPdu::DataOut(pdu) if pdu.buffer_offset == offset), "{sent:?}");
    }
    // The data for us begins behind the R2Ts, and the connection is lost once more.
    crew.data_in(other, command.itt, 3, 0, 8192, false);
    crew.cut(other);
    assert!(crew.session.wants_connection());
    let new = crew.join();
    let reassign = loop {
        match crew.peek(new) {
            InitiatorPdu::LogoutRequest(_) => {
                let logout = crew.logout(new);
                crew.answer_logout(new, &logout, LogoutResponseCode::CLOSED);
            }
            _ => break crew.reassign(new),
        }
    };
    assert_eq!(reassign.exp_data_sn, 4);
    crew.answer_task_management(new, &reassign, COMPLETE);
    crew.data_in(new, command.itt, 4, 8192, 8192, false);
    crew.respond(new, command.itt);
    crew.completed();
}

#[test]
fn an_abort_whose_task_has_ended_meanwhile_is_answered() {
    let mut crew = Crew::new(2, 0, 20);
    let (lost, tag, command) = crew.read(4096);
    crew.exp_cmd_sn = command.cmd_sn.next();
    assert!(crew.session.manage_tasks(7, TaskManagementFunction::ABORT_TASK, LUN, Some(tag)));
    crew.cut(lost);
    let other = 1 - lost;
    let logout = crew.logout(other);
    crew.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = crew.reassign(other);
    // It was executed, and the answer lost.
    crew.answer_task_management(other, &reassign, TaskManagementResponseCode::TASK_DOES_NOT_EXIST);
    assert!(matches!(crew.event(), Event::Aborted(command) if command.user == 1));
    let response = TaskManagementResponseCode::TASK_DOES_NOT_EXIST;
    assert!(matches!(crew.event(), Event::TaskManagementDone { user: 7, response: known, .. } if known == response));
    assert!(crew.is_silent(other));
}

#[test]
fn a_text_exchange_begins_anew_and_its_number_is_used_up() {
    for acknowledged in [false, true] {
        let mut crew = Crew::new(2, 0, 20);
        assert!(crew.session.text(5, &[("SendTargets", "All")]));
        crew.raw(0, &[]);
        let sent = crew.next(0);
        let InitiatorPdu::TextRequest(first) = sent.pdu else { panic!("{sent:?}") };
        if acknowledged {
            crew.exp_cmd_sn = first.cmd_sn.next();
        }
        crew.cut(0);
        let logout = crew.logout(1);
        crew.answer_logout(1, &logout, LogoutResponseCode::CLOSED);
        if !acknowledged {
            let sent = crew.next(1);
            let InitiatorPdu::NopOut(filler) = sent.pdu else { panic!("{sent:?}") };
            assert_eq!((filler.immediate, filler.cmd_sn), (false, first.cmd_sn));
            crew.exp_cmd_sn = filler.cmd_sn.next();
        }
        let sent = crew.next(1);
        let InitiatorPdu::TextRequest(again) = sent.pdu else { panic!("{sent:?}") };
        assert_eq!((sent.data.as_slice(), again.cmd_sn), (&b"SendTargets=All\0"[..], first.cmd_sn.next()));
        let response = TextResponse {
            final_: true,
            continue_: false,
            lun: LunField::default(),
            itt: again.itt,
            ttt: TargetTransferTag::RESERVED,
            stat_sn: crew.stat_sn(1),
            exp_cmd_sn: again.cmd_sn.next(),
            max_cmd_sn: again.cmd_sn.add(30),
            data_segment_len: 13,
        };
        crew.send(1, response.emit(), b"TargetName=a\0");
        assert!(matches!(crew.event(), Event::Text { user: 5, pairs, .. } if pairs.len() == 1));
    }
}

fn drop_notice(crew: &mut Crew, wire: usize, event: AsyncEvent, cid: u16, retain: u16) {
    let message = AsyncMessage {
        lun: LunField::default(),
        stat_sn: crew.stat_sn(wire),
        exp_cmd_sn: crew.exp_cmd_sn,
        max_cmd_sn: crew.max_cmd_sn(),
        event,
        vcode: 0,
        parameter1: cid,
        parameter2: 1,
        parameter3: retain,
        data_segment_len: 0,
    };
    crew.send(wire, message.emit(), &[]);
}

#[test]
fn the_target_says_that_it_has_dropped_a_connection() {
    let mut crew = Crew::new(2, 0, 20);
    let (lost, _, command) = crew.read(4096);
    crew.exp_cmd_sn = command.cmd_sn.next();
    let other = 1 - lost;
    drop_notice(&mut crew, other, AsyncEvent::CONNECTION_DROP, lost as u16, 5);
    assert!(matches!(crew.event(), Event::Async { .. }));
    assert!(matches!(crew.event(), Event::Closed { cid, why: SessionError::Dropped } if cid == Cid(lost as u16)));
    assert!(crew.is_silent(other), "the Time2Wait of the message");
    crew.pass(Duration::from_secs(1));
    let logout = crew.logout(other);
    assert_eq!(logout.cid, Cid(lost as u16));
    crew.pass(Duration::from_secs(5));
    assert!(matches!(crew.over(), SessionError::RecoveryFailed(_)), "the Time2Retain of the message");
}

#[test]
fn a_drop_notice_that_comes_late_does_not_end_the_connection_that_has_the_number_now() {
    for lives in [true, false] {
        let mut crew = Crew::new(2, 0, 20);
        crew.cut(1);
        let logout = crew.logout(0);
        crew.answer_logout(0, &logout, LogoutResponseCode::CLOSED);
        let again = crew.join();
        drop_notice(&mut crew, 0, AsyncEvent::CONNECTION_DROP, 1, 20);
        assert!(matches!(crew.event(), Event::Async { .. }));
        assert!(crew.events.is_empty(), "{:?}", crew.events);
        assert!(matches!(crew.next(again).pdu, InitiatorPdu::NopOut(_)), "it is asked for a sign of life");
        if lives {
            crew.sign_of_life(again);
        }
        crew.pass(Timers::default().ping_answer);
        let ended = matches!(crew.events.front(), Some(Event::Closed { why: SessionError::PingTimeout, .. }));
        assert_eq!(ended, !lives, "{:?}", crew.events);
    }
}

#[test]
fn a_session_that_is_dropped_for_good_is_lost() {
    let mut crew = Crew::new(1, 0, 20);
    crew.read(4096);
    drop_notice(&mut crew, 0, AsyncEvent::SESSION_DROP, 0, 0);
    assert!(matches!(crew.event(), Event::Async { .. }));
    crew.cut(0);
    assert!(crew.session.is_over());
}

#[test]
fn broken_rules_lose_the_session_at_this_level_too() {
    let mut crew = Crew::new(2, 0, 20);
    let (wire, _, command) = crew.read(4096);
    crew.exp_cmd_sn = command.cmd_sn.next();
    crew.data_in(wire, InitiatorTaskTag(0x7777_0000), 0, 0, 512, true);
    assert!(matches!(crew.event(), Event::Closed { why: SessionError::Protocol { .. }, .. }));
    assert!(crew.session.is_over());
}

#[test]
fn a_logout_of_the_session_stops_all_recovery() {
    let (mut crew, other, _) = lost_read(1);
    crew.logout(other);
    assert!(crew.session.logout());
    crew.cut(other);
    assert!(crew.session.is_over());
    assert_eq!(crew.session.into_unfinished().len(), 1);
}

#[test]
fn the_number_of_a_recovered_connection_is_free_again() {
    let mut crew = Crew::new(2, 0, 20);
    crew.cut(0);
    let logout = crew.logout(1);
    let early = crew.connect();
    assert_eq!(crew.login_request(early).cid, Cid(2), "not while it is recovered");
    crew.answer_logout(1, &logout, LogoutResponseCode::CLOSED);
    let new = crew.connect();
    assert_eq!(crew.login_request(new).cid, Cid(0));
}

#[test]
fn what_one_connection_did_not_bring_is_not_held_against_the_next() {
    let mut crew = Crew::new(1, 0, 60);
    let resend = Timers::default().resend;
    let (_, _, command) = crew.read(4096);
    crew.raw(0, &[]);
    for _ in 0..=MAX_UNANSWERED_REQUESTS {
        // The target lives, and does not acknowledge the command.
        crew.pass(Duration::from_millis(1));
        crew.sign_of_life(0);
        crew.pass(resend);
    }
    assert!(matches!(crew.event(), Event::Closed { why: SessionError::Unrecovered(_), .. }));
    crew.pass(resend.saturating_sub(Duration::from_millis(10)));
    let new = crew.join();
    assert_eq!(crew.command(new).itt, command.itt);
    crew.pass(Duration::from_millis(10));
    assert!(crew.events.is_empty(), "given up at once: {:?}", crew.events);
    crew.exp_cmd_sn = command.cmd_sn.next();
    crew.data_in(new, command.itt, 0, 0, 4096, true);
    crew.completed();
}

#[test]
fn a_connection_may_leave_while_the_other_one_is_lost() {
    let mut crew = Crew::new(2, 0, 20);
    assert!(crew.session.remove_connection(Cid(1)));
    crew.raw(1, &[]);
    let sent = crew.next(1);
    let InitiatorPdu::LogoutRequest(logout) = sent.pdu else { panic!("{sent:?}") };
    crew.cut(0);
    crew.exp_cmd_sn = logout.cmd_sn.next();
    crew.answer_logout(1, &logout, LogoutResponseCode::CLOSED);
    assert!(matches!(crew.event(), Event::Closed { cid: Cid(1), why: SessionError::ConnectionRemoved }));
    assert!(!crew.session.is_over() && crew.session.wants_connection());
    crew.join();
    assert!(!crew.session.is_recovering());
    crew.read(4096);
}

#[test]
fn an_answer_may_come_after_the_reset_that_ended_its_task() {
    // The target lost the connection before we do, so it waited for no acknowledgement there (RFC 7143 section 4.2.2.3.3).
    for (level, with_data) in [(0, true), (0, false), (1, true), (1, false), (2, true), (2, false)] {
        let mut crew = Crew::at_level(level, 2, (0, 20));
        let (first, _, one) = crew.read(4096);
        let (second, _, two) = crew.read(4096);
        assert_ne!(first, second);
        crew.exp_cmd_sn = two.cmd_sn.next();
        assert!(crew.session.manage_tasks(7, TaskManagementFunction::LOGICAL_UNIT_RESET, LUN, None));
        crew.raw(first, &[]);
        let asked = if crew.is_silent(first) { second } else { first };
        let (late, itt) = if asked == first { (second, two.itt) } else { (first, one.itt) };
        let reset = crew.task_management(asked);
        crew.answer_task_management(asked, &reset, COMPLETE);
        for _ in 0..2 {
            assert!(matches!(crew.event(), Event::Aborted(_)));
        }
        assert!(matches!(crew.event(), Event::TaskManagementDone { user: 7, .. }));
        if with_data {
            crew.data_in(late, itt, 0, 0, 4096, true);
        } else {
            crew.respond(late, itt);
        }
        // It is acknowledged, and the connection serves on.
        let expected = crew.stat_sn(late);
        assert!(crew.session.ping(8, Cid(late as u16), b"here?".to_vec()));
        crew.raw(late, &[]);
        let InitiatorPdu::NopOut(ping) = crew.next(late).pdu else { panic!("a ping") };
        assert_eq!(ping.exp_stat_sn, expected);
    }
}

#[test]
fn a_ping_is_repeated_as_far_as_the_new_connection_takes_it() {
    let mut crew = Crew::new(1, 0, 20);
    assert!(crew.session.ping(7, Cid(0), vec![5; 1000]));
    crew.raw(0, &[]);
    crew.cut(0);
    let new = crew.connect();
    for answer in [&b"AuthMethod=None\0"[..], b"MaxRecvDataSegmentLength=512\0"] {
        let request = crew.login_request(new);
        crew.answer_login(new, &request, LoginStatus::SUCCESS, answer);
    }
    assert!(matches!(crew.event(), Event::LoggedIn(Cid(0))));
    let sent = crew.next(new);
    let InitiatorPdu::NopOut(ping) = sent.pdu else { panic!("{sent:?} is no ping") };
    assert_eq!(sent.data, vec![5; 512]);
    let stat_sn = crew.stat_sn(new);
    let pong = NopIn {
        lun: LunField::default(),
        itt: ping.itt,
        ttt: TargetTransferTag::RESERVED,
        stat_sn,
        exp_cmd_sn: crew.exp_cmd_sn,
        max_cmd_sn: crew.max_cmd_sn(),
        data_segment_len: 512,
    };
    crew.send(new, pong.emit(), &[5; 512]);
    assert!(matches!(crew.event(), Event::Pong { user: 7, intact: true }));
}
