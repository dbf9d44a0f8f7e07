//! The login against a scripted target: stages, keys, refusals, bounds.

use std::time::Duration;

use lunette_pdu::{Cid, InitiatorTaskTag, Isid, LoginResponse, LoginStatus, SerialNumber, Stage, Tsih};
use lunette_session::iscsi_initiator::{Event, LoginError, SessionConfig, SessionError};
use lunette_session::keys::{Choices, Digest, Offer};

use crate::harness::{INITIATOR, ScriptedTarget, TARGET, config, entropy};

const OPERATIONAL: Stage = Stage::LoginOperationalNegotiation;

fn keys(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect()
}

/// In the operational stage; its request has been looked at.
fn operational(config: SessionConfig) -> (ScriptedTarget, LoginResponse) {
    let mut target = ScriptedTarget::new(config);
    target.pass_security();
    let (request, _) = target.login_request();
    let response = LoginResponse { tsih: Tsih(7), ..target.login_response(&request, true) };
    (target, response)
}

#[test]
fn the_first_request_says_who_wants_what() {
    let mut target = ScriptedTarget::new(SessionConfig { initiator_alias: Some("a host".into()), ..config() });
    let (request, pairs) = target.login_request();
    assert_eq!((request.csg, request.transit, request.nsg), (Stage::SecurityNegotiation, true, OPERATIONAL));
    assert_eq!((request.tsih, request.cid, request.isid), (Tsih::NEW, Cid(0), config().isid));
    assert_eq!(
        keys(&pairs),
        [
            ("InitiatorName", INITIATOR),
            ("InitiatorAlias", "a host"),
            ("SessionType", "Normal"),
            ("TargetName", TARGET),
            ("AuthMethod", "None"),
        ]
    );
}

#[test]
fn a_discovery_session_names_no_target_and_takes_no_commands() {
    let discovery = SessionConfig { target_name: None, ..config() };
    let mut target = ScriptedTarget::new(discovery.clone());
    let (_, pairs) = target.login_request();
    assert_eq!(keys(&pairs), [("InitiatorName", INITIATOR), ("SessionType", "Discovery"), ("AuthMethod", "None")]);
    let target = ScriptedTarget::logged_in(discovery, &[]);
    assert_eq!(target.session.room(), 0);
}

#[test]
fn what_was_agreed_holds() {
    let answers = [
        ("MaxRecvDataSegmentLength", "1024"),
        ("MaxBurstLength", "65536"),
        ("InitialR2T", "Yes"),
        ("MaxOutstandingR2T", "1"),
        ("TargetAlias", "x"),
    ];
    let target = ScriptedTarget::logged_in(config(), &answers);
    let agreed = target.session.parameters(target.cid).unwrap();
    assert_eq!((agreed.send_data_segment_len, agreed.recv_data_segment_len), (1024, 262_144));
    assert_eq!((agreed.max_burst_len, agreed.initial_r2t, agreed.max_outstanding_r2t), (65_536, true, 1));
    assert_eq!((agreed.header_digest, agreed.data_digest), (Digest::None, Digest::None));
    assert_eq!(target.session.tsih(), Tsih(7));
    assert_eq!(target.session.room(), 32);
}

#[test]
fn the_target_describes_itself_in_either_stage() {
    let mut target = ScriptedTarget::new(config());
    let (request, _) = target.login_request();
    let response = target.login_response(&request, true);
    target.answer_login(response, &[("TargetPortalGroupTag", "3"), ("AuthMethod", "None")]);
    let (request, _) = target.login_request();
    let response = LoginResponse { tsih: Tsih(1), ..target.login_response(&request, true) };
    target.answer_login(response, &[("TargetAlias", "attic")]);
    assert!(matches!(target.event(), Event::LoggedIn(_)));
    assert_eq!((target.session.target_alias(), target.session.target_portal_group()), (Some("attic"), Some(3)));
}

