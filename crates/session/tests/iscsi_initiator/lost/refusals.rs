//! What the target says of a recovery: refusals, notices, and broken rules.

use std::time::Duration;

use lunette_pdu::{
    AsyncEvent, AsyncMessage, Cid, InitiatorPdu, InitiatorTaskTag, LogoutResponse, LogoutResponseCode, LunField,
    TaskManagementResponseCode,
};
use lunette_session::Timers;
use lunette_session::iscsi_initiator::{Event, SessionError};

use super::lost_read;
use crate::harness::Crew;

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
