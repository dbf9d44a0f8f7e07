//! Login: stages, names, negotiation, refusals (RFC 7143 chapters 6 and 13).

use std::time::Duration;

use lunette_pdu::{Cid, Isid, LoginRequest, LoginStatus, SerialNumber, Stage, Tsih, text as pdu_text};
use lunette_session::iscsi_target::CloseReason;
use lunette_session::keys::{Digest, Offer};
use lunette_session::limits::{
    LOGIN_DATA_SEGMENT_BYTES, MAX_KEYS, MAX_LOGIN_BYTES, MAX_LOGIN_REQUESTS, MAX_LOGIN_TEXT_BYTES, MAX_REASON_BYTES,
};

use crate::harness::{Cut, INITIATOR, Peer, Setup, TARGET, login_request, nop_out, only, text};

const NAMES: &[(&str, &str)] = &[("InitiatorName", INITIATOR), ("TargetName", TARGET)];

fn names_and(more: &[(&str, &str)]) -> Vec<u8> {
    text(&[NAMES, more].concat())
}

fn security() -> LoginRequest {
    LoginRequest { csg: Stage::SecurityNegotiation, ..login_request() }
}

fn keys(data: &[u8]) -> Vec<(String, String)> {
    pdu_text::pairs(data).map(|pair| pair.map(|(k, v)| (k.into(), v.into())).unwrap()).collect()
}

fn value<'a>(keys: &'a [(String, String)], key: &str) -> Option<&'a str> {
    keys.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
}

/// The login ends with this status and the connection with it.
fn refused(peer: &mut Peer, status: LoginStatus) {
    let (response, data) = peer.login_response();
    assert_eq!(response.status, status);
    assert!(!response.transit && data.is_empty());
    assert_eq!(peer.rest(), []);
    assert!(matches!(peer.driver.closed, Some(CloseReason::LoginRefused(_))), "{:?}", peer.driver.closed);
}

fn is_full_feature(peer: &mut Peer) {
    peer.nop_out(nop_out(1), b"hello");
    assert_eq!(peer.nop_in().1, b"hello");
}

#[test]
fn straight_from_the_operational_stage() {
    let mut peer = Peer::connect(Setup { alias: Some("a disk".into()), ..Setup::default() });
    peer.login(login_request(), &names_and(&[("HeaderDigest", "CRC32C,None"), ("X-com.example", "1")]));
    let (response, data) = peer.login_response();
    assert!(response.transit);
    assert_eq!((response.csg, response.nsg), (Stage::LoginOperationalNegotiation, Stage::FullFeaturePhase));
    assert_ne!(response.tsih, Tsih::NEW);
    assert_eq!(response.itt, login_request().itt);
    let answered = keys(&data);
    for (key, expected) in [
        ("TargetAlias", "a disk"),
        ("TargetPortalGroupTag", "1"),
        ("HeaderDigest", "CRC32C"),
        ("X-com.example", "NotUnderstood"),
        ("MaxRecvDataSegmentLength", "262144"),
    ] {
        assert_eq!(value(&answered, key), Some(expected), "{key}");
    }
    assert_eq!(answered.len(), 5);
    let session = peer.driver.session().unwrap();
    assert_eq!(session.parameters.header_digest, Digest::Crc32c);
    assert_eq!(session.tsih, response.tsih);
    is_full_feature(&mut peer);
}

#[test]
fn every_stage_alone_and_by_turns() {
    use Stage::{
        FullFeaturePhase as Full, LoginOperationalNegotiation as Operational, SecurityNegotiation as Security,
    };
    let step = |csg, nsg: Option<Stage>| LoginRequest {
        csg,
        nsg: nsg.unwrap_or(Security),
        transit: nsg.is_some(),
        ..login_request()
    };
    let paths: &[&[(Stage, Option<Stage>)]] = &[
        &[(Security, Some(Full))],
        &[(Operational, Some(Full))],
        &[(Security, Some(Operational)), (Operational, Some(Full))],
        &[(Security, None), (Security, Some(Full))],
        &[(Operational, None), (Operational, None), (Operational, Some(Full))],
        &[(Security, None), (Security, Some(Operational)), (Operational, None), (Operational, Some(Full))],
    ];
    for path in paths {
        for piece in [1, 7, usize::MAX] {
            let mut peer = Peer::connect(Setup::default()).cut(Cut { piece, direct: false });
            for (index, (csg, nsg)) in path.iter().enumerate() {
                peer.login(step(*csg, *nsg), &if index == 0 { names_and(&[]) } else { Vec::new() });
                let (response, _) = peer.login_response();
                assert_eq!(response.status, LoginStatus::SUCCESS, "{path:?} step {index}");
                assert_eq!((response.csg, response.transit), (*csg, nsg.is_some()), "{path:?} step {index}");
                assert!(nsg.is_none_or(|nsg| nsg == response.nsg));
            }
            is_full_feature(&mut peer);
        }
    }
}

