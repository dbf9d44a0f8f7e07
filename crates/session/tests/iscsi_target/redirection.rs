//! Targets that have moved (RFC 7143 section 11.13.5).

use std::sync::Arc;

use lunette_pdu::text::pairs;
use lunette_pdu::{LoginRequest, LoginResponse, LoginStatus, Tsih};
use lunette_session::Authentication;
use lunette_session::iscsi_target::{CloseReason, Directory, Moved, TargetNode};
use lunette_session::limits::MAX_MOVED_ADDRESSES;

use crate::harness::{INITIATOR, Peer, Setup, TARGET, login_request, node, only, text};

const THERE: &str = "storage2.example:3261,7";

fn moved(permanent: bool) -> Setup {
    Setup {
        moved: Some(Moved { addresses: vec![THERE.into(), "[2001:db8::9]".into()], permanent }),
        ..Setup::default()
    }
}

fn log_in(setup: Setup, request: LoginRequest, keys: &[(&str, &str)]) -> (Peer, LoginResponse, Vec<u8>) {
    let mut peer = Peer::connect(setup);
    peer.login(request, &text(&[&[("InitiatorName", INITIATOR)], keys].concat()));
    let (response, data) = peer.login_response();
    (peer, response, data)
}

#[test]
fn a_login_is_told_where_to_go() {
    for (permanent, status) in
        [(false, LoginStatus::TARGET_MOVED_TEMPORARILY), (true, LoginStatus::TARGET_MOVED_PERMANENTLY)]
    {
        let (mut peer, response, data) = log_in(moved(permanent), login_request(), &[("TargetName", TARGET)]);
        assert_eq!((response.status, response.transit), (status, false));
        let keys: Vec<_> = pairs(&data).map(Result::unwrap).collect();
        assert_eq!(keys, [("TargetAddress", THERE), ("TargetAddress", "[2001:db8::9]")]);
        assert_eq!(peer.rest(), []);
        assert!(matches!(peer.driver.closed, Some(CloseReason::LoginRefused(_))));
        assert_eq!(peer.driver.admissions, 0);
    }
}

#[test]
fn who_may_not_use_the_target_is_not_told() {
    let setup = Setup { hosts: vec![only("iqn.2026-11.example:other")], ..moved(false) };
    let (_, response, data) = log_in(setup, login_request(), &[("TargetName", TARGET)]);
    assert_eq!(response.status, LoginStatus::AUTHORIZATION_FAILURE);
    assert_eq!(data, []);
}

#[test]
fn discovery_goes_on() {
    let (_, response, _) = log_in(moved(true), login_request(), &[("SessionType", "Discovery")]);
    assert_eq!(response.status, LoginStatus::SUCCESS);
}

#[test]
fn a_connection_that_joins_a_session_is_not_sent_away() {
    let request = LoginRequest { tsih: Tsih(7), ..login_request() };
    let (peer, response, _) = log_in(moved(true), request, &[("TargetName", TARGET)]);
    assert_eq!(response.status, LoginStatus::SESSION_DOES_NOT_EXIST, "the driver was asked");
    assert_eq!(peer.driver.admissions, 1);
}

#[test]
fn the_longest_list_fits_one_response() {
    let longest = format!("{}:65535,65535", "a".repeat(255));
    let addresses = vec![longest; 3 * MAX_MOVED_ADDRESSES];
    let setup = Setup { moved: Some(Moved { addresses, permanent: false }), ..Setup::default() };
    let (_, response, data) = log_in(setup, login_request(), &[("TargetName", TARGET)]);
    assert_eq!(response.status, LoginStatus::TARGET_MOVED_TEMPORARILY);
    assert!(!response.continue_ && data.len() <= 8192);
    assert_eq!(pairs(&data).count(), MAX_MOVED_ADDRESSES);
}

#[test]
fn a_target_that_moves_during_a_login_is_asked_for_again() {
    let mut peer = Peer::connect(Setup::default()).manual();
    peer.login(login_request(), &text(&[("InitiatorName", INITIATOR), ("TargetName", TARGET)]));
    let directory = |moved| {
        let node = TargetNode { moved, ..node(TARGET, Vec::new()) };
        Directory { targets: vec![Arc::new(node)], discovery: Authentication::None }
    };
    let moved = Moved { addresses: vec![THERE.into()], permanent: false };
    let mut request = peer.driver.admit_requests[0].clone();
    let now = directory(Some(moved));
    assert_eq!(now.recheck(&directory(None), &mut request), Err(LoginStatus::SERVICE_UNAVAILABLE));
    request.tsih = Tsih(7);
    assert_eq!(now.recheck(&directory(None), &mut request), Ok(()));
}