#[test]
fn a_target_may_take_its_time_with_each_step() {
    let mut target = ScriptedTarget::new(config());
    let (request, _) = target.login_request();
    target.answer_login(target.login_response(&request, false), &[("AuthMethod", "None")]);
    for _ in 0..3 {
        let (request, pairs) = target.login_request();
        assert_eq!((request.csg, request.transit, pairs.len()), (Stage::SecurityNegotiation, true, 0));
        target.answer_login(target.login_response(&request, false), &[]);
    }
    let (request, _) = target.login_request();
    target.answer_login(target.login_response(&request, true), &[]);
    let (request, _) = target.login_request();
    // An offer of the target's own is answered.
    target.answer_login(target.login_response(&request, false), &[("IFMarker", "Yes"), ("X-org.example.turbo", "9")]);
    let (request, pairs) = target.login_request();
    assert_eq!(keys(&pairs), [("IFMarker", "No"), ("X-org.example.turbo", "NotUnderstood")]);
    target.answer_login(LoginResponse { tsih: Tsih(1), ..target.login_response(&request, true) }, &[]);
    assert!(matches!(target.event(), Event::LoggedIn(_)));
}

#[test]
fn an_answer_may_come_in_parts_cut_anywhere() {
    let (mut target, last) = operational(config());
    let list = b"MaxBurstLength=512\0HeaderDigest=None\0";
    let parts: Vec<&[u8]> = list.chunks(5).collect();
    for part in &parts[..parts.len() - 1] {
        let stat_sn = target.stat_sn;
        target.answer_login_text(LoginResponse { transit: false, continue_: true, stat_sn, ..last }, part);
        let (request, pairs) = target.login_request();
        assert_eq!((request.transit, request.continue_, pairs.len()), (false, false, 0));
    }
    let stat_sn = target.stat_sn;
    target.answer_login_text(LoginResponse { transit: false, stat_sn, ..last }, parts[parts.len() - 1]);
    let (request, _) = target.login_request();
    assert!(request.transit);
    target.answer_login(LoginResponse { tsih: Tsih(1), ..target.login_response(&request, true) }, &[]);
    assert_eq!(target.session.parameters(target.cid).unwrap().max_burst_len, 512);
}

#[test]
fn a_long_list_of_ours_goes_in_parts() {
    let alias = "a".repeat(8180);
    let mut target = ScriptedTarget::new(SessionConfig { initiator_alias: Some(alias.clone()), ..config() });
    let first = target.sent.pop_front().unwrap();
    let lunette_pdu::InitiatorPdu::LoginRequest(request) = first.pdu else { panic!("{:?}", first.pdu) };
    assert_eq!((request.continue_, request.transit, first.data.len()), (true, false, 8192));
    target.answer_login(target.login_response(&request, false), &[]);
    let second = target.sent.pop_front().unwrap();
    let lunette_pdu::InitiatorPdu::LoginRequest(request) = second.pdu else { panic!("{:?}", second.pdu) };
    assert_eq!((request.continue_, request.transit), (false, true));
    let list = String::from_utf8([first.data, second.data].concat()).unwrap();
    assert!(list.contains(&format!("InitiatorAlias={alias}\0SessionType=Normal\0")));

    let mut target = ScriptedTarget::new(SessionConfig { initiator_alias: Some(alias), ..config() });
    let first = target.sent.pop_front();
    let Some(lunette_pdu::InitiatorPdu::LoginRequest(request)) = first.map(|sent| sent.pdu) else { panic!() };
    target.answer_login(target.login_response(&request, false), &[("AuthMethod", "None")]);
    target.broken("6.2");
}

#[test]
fn every_broken_rule_of_the_header_is_named() {
    type Lie = fn(LoginResponse) -> LoginResponse;
    let lies: [(&str, Lie); 9] = [
        ("11.13", |pdu| LoginResponse { itt: InitiatorTaskTag(9), ..pdu }),
        ("11.13", |pdu| LoginResponse { isid: Isid([1; 6]), ..pdu }),
        ("11.13.2", |pdu| LoginResponse { version_active: 1, ..pdu }),
        ("11.13", |pdu| LoginResponse { csg: Stage::SecurityNegotiation, ..pdu }),
        ("11.13", |pdu| LoginResponse { nsg: Stage::SecurityNegotiation, ..pdu }),
        ("11.13", |pdu| LoginResponse { nsg: OPERATIONAL, ..pdu }),
        ("11.13.3", |pdu| LoginResponse { tsih: Tsih::NEW, ..pdu }),
        ("4.2.2.2", |pdu| LoginResponse { stat_sn: pdu.stat_sn.next(), ..pdu }),
        ("4.2.2.1", |pdu| LoginResponse { exp_cmd_sn: pdu.exp_cmd_sn.next(), ..pdu }),
    ];
    for (index, (section, lie)) in lies.into_iter().enumerate() {
        let (mut target, response) = operational(config());
        target.answer_login(lie(response), &[]);
        let what = target.broken(section);
        assert!(!what.is_empty(), "lie {index}");
    }
    let (mut target, response) = operational(config());
    target.answer_login(LoginResponse { continue_: true, ..response }, &[]);
    target.broken("7.7");
}