#[test]
fn the_security_stage_answers_none_to_who_offers_it() {
    let mut peer = Peer::connect(Setup::default());
    let request = LoginRequest { nsg: Stage::LoginOperationalNegotiation, ..security() };
    peer.login(request, &names_and(&[("AuthMethod", "CHAP,None")]));
    let (response, data) = peer.login_response();
    assert!(response.transit);
    assert_eq!(value(&keys(&data), "AuthMethod"), Some("None"));
    peer.login(login_request(), &[]);
    assert!(peer.login_response().0.transit);
}

#[test]
fn without_the_operational_stage_defaults_hold() {
    let mut peer = Peer::connect(Setup::default());
    peer.login(security(), &names_and(&[]));
    let (_, data) = peer.login_response();
    assert_eq!(value(&keys(&data), "MaxRecvDataSegmentLength"), None);
    peer.send(lunette_pdu::NopOut { data_segment_len: 8193, ..nop_out(1) }.emit(), &[]);
    peer.cut_off(lunette_pdu::RejectReason::PROTOCOL_ERROR);
}

#[test]
fn a_request_may_be_cut_at_any_byte() {
    let list = names_and(&[("HeaderDigest", "None"), ("ImmediateData", "No")]);
    for at in 0..=list.len() {
        let mut peer = Peer::connect(Setup::default());
        peer.login(LoginRequest { transit: false, continue_: true, ..login_request() }, &list[..at]);
        let (response, data) = peer.login_response();
        assert!(!response.transit && !response.continue_ && data.is_empty(), "cut at {at}");
        peer.login(login_request(), &list[at..]);
        let (response, data) = peer.login_response();
        assert!(response.transit, "cut at {at}");
        assert_eq!(value(&keys(&data), "ImmediateData"), Some("No"), "cut at {at}");
    }
}

#[test]
fn a_long_answer_is_continued() {
    let long: Vec<String> = (0..200).map(|n| format!("X-com.example.of-a-rather-long-name.{n:026}")).collect();
    let offers: Vec<(&str, &str)> = long.iter().map(|key| (key.as_str(), "")).collect();
    let mut peer = Peer::connect(Setup::default());
    let list = names_and(&offers);
    let pieces: Vec<&[u8]> = list.chunks(8192).collect();
    let (last, first) = pieces.split_last().unwrap();
    for piece in first {
        peer.login(LoginRequest { transit: false, continue_: true, ..login_request() }, piece);
        assert!(!peer.login_response().0.continue_);
    }
    peer.login(login_request(), last);
    let mut answer = Vec::new();
    let mut parts = 0;
    loop {
        let (response, data) = peer.login_response();
        answer.extend(data);
        parts += 1;
        assert_ne!(response.transit, response.continue_);
        if !response.continue_ {
            break;
        }
        peer.login(login_request(), &[]);
    }
    assert!(parts > 1);
    let answered = keys(&answer);
    assert!(long.iter().all(|key| value(&answered, key) == Some("NotUnderstood")));
    is_full_feature(&mut peer);
}

#[test]
fn keys_while_an_answer_is_continued_are_refused() {
    let long: Vec<String> = (0..200).map(|n| format!("X-com.example.{n:049}")).collect();
    let offers: Vec<(&str, &str)> = long.iter().map(|key| (key.as_str(), "")).collect();
    let list = names_and(&offers);
    let mut peer = Peer::connect(Setup::default());
    peer.login(LoginRequest { transit: false, continue_: true, ..login_request() }, &list[..8192]);
    peer.login_response();
    peer.login(login_request(), &list[8192..]);
    assert!(peer.login_response().0.continue_);
    peer.login(login_request(), &text(&[("HeaderDigest", "None")]));
    refused(&mut peer, LoginStatus::INITIATOR_ERROR);
}

