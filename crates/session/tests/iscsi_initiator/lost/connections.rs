//! Over which connection the session goes on, and until when it waits for one.

use std::time::Duration;

use lunette_pdu::{Cid, InitiatorPdu, LoginStatus, LogoutResponse, LogoutResponseCode, Tsih};
use lunette_session::iscsi_initiator::{Event, SessionError};

use super::COMPLETE;
use crate::harness::Crew;

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