#[test]
fn a_target_does_not_lead() {
    let chap = lunette_session::iscsi_initiator::ChapIdentity {
        initiator: crate::harness::credentials("u", "s"),
        target: None,
        algorithms: lunette_session::ChapAlgorithms::ALL,
    };
    let mut target = ScriptedTarget::new(SessionConfig { chap: Some(chap), ..config() });
    let (request, _) = target.login_request();
    assert!(!request.transit);
    let response = LoginResponse { nsg: OPERATIONAL, ..target.login_response(&request, true) };
    target.answer_login(response, &[("AuthMethod", "None")]);
    target.broken("11.13");
    // Over the operational stage.
    let mut target = ScriptedTarget::new(config());
    let (request, _) = target.login_request();
    let response =
        LoginResponse { nsg: Stage::FullFeaturePhase, tsih: Tsih(1), ..target.login_response(&request, true) };
    target.answer_login(response, &[("AuthMethod", "None")]);
    target.broken("11.13");
}

#[test]
fn every_broken_rule_of_the_keys_is_named() {
    for (section, text) in [
        ("6.2", "MaxBurstLength=16777215\0"),
        ("6.2", "DataPDUInOrder=No\0"),
        ("6.2", "ErrorRecoveryLevel=2\0"),
        ("6.2", "HeaderDigest=CRC64\0"),
        ("6.2", "InitialR2T=Yes\0InitialR2T=Yes\0"),
        ("6.2", "TaskReporting=FastAbort\0"),
        ("13.9", "TargetPortalGroupTag=65536\0"),
        ("6.1", "MaxBurstLength"),
        ("6.1", "=512\0"),
        ("6.1", "MaxBurstLength=\u{7}\0"),
    ] {
        let (mut target, response) = operational(config());
        target.answer_login_text(response, text.as_bytes());
        let what = target.broken(section);
        assert!(!what.is_empty(), "{text}");
    }
    let mut target = ScriptedTarget::new(config());
    let (request, _) = target.login_request();
    target.answer_login(target.login_response(&request, true), &[("AuthMethod", "None"), ("MaxBurstLength", "512")]);
    target.broken("6.3");
}

#[test]
fn a_digest_that_must_be_and_is_not_taken_ends_the_login() {
    for answer in ["Reject", "NotUnderstood"] {
        let offer = Offer { data_digest: Choices(0b10), ..Offer::default() };
        let (mut target, response) = operational(SessionConfig { offer, ..config() });
        target.answer_login(response, &[("DataDigest", answer)]);
        assert_eq!(target.closed(), LoginError::Incompatible("DataDigest".into()).into());
    }
}

#[test]
fn refusals_are_passed_on() {
    for status in [LoginStatus::AUTHORIZATION_FAILURE, LoginStatus::NOT_FOUND, LoginStatus { class: 9, detail: 1 }] {
        let (mut target, response) = operational(config());
        target.answer_login(LoginResponse { status, stat_sn: SerialNumber(77), ..response }, &[]);
        assert_eq!(target.closed(), LoginError::Refused(status).into());
    }
}

#[test]
fn a_redirection_says_where_to() {
    for (status, permanent) in
        [(LoginStatus::TARGET_MOVED_TEMPORARILY, false), (LoginStatus::TARGET_MOVED_PERMANENTLY, true)]
    {
        let mut target = ScriptedTarget::new(config());
        let (request, _) = target.login_request();
        let response = LoginResponse { status, ..target.login_response(&request, false) };
        target.answer_login(response, &[("TargetAddress", "192.0.2.9:3260,1")]);
        let Event::Redirected { addresses, permanent: found, .. } = target.event() else { panic!() };
        assert_eq!((addresses, found), (vec!["192.0.2.9:3260,1".to_owned()], permanent));
        target.session.disconnected(target.cid, target.now);
        target.raw(b"anything");
        assert!(target.events.is_empty());
    }
    let (mut target, response) = operational(config());
    target.answer_login(LoginResponse { status: LoginStatus::TARGET_MOVED_TEMPORARILY, ..response }, &[]);
    target.broken("11.13.5");
}

