//! Logout, asked for by either side (RFC 7143 sections 11.9, 11.14 and 11.15).

use std::time::Duration;

use lunette_pdu::{
    AsyncEvent, Cid, InitiatorTaskTag, LogoutReason, LogoutRequest, LogoutResponseCode, RejectReason, SerialNumber,
};
use lunette_session::iscsi_target::CloseReason;

use crate::harness::{Peer, Setup, command, login_request, nop_out};

fn logout(reason: LogoutReason) -> LogoutRequest {
    LogoutRequest {
        immediate: true,
        reason,
        itt: InitiatorTaskTag(0x55),
        cid: login_request().cid,
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
    }
}

#[test]
fn a_logout_closes_the_session_or_its_connection() {
    for reason in [LogoutReason::CLOSE_SESSION, LogoutReason::CLOSE_CONNECTION] {
        for immediate in [true, false] {
            for mut peer in [Peer::logged_in(Setup::default()), Peer::discovering(Setup::default())] {
                peer.logout(LogoutRequest { immediate, ..logout(reason) });
                let (response, _) = peer.logout_response();
                assert_eq!((response.response, response.itt.0), (LogoutResponseCode::CLOSED, 0x55));
                assert_eq!(response.exp_cmd_sn, peer.cmd_sn);
                assert_eq!(peer.driver.closed, Some(CloseReason::Logout));
                assert_eq!(peer.rest(), []);
            }
        }
    }
}

#[test]
fn the_session_is_closed_whatever_connection_is_named() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.logout(LogoutRequest { cid: Cid(99), ..logout(LogoutReason::CLOSE_SESSION) });
    assert_eq!(peer.logout_response().0.response, LogoutResponseCode::CLOSED);
    assert_eq!(peer.driver.closed, Some(CloseReason::Logout));
}

#[test]
fn other_logouts_leave_the_connection_alone() {
    for (request, expected) in [
        (LogoutRequest { cid: Cid(99), ..logout(LogoutReason::CLOSE_CONNECTION) }, LogoutResponseCode::CID_NOT_FOUND),
        (logout(LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY), LogoutResponseCode::RECOVERY_NOT_SUPPORTED),
    ] {
        let mut peer = Peer::logged_in(Setup::default());
        peer.logout(request);
        assert_eq!(peer.logout_response().0.response, expected);
        peer.nop_out(nop_out(1), &[]);
        peer.nop_in();
    }
}

#[test]
fn an_unknown_reason_ends_the_connection() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.logout(logout(LogoutReason(3)));
    peer.cut_off(RejectReason::INVALID_PDU_FIELD);
}

#[test]
fn a_logout_outside_the_window_is_ignored() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.cmd_sn = SerialNumber(1000);
    peer.logout(LogoutRequest { immediate: false, ..logout(LogoutReason::CLOSE_SESSION) });
    peer.silence();
}

#[test]
fn nothing_is_heard_after_a_logout() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    peer.command(command(1), &[]);
    let bytes = [
        peer.frame(LogoutRequest { cmd_sn: peer.cmd_sn, ..logout(LogoutReason::CLOSE_SESSION) }.emit(), &[], &[]),
        peer.frame(nop_out(1).emit(), &[], &[]),
    ];
    peer.raw(&bytes.concat());
    peer.logout_response();
    assert_eq!(peer.rest(), []);
    assert!(!peer.driver.wants_input());
    // What the driver still says about its tasks is harmless.
    let task = peer.driver.commands[0].task;
    peer.driver.complete(task, lunette_session::iscsi_target::Response::default());
    peer.driver.act(|c| c.abort(task));
    peer.driver.request_logout(Duration::from_secs(1));
    assert_eq!(peer.rest(), []);
    assert_eq!(peer.driver.next_timeout(), None);
}

#[test]
fn the_target_may_ask_for_a_logout() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.driver.request_logout(Duration::from_secs(7));
    let (message, _) = peer.async_message();
    assert_eq!((message.event, message.parameter3), (AsyncEvent::LOGOUT_REQUEST, 7));
    peer.pass(Duration::from_secs(6));
    peer.command(command(1), &[]);
    peer.scsi_response();
    peer.logout(logout(LogoutReason::CLOSE_SESSION));
    peer.logout_response();
    assert_eq!(peer.driver.closed, Some(CloseReason::Logout));
}

#[test]
fn a_logout_that_does_not_come_ends_the_connection() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.driver.request_logout(Duration::from_secs(100));
    peer.async_message();
    for _ in 0..99 {
        peer.pass(Duration::from_secs(1));
        peer.nop_out(nop_out(1), &[]);
        peer.nop_in();
    }
    peer.silence();
    peer.pass(Duration::from_secs(1));
    assert_eq!(peer.driver.closed, Some(CloseReason::LogoutTimeout));
}

#[test]
fn a_request_for_logout_ends_a_login_at_once() {
    let mut peer = Peer::connect(Setup::default());
    peer.driver.stop();
    assert_eq!(peer.rest(), []);
    assert_eq!(peer.driver.closed, Some(CloseReason::LogoutTimeout));
}
