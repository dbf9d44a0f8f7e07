//! Requests that are no commands, and requests that are never answered.

use std::time::Duration;

use lunette_pdu::{
    Cid, InitiatorPdu, LoginStatus, LogoutResponse, LogoutResponseCode, NopIn, TaskManagementFunction,
    TaskManagementResponseCode,
};
use lunette_session::iscsi_initiator::{Event, SessionError};
use lunette_session::limits::MAX_UNANSWERED_REQUESTS;

use super::COMPLETE;
use lunette_testkit::Numbers;

use crate::harness::{LUN, ScriptedSession};

#[test]
fn other_requests_are_repeated_on_another_connection() {
    let mut peer = ScriptedSession::new(2, 0, 20);
    let (lost, tag, command) = peer.read(4096);
    peer.exp_cmd_sn = command.cmd_sn.next();
    let other = 1 - lost;
    assert!(peer.session.manage_tasks(7, TaskManagementFunction::ABORT_TASK, LUN, Some(tag)));
    assert!(peer.session.ping(8, Cid(lost as u16), b"here?".to_vec()));
    peer.raw(lost, &[]);
    peer.cut(lost);
    let logout = peer.logout(other);
    peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = peer.reassign(other);
    assert!(peer.is_silent(other), "ABORT TASK goes where its task is (RFC 7143 section 11.5.1)");
    peer.answer_task_management(other, &reassign, COMPLETE);
    let (mut abort, mut ping) = (None, None);
    for _ in 0..2 {
        let sent = peer.next(other);
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
    peer.answer_task_management(other, &abort, COMPLETE);
    assert!(matches!(peer.event(), Event::Aborted(command) if command.user == 1));
    assert!(matches!(peer.event(), Event::TaskManagementDone { user: 7, response: COMPLETE, .. }));
    let echo = NopIn { data_segment_len: 5, ..peer.used(other).nop_in(ping.itt) };
    peer.send(other, echo.emit(), b"here?");
    assert!(matches!(peer.event(), Event::Pong { user: 8, intact: true }));
}

/// Answers the pings on all connections. Gives what else was sent, and where.
fn answer_pings(peer: &mut ScriptedSession, wires: usize) -> Vec<(usize, InitiatorPdu)> {
    let mut others = Vec::new();
    for wire in 0..wires {
        while !peer.is_silent(wire) {
            let ping = match peer.next(wire).pdu {
                InitiatorPdu::NopOut(ping) => ping,
                other => {
                    others.push((wire, other));
                    continue;
                }
            };
            let echo = peer.used(wire).nop_in(ping.itt);
            peer.send(wire, echo.emit(), &[]);
        }
    }
    others
}

/// The target answers nothing but pings, until that costs another connection. Gives what was sent there again and
/// again, and the requests after it on the next one.
fn wait_in_vain(peer: &mut ScriptedSession, wires: usize) -> (Vec<InitiatorPdu>, usize, Vec<InitiatorPdu>) {
    let mut sent = Vec::new();
    for _ in 0..100 {
        sent.extend(answer_pings(peer, wires));
        let messenger = sent[0].0;
        if let Some((next, _)) = sent.iter().find(|(wire, _)| *wire != messenger).copied() {
            let event = peer.event();
            assert!(matches!(event, Event::Closed { why: SessionError::Unrecovered(_), .. }), "{event:?}");
            let on = |wanted| sent.iter().filter(move |(wire, _)| *wire == wanted).map(|(_, pdu)| *pdu).collect();
            return (on(messenger), next, on(next));
        }
        peer.pass(Duration::from_secs(1));
    }
    panic!("{sent:?}");
}

#[test]
fn a_function_that_is_never_answered_goes_over_another_connection() {
    let mut peer = ScriptedSession::new(2, 0, 20);
    assert!(peer.session.manage_tasks(7, TaskManagementFunction::LOGICAL_UNIT_RESET, LUN, None));
    peer.raw(0, &[]);
    let (again, other, next) = wait_in_vain(&mut peer, 2);
    assert_eq!(again.len(), 1 + MAX_UNANSWERED_REQUESTS as usize, "{again:?}");
    let [InitiatorPdu::LogoutRequest(logout)] = next[..] else { panic!("{next:?}") };
    peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let request = peer.task_management(other);
    assert_eq!((request.function, request.lun), (TaskManagementFunction::LOGICAL_UNIT_RESET, LUN));
    peer.answer_task_management(other, &request, COMPLETE);
    assert!(matches!(peer.event(), Event::TaskManagementDone { user: 7, response: COMPLETE, .. }));
}

#[test]
fn steps_of_a_recovery_that_are_never_answered_go_over_another_connection() {
    for logs_out in [false, true] {
        let mut peer = ScriptedSession::new(3, 0, 3600);
        let (lost, _, command) = peer.read(4096);
        peer.exp_cmd_sn = command.cmd_sn.next();
        peer.cut(lost);
        if logs_out {
            let (wire, request) = answer_pings(&mut peer, 3).pop().expect("the logout");
            let InitiatorPdu::LogoutRequest(logout) = request else { panic!("{request:?}") };
            let closed = LogoutResponse { time2retain: 3600, ..peer.logout_response(wire, &logout) };
            peer.send(wire, closed.emit(), &[]);
        }
        let (again, last, mut requests) = wait_in_vain(&mut peer, 3);
        assert_eq!(again.len(), 1 + MAX_UNANSWERED_REQUESTS as usize, "{again:?}");
        let reassign = loop {
            match requests.remove(0) {
                InitiatorPdu::LogoutRequest(logout) => peer.answer_logout(last, &logout, LogoutResponseCode::CLOSED),
                InitiatorPdu::TaskManagementRequest(pdu) => break pdu,
                other => panic!("{other:?}"),
            }
            requests.extend(answer_pings(&mut peer, 3).into_iter().map(|(_, pdu)| pdu));
        };
        assert_eq!(reassign.referenced_task_tag, command.itt);
        peer.answer_task_management(last, &reassign, COMPLETE);
        peer.data_in(last, command.itt, 0, 0, 4096, true);
        peer.completed();
    }
}

#[test]
fn an_abort_whose_task_has_ended_meanwhile_is_answered() {
    let mut peer = ScriptedSession::new(2, 0, 20);
    let (lost, tag, command) = peer.read(4096);
    peer.exp_cmd_sn = command.cmd_sn.next();
    assert!(peer.session.manage_tasks(7, TaskManagementFunction::ABORT_TASK, LUN, Some(tag)));
    peer.cut(lost);
    let other = 1 - lost;
    let logout = peer.logout(other);
    peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    let reassign = peer.reassign(other);
    // It was executed, and the answer lost.
    peer.answer_task_management(other, &reassign, TaskManagementResponseCode::TASK_DOES_NOT_EXIST);
    assert!(matches!(peer.event(), Event::Aborted(command) if command.user == 1));
    let response = TaskManagementResponseCode::TASK_DOES_NOT_EXIST;
    assert!(matches!(peer.event(), Event::TaskManagementDone { user: 7, response: known, .. } if known == response));
    assert!(peer.is_silent(other));
}

#[test]
fn a_text_exchange_begins_anew_and_its_number_is_used_up() {
    for acknowledged in [false, true] {
        let mut peer = ScriptedSession::new(2, 0, 20);
        assert!(peer.session.text(5, &[("SendTargets", "All")]));
        peer.raw(0, &[]);
        let sent = peer.next(0);
        let InitiatorPdu::TextRequest(first) = sent.pdu else { panic!("{sent:?}") };
        if acknowledged {
            peer.exp_cmd_sn = first.cmd_sn.next();
        }
        peer.cut(0);
        let logout = peer.logout(1);
        peer.answer_logout(1, &logout, LogoutResponseCode::CLOSED);
        if !acknowledged {
            let sent = peer.next(1);
            let InitiatorPdu::NopOut(filler) = sent.pdu else { panic!("{sent:?}") };
            assert_eq!((filler.immediate, filler.cmd_sn), (false, first.cmd_sn));
            peer.exp_cmd_sn = filler.cmd_sn.next();
        }
        let sent = peer.next(1);
        let InitiatorPdu::TextRequest(again) = sent.pdu else { panic!("{sent:?}") };
        assert_eq!((sent.data.as_slice(), again.cmd_sn), (&b"SendTargets=All\0"[..], first.cmd_sn.next()));
        let response = Numbers::new(peer.stat_sn(1), again.cmd_sn.next()).text_response(again.itt, 13);
        peer.send(1, response.emit(), b"TargetName=a\0");
        assert!(matches!(peer.event(), Event::Text { user: 5, pairs, .. } if pairs.len() == 1));
    }
}

#[test]
fn a_ping_is_repeated_as_far_as_the_new_connection_takes_it() {
    let mut peer = ScriptedSession::new(1, 0, 20);
    assert!(peer.session.ping(7, Cid(0), vec![5; 1000]));
    peer.raw(0, &[]);
    peer.cut(0);
    let new = peer.connect();
    for answer in [&b"AuthMethod=None\0"[..], b"MaxRecvDataSegmentLength=512\0"] {
        let request = peer.login_request(new);
        peer.answer_login(new, &request, LoginStatus::SUCCESS, answer);
    }
    assert!(matches!(peer.event(), Event::LoggedIn(Cid(0))));
    let sent = peer.next(new);
    let InitiatorPdu::NopOut(ping) = sent.pdu else { panic!("{sent:?} is no ping") };
    assert_eq!(sent.data, vec![5; 512]);
    let pong = NopIn { data_segment_len: 512, ..peer.used(new).nop_in(ping.itt) };
    peer.send(new, pong.emit(), &[5; 512]);
    assert!(matches!(peer.event(), Event::Pong { user: 7, intact: true }));
}