#[test]
fn what_is_wrong_with_a_first_request_gets_its_status() {
    let many: Vec<String> = (0..=MAX_KEYS).map(|n| format!("X-{n}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "1")).collect();
    let long_name = "i".repeat(224);
    let version = |version_min| LoginRequest { version_max: version_min, version_min, ..login_request() };
    let plain = login_request();
    let cases: Vec<(&str, LoginRequest, Vec<u8>, LoginStatus)> = vec![
        ("version", version(1), names_and(&[]), LoginStatus::UNSUPPORTED_VERSION),
        ("no initiator", plain, text(&[("TargetName", TARGET)]), LoginStatus::MISSING_PARAMETER),
        (
            "empty initiator",
            plain,
            text(&[("InitiatorName", ""), ("TargetName", TARGET)]),
            LoginStatus::MISSING_PARAMETER,
        ),
        ("no target", plain, text(&[("InitiatorName", INITIATOR)]), LoginStatus::MISSING_PARAMETER),
        ("nothing", plain, Vec::new(), LoginStatus::MISSING_PARAMETER),
        ("long", plain, text(&[("InitiatorName", &long_name), ("TargetName", TARGET)]), LoginStatus::INITIATOR_ERROR),
        (
            "unknown target",
            plain,
            text(&[("InitiatorName", INITIATOR), ("TargetName", "iqn.2026-11.example:other")]),
            LoginStatus::NOT_FOUND,
        ),
        (
            "not admitted",
            plain,
            text(&[("InitiatorName", "iqn.2026-11.example:stranger"), ("TargetName", TARGET)]),
            LoginStatus::AUTHORIZATION_FAILURE,
        ),
        ("type", plain, names_and(&[("SessionType", "Strange")]), LoginStatus::SESSION_TYPE_NOT_SUPPORTED),
        ("twice", plain, names_and(&[("InitialR2T", "No"), ("InitialR2T", "No")]), LoginStatus::INITIATOR_ERROR),
        ("name twice", plain, names_and(&[("InitiatorName", "iqn.b")]), LoginStatus::INITIATOR_ERROR),
        ("too many keys", plain, names_and(&many), LoginStatus::INITIATOR_ERROR),
        ("no list", plain, b"InitiatorName".to_vec(), LoginStatus::INITIATOR_ERROR),
        ("no equals", plain, b"InitiatorName\0".to_vec(), LoginStatus::INITIATOR_ERROR),
        ("key in the wrong stage", security(), names_and(&[("InitialR2T", "No")]), LoginStatus::INITIATOR_ERROR),
        ("no common method", security(), names_and(&[("AuthMethod", "CHAP")]), LoginStatus::AUTHENTICATION_FAILURE),
        (
            "stage that is none",
            LoginRequest { csg: Stage::FullFeaturePhase, ..plain },
            names_and(&[]),
            LoginStatus::INVALID_REQUEST_DURING_LOGIN,
        ),
        (
            "to the same stage",
            LoginRequest { nsg: Stage::LoginOperationalNegotiation, ..plain },
            names_and(&[]),
            LoginStatus::INVALID_REQUEST_DURING_LOGIN,
        ),
        (
            "back",
            LoginRequest { nsg: Stage::SecurityNegotiation, ..plain },
            names_and(&[]),
            LoginStatus::INVALID_REQUEST_DURING_LOGIN,
        ),
        (
            "a session that is not",
            LoginRequest { tsih: Tsih(77), ..plain },
            names_and(&[]),
            LoginStatus::SESSION_DOES_NOT_EXIST,
        ),
    ];
    for (what, request, list, status) in cases {
        println!("{what}");
        let mut peer = Peer::connect(Setup { hosts: vec![only(INITIATOR)], ..Setup::default() });
        peer.login(request, &list);
        refused(&mut peer, status);
    }
}

/// A change: its name, the second request with its keys, and the status.
type Change = (&'static str, LoginRequest, &'static [(&'static str, &'static str)], LoginStatus);

#[test]
fn what_changes_between_requests_gets_its_status() {
    let first = LoginRequest { transit: false, ..login_request() };
    let second = login_request();
    let changed: &[Change] = &[
        ("ISID", LoginRequest { isid: Isid([1; 6]), ..second }, &[], LoginStatus::INVALID_REQUEST_DURING_LOGIN),
        ("CID", LoginRequest { cid: Cid(9), ..second }, &[], LoginStatus::INVALID_REQUEST_DURING_LOGIN),
        ("TSIH", LoginRequest { tsih: Tsih(9), ..second }, &[], LoginStatus::INVALID_REQUEST_DURING_LOGIN),
        (
            "stage",
            LoginRequest { csg: Stage::SecurityNegotiation, ..second },
            &[],
            LoginStatus::INVALID_REQUEST_DURING_LOGIN,
        ),
        ("key again", second, &[("ImmediateData", "Yes")], LoginStatus::INITIATOR_ERROR),
        ("initiator", second, &[("InitiatorName", "iqn.2026-11.example:other")], LoginStatus::INITIATOR_ERROR),
        ("target", second, &[("TargetName", "iqn.2026-11.example:other")], LoginStatus::INITIATOR_ERROR),
        ("type", second, &[("SessionType", "Discovery")], LoginStatus::INITIATOR_ERROR),
    ];
    for (what, request, list, status) in changed {
        println!("{what}");
        let mut peer = Peer::connect(Setup::default());
        peer.login(first, &names_and(&[("ImmediateData", "Yes")]));
        assert!(peer.login_response().0.status.is_success());
        peer.login(*request, &text(list));
        refused(&mut peer, *status);
    }
}

#[test]
fn names_may_be_repeated_as_they_are() {
    let mut peer = Peer::connect(Setup::default());
    peer.login(LoginRequest { nsg: Stage::LoginOperationalNegotiation, ..security() }, &names_and(&[]));
    assert!(peer.login_response().0.transit);
    peer.login(login_request(), &names_and(&[("SessionType", "Normal")]));
    assert!(peer.login_response().0.transit);
    is_full_feature(&mut peer);
}

#[test]
fn names_are_compared_without_regard_to_case() {
    let mut peer = Peer::connect(Setup { hosts: vec![only(INITIATOR)], ..Setup::default() });
    let (initiator, target) = (INITIATOR.to_uppercase(), TARGET.to_uppercase());
    peer.login(login_request(), &text(&[("InitiatorName", &initiator), ("TargetName", &target)]));
    assert!(peer.login_response().0.transit);
    assert_eq!(peer.driver.session().unwrap().initiator_name, INITIATOR);
}

#[test]
fn too_many_requests_are_too_many() {
    let mut peer = Peer::connect(Setup::default());
    let request = LoginRequest { transit: false, ..login_request() };
    peer.login(request, &names_and(&[]));
    for _ in 1..MAX_LOGIN_REQUESTS {
        assert!(peer.login_response().0.status.is_success());
        peer.login(request, &[]);
    }
    assert!(peer.login_response().0.status.is_success());
    peer.login(request, &[]);
    refused(&mut peer, LoginStatus::INITIATOR_ERROR);
}

#[test]
fn keys_are_counted_over_all_requests() {
    let mut peer = Peer::connect(Setup::default());
    let request = LoginRequest { transit: false, ..login_request() };
    peer.login(request, &names_and(&[]));
    let mut sent = NAMES.len();
    loop {
        let (response, _) = peer.login_response();
        if !response.status.is_success() {
            assert_eq!(response.status, LoginStatus::INITIATOR_ERROR);
            break;
        }
        assert!(sent <= MAX_KEYS, "{sent} keys were taken");
        let many: Vec<String> = (sent..sent + 20).map(|n| format!("X-{n}")).collect();
        peer.login(request, &text(&many.iter().map(|key| (key.as_str(), "1")).collect::<Vec<_>>()));
        sent += 20;
    }
    assert!(sent > MAX_KEYS);
}

#[test]
fn too_many_bytes_are_too_many() {
    let mut peer = Peer::connect(Setup::default());
    let request = LoginRequest { transit: false, continue_: true, ..login_request() };
    for _ in 0..MAX_LOGIN_TEXT_BYTES / 8192 {
        peer.login(request, &[b'a'; 8192]);
        assert!(peer.login_response().0.status.is_success());
    }
    peer.login(request, b"a");
    refused(&mut peer, LoginStatus::INITIATOR_ERROR);
}

#[test]
fn values_of_unknown_keys_are_not_kept() {
    let mut peer = Peer::connect(Setup::default());
    let request = LoginRequest { transit: false, ..login_request() };
    peer.login(request, &names_and(&[]));
    let value = "v".repeat(8000);
    for n in 1..MAX_LOGIN_REQUESTS {
        assert!(peer.login_response().0.status.is_success());
        assert_eq!(peer.driver.login_bytes(), 0);
        peer.login(request, &text(&[(&format!("X-{n}"), &value)]));
    }
}

/// The act of a peer in the middle of a login.
type Hoard = fn(&mut Peer);

#[test]
fn what_an_unfinished_login_keeps_is_bounded() {
    let hoards: &[(&str, Hoard)] = &[
        ("keys whose answers are not read", |peer| {
            peer.reads = false;
            for n in 0..60 {
                let keys: Vec<String> = (0..4).map(|key| format!("X-{n:030}.{key:030}")).collect();
                let list: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "1")).collect();
                peer.login(LoginRequest { transit: false, ..login_request() }, &text(&list));
            }
        }),
        ("lists without an end", |peer| {
            for _ in 0..MAX_LOGIN_TEXT_BYTES / 8192 {
                let request = LoginRequest { transit: false, continue_: true, ..login_request() };
                peer.login(request, &[b'a'; 8192]);
            }
        }),
        ("data that does not come", |peer| {
            let data_segment_len = LOGIN_DATA_SEGMENT_BYTES as usize;
            peer.raw(&LoginRequest { data_segment_len, ..login_request() }.emit());
        }),
        ("the rest of the answer is not asked for", |peer| {
            let keys: Vec<String> = (0..200).map(|n| format!("X-{n:061}")).collect();
            let list = text(&keys.iter().map(|key| (key.as_str(), "")).collect::<Vec<_>>());
            let request = LoginRequest { transit: false, continue_: true, ..login_request() };
            peer.login(request, &list[..8192]);
            peer.login(LoginRequest { transit: false, ..login_request() }, &list[8192..]);
        }),
    ];
    for (what, hoard) in hoards {
        let mut peer = Peer::connect(Setup::default());
        peer.login(LoginRequest { transit: false, ..login_request() }, &names_and(&[]));
        peer.login_response();
        hoard(&mut peer);
        assert_eq!(peer.driver.closed, None, "{what}");
        let kept = peer.driver.login_bytes();
        assert!((1..=MAX_LOGIN_BYTES).contains(&kept), "{what}: {kept} bytes are kept");
    }
}