#[test]
fn a_login_without_end_is_given_up() {
    let mut target = ScriptedTarget::new(config());
    let (request, _) = target.login_request();
    target.answer_login(target.login_response(&request, false), &[("AuthMethod", "None")]);
    for _ in 0..100 {
        if !target.events.is_empty() {
            break;
        }
        let (request, _) = target.login_request();
        target.answer_login(target.login_response(&request, false), &[]);
    }
    target.broken("6.3");
}

#[test]
fn keys_and_text_are_bounded() {
    let (mut target, response) = operational(config());
    let many: Vec<u8> = (0..300).flat_map(|n| format!("X-{n}=1\0").into_bytes()).collect();
    target.answer_login_text(LoginResponse { transit: false, ..response }, &many);
    target.broken("6.2");
    let (mut target, response) = operational(config());
    while target.events.is_empty() {
        let stat_sn = target.stat_sn;
        target.answer_login_text(LoginResponse { transit: false, continue_: true, stat_sn, ..response }, &[b'x'; 8000]);
    }
    target.broken("6.2");
    let (mut target, response) = operational(config());
    target.raw(&LoginResponse { data_segment_len: 8193, ..response }.emit());
    target.broken("13.12");
}

#[test]
fn only_login_responses_come_before_the_login_has_ended() {
    for first in [0x20, 0x21, 0x25, 0x26, 0x31, 0x32, 0x3f] {
        let mut target = ScriptedTarget::new(config());
        let mut header = [0; 48];
        header[0] = first;
        header[1] = 0x80;
        target.raw(&header);
        target.broken("6.3");
    }
    let mut target = ScriptedTarget::new(config());
    let mut header = [0; 48];
    header[0] = 0x2b;
    target.raw(&header);
    target.broken("7.7");
}

#[test]
fn a_login_is_in_time_or_over() {
    let mut target = ScriptedTarget::new(config());
    target.pass(Duration::from_secs(14));
    assert!(target.events.is_empty());
    // Dribbling does not help.
    target.raw(&[0x23]);
    target.pass(Duration::from_secs(1));
    assert_eq!(target.closed(), LoginError::Timeout.into());
    assert_eq!(target.session.next_timeout(), None);
}

#[test]
fn names_that_cannot_stand_on_the_wire_end_the_login_before_it_begins() {
    let mut target = ScriptedTarget::new(SessionConfig { initiator_name: "iqn\n".into(), ..config() });
    assert!(matches!(target.closed(), SessionError::Login(LoginError::Incompatible(_))));
    assert!(target.sent.is_empty());
}

#[test]
fn a_second_connection_is_closed_at_once() {
    let offer = Offer { max_connections: 1, ..config().offer };
    let mut target = ScriptedTarget::logged_in(SessionConfig { offer, ..config() }, &[]);
    let second = target.session.connect(entropy(1), target.now);
    let event = target.session.next_event(second, &mut &[][..], target.now);
    assert!(matches!(event, Some(Event::Closed { cid, .. }) if cid == second), "{event:?}");
    target.read(512);
}

#[test]
fn words_of_the_target_are_fit_for_a_terminal() {
    let mut target = ScriptedTarget::new(config());
    let (request, _) = target.login_request();
    let response = target.login_response(&request, true);
    target.answer_login(response, &[("TargetAlias", "att\u{202e}ic"), ("AuthMethod", "None")]);
    let (request, _) = target.login_request();
    let response = LoginResponse { tsih: Tsih(1), ..target.login_response(&request, true) };
    target.answer_login(response, &[]);
    assert!(matches!(target.event(), Event::LoggedIn(_)));
    assert_eq!(target.session.target_alias(), Some("att\u{fffd}ic"));

    for key in ["TargetPortalGroupTag", "AuthMethod", "X-\u{2067}", "MaxBurstLength"] {
        let mut target = ScriptedTarget::new(config());
        let (request, _) = target.login_request();
        let response = target.login_response(&request, true);
        target.answer_login(response, &[(key, "1\u{202e}\u{2066}\u{200b}")]);
        let event = target.event();
        let Event::Closed { why: why @ SessionError::Protocol { .. }, .. } = event else { panic!("{event:?}") };
        let shown = why.to_string();
        assert!(!shown.contains(['\u{202e}', '\u{2066}', '\u{2067}', '\u{200b}']), "{shown:?}");
    }
}
