//! A directory that changes under sessions and logins, and news of logical units.

use std::sync::Arc;
use std::time::Duration;

use lunette_pdu::sense::split_sense;
use lunette_pdu::{AsyncEvent, LoginStatus, LunField};
use lunette_session::iscsi_target::{
    AdmitRequest, Directory, Host, LoginConnection, LoginEvent, Portal, TargetNode, Transport,
};
use lunette_session::{Authentication, ChapAlgorithms, Credentials, Secret, Time};

use crate::harness::{INITIATOR, Peer, Setup, TARGET, command, login_request, node, only, text, text_request};

fn chap(secret: &str) -> Authentication {
    let initiators = vec![Credentials { user: "user".into(), secret: Secret::new(secret.into()) }];
    Authentication::Chap { initiators, target: None, algorithms: ChapAlgorithms::ALL }
}

fn directory(targets: Vec<TargetNode>) -> Directory {
    Directory { targets: targets.into_iter().map(Arc::new).collect(), discovery: Authentication::None }
}

/// The request of a connection to its driver for admission.
fn admit_request(connection: &mut LoginConnection, keys: &[(&str, &str)]) -> AdmitRequest {
    let data = text(&[&[("InitiatorName", INITIATOR)], keys].concat());
    let request = lunette_pdu::LoginRequest { data_segment_len: data.len(), ..login_request() };
    let mut bytes = request.emit().to_vec();
    bytes.extend(&data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    match connection.next_event(&mut &bytes[..]) {
        Some(LoginEvent::Admit(request)) => *request,
        other => panic!("{other:?} instead of a login that has passed"),
    }
}

#[test]
fn an_event_carries_its_sense_data_and_a_status_number() {
    let mut peer = Peer::logged_in(Setup::default());
    let (lun, sense) =
        (LunField([0, 3, 0, 0, 0, 0, 0, 0]), [0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x2a, 9, 0, 0, 0, 0]);
    peer.driver.in_session(|session, _| session.scsi_event(lun, &sense));
    let (message, data) = peer.async_message();
    assert_eq!((message.event, message.lun), (AsyncEvent::SCSI_EVENT, lun));
    assert_eq!(split_sense(&data), Ok((&sense[..], &[][..])));
    peer.command(command(1), &[]);
    let (response, _) = peer.scsi_response();
    assert_eq!(response.stat_sn, message.stat_sn.next());
}

#[test]
fn nobody_is_told_after_the_end() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.driver.in_session(|session, _| session.reset(None));
    peer.async_message();
    peer.driver.in_session(|session, _| session.scsi_event(LunField([0; 8]), &[0x70]));
    assert_eq!(peer.rest(), []);
}

#[test]
fn a_second_request_to_log_out_gives_no_more_time() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.driver.request_logout(Duration::from_secs(3));
    peer.async_message();
    peer.pass(Duration::from_secs(2));
    peer.driver.request_logout(Duration::from_secs(3));
    peer.silence();
    peer.pass(Duration::from_secs(1));
    assert!(peer.driver.closed.is_some());
}

const GRACE: Duration = Duration::from_secs(7);

#[test]
fn sessions_learn_of_other_targets_and_portals() {
    let mut peer = Peer::logged_in(Setup::default());
    let portal = Portal { address: "198.51.100.1:860".parse().unwrap(), group: 1, transport: Transport::Stream };
    let new = Arc::new(directory(vec![node(TARGET, vec![portal])]));
    peer.driver.set_directory(&new, GRACE);
    let ask = |peer: &mut Peer| {
        peer.text(text_request(1), &text(&[("SendTargets", "")]));
        String::from_utf8(peer.text_response().1).unwrap()
    };
    assert_eq!(ask(&mut peer), format!("TargetName={TARGET}\0TargetAddress=198.51.100.1:860,1\0"));
    peer.driver.set_directory(&Arc::new(directory(Vec::new())), GRACE);
    assert_eq!(ask(&mut peer), "");
}

#[test]
fn a_login_that_passed_is_looked_at_again() {
    let open = || node(TARGET, Vec::new());
    let of = |host: Host| TargetNode { hosts: vec![Arc::new(host)], ..open() };
    let beyond = Host { networks: Some(vec!["198.51.100.0/24".parse().unwrap()]), ..Host::everyone() };
    let proving = Host { authentication: Some(chap("one")), ..Host::everyone() };
    let with_chap = || TargetNode { authentication: chap("one"), ..open() };
    for (what, targets, expected) in [
        ("the same", vec![open()], Ok(())),
        ("a list with it", vec![of(only(INITIATOR))], Ok(())),
        ("gone", vec![node("iqn.2026-11.example:other", Vec::new())], Err(LoginStatus::NOT_FOUND)),
        ("a list without it", vec![of(only("iqn.x"))], Err(LoginStatus::AUTHORIZATION_FAILURE)),
        ("another network", vec![of(beyond)], Err(LoginStatus::AUTHORIZATION_FAILURE)),
        ("a proof is wanted now", vec![with_chap()], Err(LoginStatus::AUTHENTICATION_FAILURE)),
        ("a proof is wanted of its host", vec![of(proving)], Err(LoginStatus::AUTHENTICATION_FAILURE)),
    ] {
        let mut connection = Setup::default().connection(Time::default());
        let mut request = admit_request(&mut connection, &[("TargetName", TARGET)]);
        let (older, now) = (Arc::clone(connection.directory().unwrap()), directory(targets));
        assert_eq!(now.recheck(&older, &mut request), expected, "{what}");
        if expected.is_ok() {
            assert!(Arc::ptr_eq(request.target().unwrap(), &now.targets[0]), "{what}");
        }
    }
}

#[test]
fn a_discovery_that_passed_is_looked_at_again() {
    for (discovery, expected) in
        [(Authentication::None, Ok(())), (chap("one"), Err(LoginStatus::AUTHENTICATION_FAILURE))]
    {
        let mut connection = Setup::default().connection(Time::default());
        let mut request = admit_request(&mut connection, &[("SessionType", "Discovery")]);
        let older = Arc::clone(connection.directory().unwrap());
        let now = Directory { targets: Vec::new(), discovery };
        assert_eq!(now.recheck(&older, &mut request), expected);
    }
}

#[test]
fn policies_are_the_same_with_the_same_users_secrets_and_algorithms_alone() {
    let mutual = |ours: &str, algorithms: &str| {
        let Authentication::Chap { initiators, .. } = chap("one") else { unreachable!() };
        let target = Some(Credentials { user: "us".into(), secret: Secret::new(ours.into()) });
        Authentication::Chap { initiators, target, algorithms: algorithms.parse().unwrap() }
    };
    let all = [
        Authentication::None,
        chap("one"),
        chap("two"),
        mutual("ours", "sha256"),
        mutual("other", "sha256"),
        mutual("ours", "sha256,md5"),
    ];
    for (a, one) in all.iter().enumerate() {
        for (b, other) in all.iter().enumerate() {
            assert_eq!(one.same_as(other), a == b, "{a} and {b}");
        }
    }
    assert!(all[3].has_secrets_of(&all[5]) && !all[3].has_secrets_of(&all[4]));
}