#[test]
fn little_may_be_sent_ahead_of_the_admission() {
    for (len, is_taken) in [(0, true), (16 << 10, true), (MAX_LOGIN_BYTES, false)] {
        let mut peer = Peer::connect(Setup::default()).manual();
        let list = names_and(&[]);
        let request = LoginRequest { data_segment_len: list.len(), ..login_request() };
        peer.raw(&[peer.frame(request.emit(), &[], &list), vec![0; len]].concat());
        assert!(peer.driver.login_bytes() <= MAX_LOGIN_BYTES);
        if is_taken {
            peer.silence();
        } else {
            println!("{}", peer.broken());
        }
    }
}

#[test]
fn the_reason_of_a_refusal_quotes_little_of_the_initiator() {
    let mut peer = Peer::connect(Setup::default());
    // Two bytes each: the bound may lie inside of one.
    let name = "\u{e9}".repeat(4000);
    peer.login(login_request(), &text(&[("InitiatorName", INITIATOR), ("TargetName", &name)]));
    let Some(CloseReason::LoginRefused(why)) = &peer.driver.closed else { panic!("{:?}", peer.driver.closed) };
    assert!(why.contains("\u{e9}") && why.len() <= MAX_REASON_BYTES, "{} bytes", why.len());
}

#[test]
fn the_first_pdu_has_to_be_a_login_request() {
    for opcode in (0..64_u8).filter(|opcode| *opcode != 3) {
        for immediate in [0, 0x40] {
            let mut peer = Peer::connect(Setup::default());
            let mut bhs = [0; 48];
            (bhs[0], bhs[1]) = (opcode | immediate, 0x80);
            peer.send(bhs, &[]);
            peer.broken();
        }
    }
}

