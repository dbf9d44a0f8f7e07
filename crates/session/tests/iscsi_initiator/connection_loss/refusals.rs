//! The target's answers to a recovery: refusals, notices, and broken rules.

use std::time::Duration;

use lunette_pdu::{
    AsyncEvent, AsyncMessage, Cid, InitiatorPdu, InitiatorTaskTag, LogoutResponse, LogoutResponseCode,
    TaskManagementResponseCode,
};
use lunette_session::Timers;
use lunette_session::iscsi_initiator::{Event, SessionError};

use super::lost_read;
use crate::harness::ScriptedSession;

#[test]
fn refusals_lose_the_session() {
    for code in [
        TaskManagementResponseCode::TASK_STILL_ALLEGIANT,
        TaskManagementResponseCode::REASSIGNMENT_NOT_SUPPORTED,
        TaskManagementResponseCode::FUNCTION_REJECTED,
    ] {
        let (mut peer, other, _) = lost_read(1);
        let logout = peer.logout(other);
        peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
        let reassign = peer.reassign(other);
        peer.answer_task_management(other, &reassign, code);
        assert!(matches!(peer.over(), SessionError::RecoveryFailed(_)), "{code}");
        assert!(matches!(peer.event(), Event::Closed { why: SessionError::RecoveryFailed(_), .. }));
        assert_eq!(peer.session.into_unfinished().len(), 1);
    }
    let (mut peer, other, _) = lost_read(1);
    let logout = peer.logout(other);
    peer.answer_logout(other, &logout, LogoutResponseCode::RECOVERY_NOT_SUPPORTED);
    assert!(matches!(peer.over(), SessionError::RecoveryFailed(_)));
}

#[test]
fn a_cleanup_that_failed_is_asked_for_again() {
    let (mut peer, other, _) = lost_read(1);
    let logout = peer.logout(other);
    let response = LogoutResponse {
        response: LogoutResponseCode::CLEANUP_FAILED,
        time2wait: 2,
        ..peer.logout_response(other, &logout)
    };
    peer.send(other, response.emit(), &[]);
    peer.pass(Duration::from_millis(1999));
    assert!(peer.is_silent(other));
    peer.pass(Duration::from_millis(1));
    let logout = peer.logout(other);
    peer.answer_logout(other, &logout, LogoutResponseCode::CLOSED);
    peer.reassign(other);
}

fn drop_notice(peer: &mut ScriptedSession, wire: usize, event: AsyncEvent, cid: u16, retain: u16) {
    let message =
        AsyncMessage { parameter1: cid, parameter2: 1, parameter3: retain, ..peer.used(wire).async_message(event) };
    peer.send(wire, message.emit(), &[]);
}

#[test]
fn the_target_says_that_it_has_dropped_a_connection() {
    let mut peer = ScriptedSession::new(2, 0, 20);
    let (lost, _, command) = peer.read(4096);
    peer.exp_cmd_sn = command.cmd_sn.next();
    let other = 1 - lost;
    drop_notice(&mut peer, other, AsyncEvent::CONNECTION_DROP, lost as u16, 5);
    assert!(matches!(peer.event(), Event::Async { .. }));
    assert!(matches!(peer.event(), Event::Closed { cid, why: SessionError::Dropped } if cid == Cid(lost as u16)));
    assert!(peer.is_silent(other), "the Time2Wait of the message");
    peer.pass(Duration::from_secs(1));
    let logout = peer.logout(other);
    assert_eq!(logout.cid, Cid(lost as u16));
    peer.pass(Duration::from_secs(5));
    assert!(matches!(peer.over(), SessionError::RecoveryFailed(_)), "the Time2Retain of the message");
}

#[test]
fn a_drop_notice_that_comes_late_does_not_end_the_connection_that_has_the_number_now() {
    for lives in [true, false] {
        let mut peer = ScriptedSession::new(2, 0, 20);
        peer.cut(1);
        let logout = peer.logout(0);
        peer.answer_logout(0, &logout, LogoutResponseCode::CLOSED);
        let again = peer.join();
        drop_notice(&mut peer, 0, AsyncEvent::CONNECTION_DROP, 1, 20);
        assert!(matches!(peer.event(), Event::Async { .. }));
        assert!(peer.events.is_empty(), "{:?}", peer.events);
        assert!(matches!(peer.next(again).pdu, InitiatorPdu::NopOut(_)), "it is asked for a sign of life");
        if lives {
            peer.sign_of_life(again);
        }
        peer.pass(Timers::default().ping_answer);
        let ended = matches!(peer.events.front(), Some(Event::Closed { why: SessionError::PingTimeout, .. }));
        assert_eq!(ended, !lives, "{:?}", peer.events);
    }
}

#[test]
fn a_session_that_is_dropped_for_good_is_lost() {
    let mut peer = ScriptedSession::new(1, 0, 20);
    peer.read(4096);
    drop_notice(&mut peer, 0, AsyncEvent::SESSION_DROP, 0, 0);
    assert!(matches!(peer.event(), Event::Async { .. }));
    peer.cut(0);
    assert!(peer.session.is_over());
}

#[test]
fn broken_rules_lose_the_session_at_this_level_too() {
    let mut peer = ScriptedSession::new(2, 0, 20);
    let (wire, _, command) = peer.read(4096);
    peer.exp_cmd_sn = command.cmd_sn.next();
    peer.data_in(wire, InitiatorTaskTag(0x7777_0000), 0, 0, 512, true);
    assert!(matches!(peer.event(), Event::Closed { why: SessionError::Protocol { .. }, .. }));
    assert!(peer.session.is_over());
}

#[test]
fn a_logout_of_the_session_stops_all_recovery() {
    let (mut peer, other, _) = lost_read(1);
    peer.logout(other);
    assert!(peer.session.logout());
    peer.cut(other);
    assert!(peer.session.is_over());
    assert_eq!(peer.session.into_unfinished().len(), 1);
}
