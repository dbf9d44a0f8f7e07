//! Over which connection the session goes on, and until when it waits for one.

use std::time::Duration;

use lunette_pdu::{Cid, InitiatorPdu, LoginStatus, LogoutResponse, LogoutResponseCode, Tsih};
use lunette_session::iscsi_initiator::{Event, SessionError};

use super::COMPLETE;
use crate::harness::ScriptedSession;

#[test]
fn time2wait_is_waited_for_before_the_logout_and_after_it() {
    let mut peer = ScriptedSession::new(2, 3, 20);
    let (lost, _, command) = peer.read(4096);
    peer.exp_cmd_sn = command.cmd_sn.next();
    peer.cut(lost);
    let other = 1 - lost;
    peer.pass(Duration::from_millis(2999));
    assert!(peer.is_silent(other));
    peer.pass(Duration::from_millis(1));
    let logout = peer.logout(other);
    let response = LogoutResponse { time2wait: 5, ..peer.logout_response(other, &logout) };
    peer.send(other, response.emit(), &[]);
    peer.pass(Duration::from_millis(4999));
    assert!(peer.is_silent(other));
    peer.pass(Duration::from_millis(1));
    peer.reassign(other);
}

#[test]
fn the_session_is_lost_when_nobody_answers_within_time2retain() {
    let mut peer = ScriptedSession::new(2, 1, 9);
    let (lost, _, command) = peer.read(4096);
    peer.exp_cmd_sn = command.cmd_sn.next();
    peer.cut(lost);
    peer.pass(Duration::from_millis(9999));
    assert!(!peer.session.is_over());
    peer.pass(Duration::from_millis(1));
    assert!(matches!(peer.over(), SessionError::RecoveryFailed(_)));
    let unfinished: Vec<u64> = peer.session.into_unfinished().iter().map(|command| command.user).collect();
    assert_eq!(unfinished, [1]);
}

#[test]
fn nothing_is_recovered_when_nothing_is_retained() {
    let mut peer = ScriptedSession::new(2, 0, 0);
    let (lost, _, _) = peer.read(4096);
    peer.cut(lost);
    assert!(matches!(peer.over(), SessionError::RecoveryFailed(_)));
    assert_eq!(peer.session.into_unfinished().len(), 1);
}

#[test]
fn the_only_connection_is_replaced_by_a_login_with_its_number() {
    let mut peer = ScriptedSession::new(1, 2, 20);
    let (lost, _, known) = peer.read(8192);
    peer.exp_cmd_sn = known.cmd_sn.next();
    let (_, _, unknown) = peer.read(4096);
    let due = peer.stat_sn(lost);
    peer.cut(lost);
    assert!(!peer.session.wants_connection(), "Time2Wait");
    assert_eq!(peer.session.room(), 0);
    peer.pass(Duration::from_secs(2));
    assert!(peer.session.wants_connection());
    let new = peer.connect();
    assert!(!peer.session.wants_connection(), "one is enough");
    let request = peer.login_request(new);
    assert_eq!((request.tsih, request.cid), (Tsih(7), Cid(0)));
    assert_eq!(request.exp_stat_sn, due, "RFC 7143 section 11.12.9");
    peer.answer_login(new, &request, LoginStatus::SUCCESS, b"AuthMethod=None\0");
    let request = peer.login_request(new);
    peer.answer_login(new, &request, LoginStatus::SUCCESS, b"MaxRecvDataSegmentLength=8192\0");
    assert!(matches!(peer.event(), Event::LoggedIn(Cid(0))));
    let again = peer.command(new);
    assert_eq!((again.itt, again.cmd_sn), (unknown.itt, unknown.cmd_sn));
    let reassign = peer.reassign(new);
    assert_eq!(reassign.referenced_task_tag, known.itt);
    peer.exp_cmd_sn = unknown.cmd_sn.next();
    peer.answer_task_management(new, &reassign, COMPLETE);
    peer.data_in(new, known.itt, 0, 0, 8192, true);
    peer.data_in(new, unknown.itt, 0, 0, 4096, true);
    assert_eq!((peer.completed(), peer.completed()), (1, 2));
    assert_eq!(peer.session.recoveries().connections, 1);
    let (wire, _, _) = peer.read(4096);
    assert_eq!(wire, new);
}

/// The one that has its number is lost before all of its tasks have been taken over.
#[test]
fn the_only_connection_is_lost_again_while_its_tasks_are_taken_over() {
    for answered in [false, true] {
        let mut peer = ScriptedSession::new(1, 0, 20);
        let (first, _, command) = peer.read(8192);
        peer.exp_cmd_sn = command.cmd_sn.next();
        peer.cut(first);
        let second = peer.join();
        let reassign = peer.reassign(second);
        if answered {
            peer.answer_task_management(second, &reassign, COMPLETE);
        }
        peer.cut(second);
        let third = peer.join();
        // Its login has logged out both that had its number. A logout would be its own.
        let reassign = peer.reassign(third);
        assert_eq!(reassign.referenced_task_tag, command.itt);
        peer.answer_task_management(third, &reassign, COMPLETE);
        peer.data_in(third, command.itt, 0, 0, 8192, true);
        peer.completed();
        assert!(!peer.session.is_over() && !peer.session.is_recovering());
    }
}