#[test]
fn other_pdus_in_the_middle_of_a_login_end_it() {
    for opcode in (0..64_u8).filter(|opcode| *opcode != 3) {
        let mut peer = Peer::connect(Setup::default());
        peer.login(LoginRequest { transit: false, ..login_request() }, &names_and(&[]));
        peer.login_response();
        let mut bhs = [0; 48];
        (bhs[0], bhs[1]) = (opcode, 0x80);
        peer.send(bhs, &[]);
        peer.broken();
    }
}

type Spoil = fn(&mut [u8; 48]);

#[test]
fn headers_that_contradict_themselves_end_the_login() {
    let cases: &[(&str, Spoil)] = &[
        ("T with C", |bhs| bhs[1] |= 0xc0),
        ("reserved CSG", |bhs| bhs[1] = 0x80 | 2 << 2 | 3),
        ("reserved NSG", |bhs| bhs[1] = 0x80 | 1 << 2 | 2),
        ("AHS", |bhs| bhs[4] = 1),
        ("too long", |bhs| bhs[5..8].copy_from_slice(&[0, 0x20, 1])),
    ];
    for (what, spoil) in cases {
        let mut peer = Peer::connect(Setup::default());
        let mut bhs = login_request().emit();
        spoil(&mut bhs);
        peer.raw(&[&bhs[..], &[0; 4]].concat());
        println!("{what}: {}", peer.broken());
    }
}

#[test]
fn a_login_that_dawdles_is_ended() {
    let mut peer = Peer::connect(Setup::default());
    peer.pass(Duration::from_secs(14));
    peer.login(LoginRequest { transit: false, ..login_request() }, &names_and(&[]));
    peer.login_response();
    peer.pass(Duration::from_millis(999));
    peer.silence();
    peer.pass(Duration::from_millis(1));
    assert_eq!(peer.driver.closed, Some(CloseReason::LoginTimeout));
    assert_eq!(peer.driver.next_timeout(), None);
    assert!(!peer.driver.wants_input());
}

#[test]
fn a_finished_login_has_no_timeout() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.pass(Duration::from_secs(29));
    peer.silence();
}

#[test]
fn the_driver_decides_at_the_end() {
    let mut peer = Peer::connect(Setup::default()).manual();
    peer.login(login_request(), &names_and(&[]));
    assert_eq!(peer.driver.admissions, 1);
    assert!(!peer.driver.wants_input());
    // What comes after the last request waits.
    peer.nop_out(nop_out(3), b"early");
    peer.silence();
    peer.driver.refuse(LoginStatus::SERVICE_UNAVAILABLE);
    refused(&mut peer, LoginStatus::SERVICE_UNAVAILABLE);
}

#[test]
fn pdus_right_behind_the_last_request_are_taken_after_admission() {
    for piece in [1, 60, usize::MAX] {
        let mut peer = Peer::connect(Setup::default()).cut(Cut { piece, direct: false });
        let list = names_and(&[]);
        let request = LoginRequest { cmd_sn: SerialNumber(1), data_segment_len: list.len(), ..login_request() };
        let nop = lunette_pdu::NopOut { data_segment_len: 3, cmd_sn: SerialNumber(1), ..nop_out(9) };
        let bytes = [peer.frame(request.emit(), &[], &list), peer.frame(nop.emit(), &[], b"abc")].concat();
        peer.raw(&bytes);
        peer.login_response();
        assert_eq!(peer.nop_in().1, b"abc");
    }
}

#[test]
fn the_last_response_opens_the_window() {
    let mut peer = Peer::connect(Setup { first_cmd_sn: u32::MAX - 1, ..Setup::default() });
    peer.login(login_request(), &names_and(&[]));
    let (response, _) = peer.login_response();
    assert_eq!(response.exp_cmd_sn, SerialNumber(u32::MAX - 1));
    assert_eq!(response.max_cmd_sn.distance_from(response.exp_cmd_sn), 127);
}

#[test]
fn a_second_login_after_the_first_is_refused() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.send(login_request().emit(), &[]);
    peer.cut_off(lunette_pdu::RejectReason::PROTOCOL_ERROR);
}

#[test]
fn our_offer_is_what_the_target_is_willing_to_take() {
    let offer = Offer { recv_data_segment_len: 4096, initial_r2t: true, ..Offer::default() };
    let mut peer = Peer::connect(Setup { offer, ..Setup::default() });
    peer.login(login_request(), &names_and(&[("InitialR2T", "No")]));
    let (_, data) = peer.login_response();
    let answered = keys(&data);
    assert_eq!(value(&answered, "InitialR2T"), Some("Yes"));
    assert_eq!(value(&answered, "MaxRecvDataSegmentLength"), Some("4096"));
}