#[test]
fn all_connections_are_lost_and_one_comes_back() {
    let mut peer = ScriptedSession::new(3, 0, 20);
    let commands: Vec<_> = (0..3).map(|_| peer.read(4096)).collect();
    peer.exp_cmd_sn = commands[2].2.cmd_sn.next();
    for wire in 0..3 {
        peer.cut(wire);
    }
    assert!(peer.session.wants_connection());
    let new = peer.join();
    // It stands for the first; the others are logged out by it.
    for _ in 0..3 {
        for _ in 0..2 {
            if peer.is_silent(new) {
                continue;
            }
            let sent = peer.next(new);
            match sent.pdu {
                InitiatorPdu::LogoutRequest(logout) => {
                    assert_ne!(logout.cid, Cid(0));
                    peer.answer_logout(new, &logout, LogoutResponseCode::CLOSED);
                }
                InitiatorPdu::TaskManagementRequest(reassign) => peer.answer_task_management(new, &reassign, COMPLETE),
                other => panic!("{other:?}"),
            }
        }
    }
    for (_, _, command) in &commands {
        peer.data_in(new, command.itt, 0, 0, 4096, true);
        peer.completed();
    }
    assert_eq!(peer.session.recoveries().connections, 3);
}

#[test]
fn a_login_that_is_refused_loses_the_session_and_one_that_fails_does_not() {
    for (status, lost) in [
        (LoginStatus::SESSION_DOES_NOT_EXIST, true),
        (LoginStatus::AUTHENTICATION_FAILURE, true),
        (LoginStatus::SERVICE_UNAVAILABLE, false),
    ] {
        let mut peer = ScriptedSession::new(1, 0, 20);
        peer.read(4096);
        peer.cut(0);
        let new = peer.connect();
        let request = peer.login_request(new);
        peer.answer_login(new, &request, status, &[]);
        assert!(matches!(peer.event(), Event::Closed { .. }));
        assert_eq!((peer.session.is_over(), peer.session.wants_connection()), (lost, !lost), "{status}");
        let new = peer.connect();
        if lost {
            peer.raw(new, &[]);
            assert!(matches!(peer.event(), Event::Closed { .. }), "nothing is connected to a session that is over");
            assert_eq!(peer.session.into_unfinished().len(), 1);
        } else {
            peer.cut(new);
            assert!(peer.session.wants_connection());
            peer.join();
        }
    }
}

#[test]
fn a_connection_that_is_lost_while_it_recovers_another_is_recovered_too() {
    for answered in [0, 1, 2] {
        let mut peer = ScriptedSession::new(3, 0, 20);
        let (first, _, command) = peer.read(8192);
        peer.exp_cmd_sn = command.cmd_sn.next();
        peer.cut(first);
        let second = (0..3).find(|wire| *wire != first && !peer.is_silent(*wire)).expect("a logout");
        let third = 3 - first - second;
        let logout = peer.logout(second);
        if answered == 0 {
            // The target did it, but the answer is lost.
            peer.cut(second);
            let mut logouts = [peer.logout(third), peer.logout(third)];
            logouts.sort_by_key(|logout| logout.cid != Cid(first as u16));
            peer.answer_logout(third, &logouts[0], LogoutResponseCode::CID_NOT_FOUND);
            peer.answer_logout(third, &logouts[1], LogoutResponseCode::CLOSED);
        } else {
            peer.answer_logout(second, &logout, LogoutResponseCode::CLOSED);
            let via = if peer.is_silent(second) { third } else { second };
            let reassign = peer.reassign(via);
            if answered == 2 {
                peer.answer_task_management(via, &reassign, COMPLETE);
            }
            peer.cut(via);
            let last = 3 - first - via;
            let logout = peer.logout(last);
            assert_eq!(logout.cid, Cid(via as u16));
            peer.answer_logout(last, &logout, LogoutResponseCode::CLOSED);
        }
        let last = (0..3).find(|wire| !peer.is_silent(*wire)).expect("a reassignment");
        let reassign = peer.reassign(last);
        assert_eq!(reassign.referenced_task_tag, command.itt);
        peer.answer_task_management(last, &reassign, COMPLETE);
        peer.data_in(last, command.itt, 0, 0, 8192, true);
        peer.completed();
        assert_eq!(peer.session.recoveries().connections, 2);
    }
}

#[test]
fn the_number_of_a_recovered_connection_is_free_again() {
    let mut peer = ScriptedSession::new(2, 0, 20);
    peer.cut(0);
    let logout = peer.logout(1);
    let early = peer.connect();
    assert_eq!(peer.login_request(early).cid, Cid(2), "not while it is recovered");
    peer.answer_logout(1, &logout, LogoutResponseCode::CLOSED);
    let new = peer.connect();
    assert_eq!(peer.login_request(new).cid, Cid(0));
}

#[test]
fn a_connection_may_leave_while_the_other_one_is_lost() {
    let mut peer = ScriptedSession::new(2, 0, 20);
    assert!(peer.session.remove_connection(Cid(1)));
    peer.raw(1, &[]);
    let sent = peer.next(1);
    let InitiatorPdu::LogoutRequest(logout) = sent.pdu else { panic!("{sent:?}") };
    peer.cut(0);
    peer.exp_cmd_sn = logout.cmd_sn.next();
    peer.answer_logout(1, &logout, LogoutResponseCode::CLOSED);
    assert!(matches!(peer.event(), Event::Closed { cid: Cid(1), why: SessionError::ConnectionRemoved }));
    assert!(!peer.session.is_over() && peer.session.wants_connection());
    peer.join();
    assert!(!peer.session.is_recovering());
    peer.read(4096);
}