#[test]
fn obsolete_and_unknown_keys_have_their_answers() {
    for (key, offer, expected) in [
        ("IFMarker", "Yes", "No"),
        ("OFMarker", "No", "No"),
        ("IFMarkInt", "2048~8192", "Reject"),
        ("OFMarkInt", "2048", "Reject"),
        ("NoSuchKey", "1", "NotUnderstood"),
        ("X-a", "1", "NotUnderstood"),
        ("MaxBurstLength", "511", "Reject"),
    ] {
        let mut peer = Peer::connect(Setup::default());
        peer.login(login_request(), &names_and(&[(key, offer)]));
        let (_, data) = peer.login_response();
        assert_eq!(value(&keys(&data), key), Some(expected));
    }
}

#[test]
fn markers_are_answered_when_they_are_configured() {
    for (offers, expected) in [
        (&[("OFMarker", "Yes"), ("OFMarkInt", "1024~65535")][..], &[("OFMarker", "Yes"), ("OFMarkInt", "2048")][..]),
        (&[("IFMarker", "No"), ("IFMarkInt", "100")], &[("IFMarker", "No"), ("IFMarkInt", "100")]),
        (&[("IFMarker", "Yes"), ("IFMarkInt", "1~63")], &[("IFMarker", "Yes"), ("IFMarkInt", "Reject")]),
    ] {
        let offer = Offer { marker_interval: Some(2048), ..Offer::default() };
        let mut peer = Peer::connect(Setup { offer, ..Setup::default() });
        peer.login(login_request(), &names_and(offers));
        let (_, data) = peer.login_response();
        for (key, answer) in expected {
            assert_eq!(value(&keys(&data), key), Some(*answer), "{offers:?}");
        }
    }
}

/// Two connections that share what a daemon knows of its sessions.
fn second_connection(first: &mut Peer, request: LoginRequest, list: &[u8]) -> Peer {
    let mut second = Peer::connect(Setup::default());
    second.driver.share(&first.driver);
    second.cmd_sn = first.cmd_sn;
    second.login(request, list);
    second
}

#[test]
fn a_login_with_the_same_name_replaces_the_session() {
    let mut first = Peer::logged_in(Setup::default());
    let mut second = second_connection(&mut first, login_request(), &names_and(&[]));
    assert!(second.login_response().0.transit);
    assert_eq!(second.driver.displaced, [1]);
    assert_eq!(second.driver.sessions.borrow().len(), 1);
}

#[test]
fn a_session_of_one_connection_takes_no_second() {
    let mut first = Peer::logged_in(Setup::default());
    let tsih = first.driver.session().unwrap().tsih;
    let request = LoginRequest { tsih, cid: Cid(6), ..login_request() };
    let mut second = second_connection(&mut first, request, &names_and(&[]));
    refused(&mut second, LoginStatus::TOO_MANY_CONNECTIONS);
}

#[test]
fn session_wide_keys_on_a_later_connection_are_refused() {
    let mut first = Peer::logged_in(Setup::default());
    let tsih = first.driver.session().unwrap().tsih;
    let request = LoginRequest { tsih, ..login_request() };
    let mut second = second_connection(&mut first, request, &names_and(&[("MaxBurstLength", "4096")]));
    refused(&mut second, LoginStatus::INITIATOR_ERROR);
}

#[test]
fn a_replaced_connection_leaves_its_session_and_window_whole() {
    let mut first = Peer::logged_in(Setup { keys: vec![("MaxBurstLength", "4096")], ..Setup::default() }).manual();
    for itt in 0..100 {
        first.command(crate::harness::command(itt), &[]);
    }
    assert_eq!(first.driver.commands.len(), 100);
    let tsih = first.driver.session().unwrap().tsih;
    let request = LoginRequest { tsih, ..login_request() };
    let mut second = second_connection(&mut first, request, &names_and(&[]));
    assert_eq!(second.driver.displaced, [1]);
    let (response, _) = second.login_response();
    assert_eq!((response.tsih, response.exp_cmd_sn), (tsih, SerialNumber(101)));
    first.driver.remove();
    second.nop_out(nop_out(1), &[]);
    let (nop, _) = second.nop_in();
    assert_eq!(nop.max_cmd_sn.distance_from(nop.exp_cmd_sn), 127, "tasks of the old connection hold nothing");
}
