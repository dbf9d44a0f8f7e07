//! CHAP (RFC 7143 sections 9.2.1 and 12.1.3).

use lunette_pdu::text::{format_binary, pairs, parse_binary};
use lunette_pdu::{Cid, LoginRequest, LoginStatus, Stage, Tsih};
use lunette_session::iscsi_target::{CloseReason, Host};
use lunette_session::keys::Offer;
use lunette_session::{Authentication, ChapAlgorithms, Credentials, Secret};
use md5::Digest;

use crate::harness::{Cut, INITIATOR, Peer, Setup, TARGET, login_request, only, text};

const USER: &str = "alice";
const SECRET: &str = "alice and her secret";
const OWN_USER: &str = "disk";
const OWN_SECRET: &str = "the secret of the disk";

fn credentials(user: &str, secret: &str) -> Credentials {
    Credentials { user: user.into(), secret: Secret::new(secret.into()) }
}

fn policy() -> Authentication {
    Authentication::Chap {
        initiators: vec![credentials("bob", "bob's secret, not hers"), credentials(USER, SECRET)],
        target: Some(credentials(OWN_USER, OWN_SECRET)),
        algorithms: ChapAlgorithms::ALL,
    }
}

fn only_users(initiators: Vec<Credentials>) -> Authentication {
    Authentication::Chap { initiators, target: None, algorithms: ChapAlgorithms::ALL }
}

fn setup() -> Setup {
    Setup { authentication: policy(), ..Setup::default() }
}

/// Security stage, straight to the full feature phase, or asking to stay.
fn request(transit: bool) -> LoginRequest {
    LoginRequest { csg: Stage::SecurityNegotiation, transit, ..login_request() }
}

fn names(more: &[(&str, &str)]) -> Vec<u8> {
    text(&[&[("InitiatorName", INITIATOR), ("TargetName", TARGET)], more].concat())
}

/// The content of a response, key by key.
struct Said(Vec<(String, String)>);

impl Said {
    fn of(peer: &mut Peer) -> (bool, Self) {
        let (response, data) = peer.login_response();
        assert_eq!(response.status, LoginStatus::SUCCESS);
        let said = pairs(&data).map(|pair| pair.map(|(key, value)| (key.into(), value.into())).unwrap());
        (response.transit, Self(said.collect()))
    }

    fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(k, _)| k == key).map_or_else(|| panic!("no {key} in {:?}", self.0), |(_, v)| v)
    }
}

fn digest(algorithm: &str, identifier: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
    let input = [&[identifier], secret.as_bytes(), challenge].concat();
    match algorithm {
        "5" => md5::Md5::digest(&input).to_vec(),
        "6" => sha1::Sha1::digest(&input).to_vec(),
        "7" => sha2::Sha256::digest(&input).to_vec(),
        "8" => sha3::Sha3_256::digest(&input).to_vec(),
        other => panic!("algorithm {other}"),
    }
}

struct Challenge {
    algorithm: String,
    identifier: u8,
    bytes: Vec<u8>,
}

impl Challenge {
    fn answer(&self, secret: &str) -> String {
        format_binary(&digest(&self.algorithm, self.identifier, secret, &self.bytes))
    }
}

/// Goes as far as the challenge.
fn challenged(peer: &mut Peer, algorithms: &str) -> Challenge {
    peer.login(request(true), &names(&[("AuthMethod", "CHAP,None")]));
    let (transit, said) = Said::of(peer);
    assert!(!transit);
    assert_eq!(said.get("AuthMethod"), "CHAP");
    peer.login(request(false), &text(&[("CHAP_A", algorithms)]));
    let (_, said) = Said::of(peer);
    Challenge {
        algorithm: said.get("CHAP_A").into(),
        identifier: said.get("CHAP_I").parse().unwrap(),
        bytes: parse_binary(said.get("CHAP_C"), 1024).unwrap(),
    }
}

fn denied(peer: &mut Peer) -> String {
    let (response, data) = peer.login_response();
    assert_eq!(response.status, LoginStatus::AUTHENTICATION_FAILURE);
    assert!(data.is_empty() && !response.transit);
    assert_eq!(peer.driver.admissions, 0);
    match peer.driver.closed.clone() {
        Some(CloseReason::LoginRefused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_algorithm_lets_the_right_secret_in() {
    for (offered, taken) in [("5", "5"), ("6", "6"), ("7", "7"), ("8", "8"), ("9,5,8", "8"), ("0x7", "7"), ("5,7", "7")]
    {
        for piece in [1, usize::MAX] {
            let mut peer = Peer::connect(setup()).cut(Cut { piece, direct: false });
            let challenge = challenged(&mut peer, offered);
            assert_eq!(challenge.algorithm, taken);
            assert!(challenge.bytes.len() >= 16);
            peer.login(request(true), &text(&[("CHAP_N", USER), ("CHAP_R", &challenge.answer(SECRET))]));
            let (transit, said) = Said::of(&mut peer);
            assert!(transit && said.0.is_empty());
            assert!(peer.driver.session().is_some());
        }
    }
}

#[test]
fn the_operational_stage_may_follow() {
    let mut peer = Peer::connect(setup());
    let challenge = challenged(&mut peer, "7");
    let to_operational = LoginRequest { nsg: Stage::LoginOperationalNegotiation, ..request(true) };
    peer.login(to_operational, &text(&[("CHAP_N", USER), ("CHAP_R", &challenge.answer(SECRET))]));
    assert!(Said::of(&mut peer).0);
    peer.login(login_request(), &text(&[("HeaderDigest", "CRC32C")]));
    let (transit, said) = Said::of(&mut peer);
    assert!(transit);
    assert_eq!(said.get("HeaderDigest"), "CRC32C");
}

#[test]
fn the_target_proves_itself_when_asked() {
    for algorithm in ["5", "6", "7", "8"] {
        let mut peer = Peer::connect(setup());
        let challenge = challenged(&mut peer, algorithm);
        let ours = [0x42; 20];
        let list = [
            ("CHAP_N", USER),
            ("CHAP_R", &challenge.answer(SECRET)),
            ("CHAP_I", "200"),
            ("CHAP_C", &format_binary(&ours)),
        ];
        peer.login(request(true), &text(&list));
        let (transit, said) = Said::of(&mut peer);
        assert!(transit);
        assert_eq!(said.get("CHAP_N"), OWN_USER);
        assert_eq!(said.get("CHAP_R"), format_binary(&digest(algorithm, 200, OWN_SECRET, &ours)));
    }
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("0b");
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let symbol = SYMBOLS[(word >> (18 - 6 * at) & 63) as usize];
            text.push(if at > chunk.len() { '=' } else { char::from(symbol) });
        }
    }
    text
}

#[test]
fn base64_is_read_as_well_as_hexadecimal() {
    for mutual in [false, true] {
        let mut peer = Peer::connect(setup());
        let challenge = challenged(&mut peer, "5");
        let answer = base64(&digest("5", challenge.identifier, SECRET, &challenge.bytes));
        let ours = [0x99; 16];
        let counter = base64(&ours);
        let mut list = vec![("CHAP_R", answer.as_str()), ("CHAP_N", USER)];
        if mutual {
            list.extend([("CHAP_C", counter.as_str()), ("CHAP_I", "0x1f")]);
        }
        peer.login(request(true), &text(&list));
        let (transit, said) = Said::of(&mut peer);
        assert!(transit);
        if mutual {
            assert_eq!(said.get("CHAP_R"), format_binary(&digest("5", 0x1f, OWN_SECRET, &ours)));
        }
    }
}

/// The answer of an initiator to a challenge.
type Answer<'a> = Box<dyn Fn(&Challenge) -> Vec<(&'a str, String)> + 'a>;

#[test]
fn wrong_answers_are_denied() {
    let long = format!("0x{}", "ab".repeat(1025));
    let long = long.as_str();
    let right = |challenge: &Challenge| challenge.answer(SECRET);
    let cases: Vec<(&str, Answer<'_>)> = vec![
        ("wrong secret", Box::new(|c| vec![("CHAP_N", USER.into()), ("CHAP_R", c.answer("guess"))])),
        ("another's secret", Box::new(|c| vec![("CHAP_N", "bob".into()), ("CHAP_R", right(c))])),
        ("unknown user", Box::new(|c| vec![("CHAP_N", "carol".into()), ("CHAP_R", right(c))])),
        ("no user", Box::new(|c| vec![("CHAP_R", right(c))])),
        ("no response", Box::new(|_| vec![("CHAP_N", USER.into())])),
        ("nothing", Box::new(|_| vec![])),
        ("user in capitals", Box::new(|c| vec![("CHAP_N", "ALICE".into()), ("CHAP_R", right(c))])),
        ("not binary", Box::new(|_| vec![("CHAP_N", USER.into()), ("CHAP_R", "hello".into())])),
        ("empty", Box::new(|_| vec![("CHAP_N", USER.into()), ("CHAP_R", "0x".into())])),
        ("too long", Box::new(move |_| vec![("CHAP_N", USER.into()), ("CHAP_R", long.into())])),
        ("one byte more", Box::new(|c| vec![("CHAP_N", USER.into()), ("CHAP_R", right(c) + "00")])),
        ("algorithm again", Box::new(|_| vec![("CHAP_A", "5".into())])),
        (
            "identifier without challenge",
            Box::new(|c| vec![("CHAP_N", USER.into()), ("CHAP_R", right(c)), ("CHAP_I", "1".into())]),
        ),
        (
            "challenge without identifier",
            Box::new(|c| vec![("CHAP_N", USER.into()), ("CHAP_R", right(c)), ("CHAP_C", "0x1234".into())]),
        ),
        (
            "identifier too large",
            Box::new(|c| {
                vec![("CHAP_N", USER.into()), ("CHAP_R", right(c)), ("CHAP_I", "256".into()), ("CHAP_C", "0x12".into())]
            }),
        ),
        (
            "challenge too long",
            Box::new(move |c| {
                vec![("CHAP_N", USER.into()), ("CHAP_R", right(c)), ("CHAP_I", "1".into()), ("CHAP_C", long.into())]
            }),
        ),
        (
            "our own challenge",
            Box::new(|c| {
                vec![
                    ("CHAP_N", USER.into()),
                    ("CHAP_R", right(c)),
                    ("CHAP_I", "1".into()),
                    ("CHAP_C", format_binary(&c.bytes)),
                ]
            }),
        ),
    ];
    for (what, answer) in cases {
        let mut peer = Peer::connect(setup());
        let challenge = challenged(&mut peer, "7");
        let list = answer(&challenge);
        let list: Vec<(&str, &str)> = list.iter().map(|(key, value)| (*key, value.as_str())).collect();
        peer.login(request(true), &text(&list));
        println!("{what}: {}", denied(&mut peer));
    }
}

#[test]
fn mutual_chap_needs_credentials_of_the_target() {
    let one_way = only_users(vec![credentials(USER, SECRET)]);
    let mut peer = Peer::connect(Setup { authentication: one_way, ..Setup::default() });
    let challenge = challenged(&mut peer, "7");
    let list = [("CHAP_N", USER), ("CHAP_R", &challenge.answer(SECRET)), ("CHAP_I", "1"), ("CHAP_C", "0x1234")];
    peer.login(request(true), &text(&list));
    denied(&mut peer);
}

#[test]
fn the_target_does_not_answer_with_the_secret_of_an_initiator_of_any_host() {
    let hosts = |shared: &str| {
        let other = only_users(vec![credentials("eve's victim", shared)]);
        let other = Host {
            name: "other".into(),
            authentication: Some(other),
            ..Host::of_initiators(Some(vec!["iqn.other".into()]))
        };
        vec![Host::everyone(), other]
    };
    for (shared, is_answered) in [(OWN_SECRET, false), ("another secret", true)] {
        let mut peer = Peer::connect(Setup { hosts: hosts(shared), ..setup() });
        let challenge = challenged(&mut peer, "7");
        let list = [("CHAP_N", USER), ("CHAP_R", &challenge.answer(SECRET)), ("CHAP_I", "1"), ("CHAP_C", "0x1234")];
        peer.login(request(true), &text(&list));
        if is_answered {
            assert_eq!(Said::of(&mut peer).1.get("CHAP_N"), OWN_USER);
        } else {
            assert!(denied(&mut peer).contains("the target's secret"));
        }
    }
}

#[test]
fn chap_cannot_be_walked_around() {
    let operational = login_request();
    let first: &[(&str, LoginRequest, Vec<u8>)] = &[
        ("operational stage", operational, names(&[])),
        ("operational stage, staying", LoginRequest { transit: false, ..operational }, names(&[])),
        ("no method", request(true), names(&[])),
        ("only None", request(true), names(&[("AuthMethod", "None")])),
        ("method in the wrong case", request(true), names(&[("AuthMethod", "chap")])),
    ];
    for (what, request, list) in first {
        let mut peer = Peer::connect(setup());
        peer.login(*request, list);
        println!("{what}: {}", denied(&mut peer));
    }
}

#[test]
fn chap_keys_out_of_turn_are_denied() {
    let cases: &[(&str, &[(&str, &str)])] = &[
        ("response before algorithm", &[("CHAP_N", USER), ("CHAP_R", "0x00")]),
        ("nothing", &[]),
        ("unknown algorithm", &[("CHAP_A", "4,9")]),
        ("empty algorithm", &[("CHAP_A", "")]),
        ("algorithm that is no number", &[("CHAP_A", "MD5")]),
    ];
    for (what, list) in cases {
        let mut peer = Peer::connect(setup());
        peer.login(request(true), &names(&[("AuthMethod", "CHAP")]));
        assert!(!Said::of(&mut peer).0);
        peer.login(request(true), &text(list));
        println!("{what}: {}", denied(&mut peer));
    }
}

#[test]
fn an_algorithm_that_is_not_allowed_is_passed_over_or_refused() {
    let allowing = |allowed: &str| {
        let Authentication::Chap { initiators, target, .. } = policy() else { unreachable!() };
        let authentication = Authentication::Chap { initiators, target, algorithms: allowed.parse().unwrap() };
        Peer::connect(Setup { authentication, ..Setup::default() })
    };
    for (allowed, offered, taken) in
        [("sha256,md5", "5,6,7,8", "7"), ("md5", "8,7,6,5", "5"), ("sha1,sha256", "6", "6")]
    {
        let mut peer = allowing(allowed);
        let challenge = challenged(&mut peer, offered);
        assert_eq!(challenge.algorithm, taken, "{allowed} {offered}");
        peer.login(request(true), &text(&[("CHAP_N", USER), ("CHAP_R", &challenge.answer(SECRET))]));
        assert!(Said::of(&mut peer).0, "{allowed} {offered}");
    }
    let mut peer = allowing("sha256,sha3-256");
    peer.login(request(true), &names(&[("AuthMethod", "CHAP")]));
    assert!(!Said::of(&mut peer).0);
    peer.login(request(false), &text(&[("CHAP_A", "5,6")]));
    let why = denied(&mut peer);
    for part in ["CHAP_A=\"5,6\" offers sha1, md5", "allows sha3-256, sha256"] {
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn a_transit_is_refused_until_the_proof_is_there() {
    let mut peer = Peer::connect(setup());
    peer.login(request(false), &names(&[]));
    assert!(!Said::of(&mut peer).0);
    peer.login(request(true), &text(&[("AuthMethod", "CHAP")]));
    assert!(!Said::of(&mut peer).0);
    peer.login(request(true), &text(&[("CHAP_A", "5")]));
    assert!(!Said::of(&mut peer).0, "T is not granted with a challenge");
    assert_eq!(peer.driver.admissions, 0);
}

#[test]
fn a_method_is_agreed_on_once() {
    let mut peer = Peer::connect(setup());
    challenged(&mut peer, "5");
    peer.login(request(true), &text(&[("AuthMethod", "CHAP")]));
    assert_eq!(peer.login_response().0.status, LoginStatus::INITIATOR_ERROR);
}

#[test]
fn the_proof_may_come_before_the_transit() {
    let mut peer = Peer::connect(setup());
    let challenge = challenged(&mut peer, "5");
    peer.login(request(false), &text(&[("CHAP_N", USER), ("CHAP_R", &challenge.answer(SECRET))]));
    assert!(!Said::of(&mut peer).0);
    peer.login(request(true), &[]);
    assert!(Said::of(&mut peer).0);
}

#[test]
fn discovery_has_its_own_policy() {
    let mut peer = Peer::connect(Setup { discovery: policy(), ..Setup::default() });
    let discovery = [("InitiatorName", INITIATOR), ("SessionType", "Discovery")];
    peer.login(login_request(), &text(&discovery));
    denied(&mut peer);
    let mut peer = Peer::connect(Setup { discovery: policy(), ..Setup::default() });
    peer.login(request(true), &text(&[&discovery[..], &[("AuthMethod", "CHAP")]].concat()));
    assert_eq!(Said::of(&mut peer).1.get("AuthMethod"), "CHAP");
    // The target behind it asks for nothing.
    let mut peer = Peer::connect(Setup { discovery: policy(), ..Setup::default() });
    peer.login(login_request(), &names(&[]));
    assert!(Said::of(&mut peer).0);
}

/// The user that logs in; without a secret, no proof is asked for.
type User = Option<(&'static str, &'static str)>;

const ALICE: User = Some((USER, SECRET));
const BOB: User = Some(("bob", "bob's secret, not hers"));

/// A connection that asks as `user` for a session, or for a place in one, of those that are there.
fn logging_in(user: User, level: u32, tsih: Tsih, cid: u16, sessions: Option<&mut Peer>) -> Peer {
    let authentication = if user.is_some() { policy() } else { Authentication::None };
    let offer = Offer { error_recovery_level: level, max_connections: 2, ..Offer::default() };
    let mut peer = Peer::connect(Setup { offer, authentication, ..Setup::default() });
    if let Some(others) = sessions {
        peer.driver.share(&others.driver);
        peer.cmd_sn = others.cmd_sn;
    }
    let base = LoginRequest { tsih, cid: Cid(cid), ..request(false) };
    let to_operational = LoginRequest { transit: true, nsg: Stage::LoginOperationalNegotiation, ..base };
    if let Some((user, secret)) = user {
        peer.login(base, &names(&[("AuthMethod", "CHAP")]));
        Said::of(&mut peer);
        peer.login(base, &text(&[("CHAP_A", "7")]));
        let (_, said) = Said::of(&mut peer);
        let challenge = Challenge {
            algorithm: said.get("CHAP_A").into(),
            identifier: said.get("CHAP_I").parse().unwrap(),
            bytes: parse_binary(said.get("CHAP_C"), 1024).unwrap(),
        };
        peer.login(to_operational, &text(&[("CHAP_N", user), ("CHAP_R", &challenge.answer(secret))]));
    } else {
        peer.login(to_operational, &names(&[("AuthMethod", "None")]));
    }
    assert!(Said::of(&mut peer).0);
    let level = level.to_string();
    let offers = [("ErrorRecoveryLevel", level.as_str()), ("MaxConnections", "2")];
    let leading = tsih == Tsih::NEW;
    peer.login(LoginRequest { tsih, cid: Cid(cid), ..login_request() }, &text(if leading { &offers } else { &[] }));
    peer
}

#[test]
fn a_session_belongs_to_the_user_that_began_it() {
    const OWN_CID: u16 = 3;
    for level in [0, 2] {
        for suspended in [false, true] {
            for (owner, other) in [(ALICE, BOB), (BOB, ALICE)] {
                let begun = || {
                    let mut first = logging_in(owner, level, Tsih::NEW, OWN_CID, None);
                    assert!(first.login_response().0.transit);
                    let tsih = first.driver.session().unwrap().tsih;
                    if suspended && level == 2 {
                        assert!(first.driver.stream_lost());
                    }
                    (first, tsih)
                };
                // A further connection, one that takes the place of the first, a session that takes the place of the
                // first.
                for (what, cid, status) in [
                    ("joins", OWN_CID + 1, LoginStatus::SESSION_DOES_NOT_EXIST),
                    ("takes the connection", OWN_CID, LoginStatus::SESSION_DOES_NOT_EXIST),
                    ("takes the session", OWN_CID, LoginStatus::AUTHORIZATION_FAILURE),
                ] {
                    let is_new = what == "takes the session";
                    let (mut first, tsih) = begun();
                    let asked = if is_new { Tsih::NEW } else { tsih };
                    let mut second = logging_in(other, level, asked, cid, Some(&mut first));
                    assert_eq!(second.login_response().0.status, status, "{other:?} {what} at level {level}");
                    assert!(second.driver.displaced.is_empty() && second.driver.session().is_none());
                    assert_eq!(first.driver.sessions.borrow().len(), 1);
                    assert!(first.driver.in_session(|session, _| session.members().eq([1])));
                    // The session goes on.
                    if suspended && level == 2 {
                        let mut third = logging_in(owner, level, tsih, OWN_CID + 1, Some(&mut first));
                        assert!(third.login_response().0.status.is_success());
                    } else {
                        first.nop_out(crate::harness::nop_out(1), b"still here");
                        assert_eq!(first.nop_in().1, b"still here");
                    }

                    let (mut first, tsih) = begun();
                    let asked = if is_new { Tsih::NEW } else { tsih };
                    let mut second = logging_in(owner, level, asked, cid, Some(&mut first));
                    let (response, _) = second.login_response();
                    assert!(response.transit && response.status.is_success(), "the owner {what} at level {level}");
                }
            }
        }
    }
}

#[test]
fn a_session_of_another_user_looks_like_none() {
    let mut first = logging_in(ALICE, 0, Tsih::NEW, 1, None);
    assert!(first.login_response().0.transit);
    let tsih = first.driver.session().unwrap().tsih;
    let answers = [tsih, Tsih(tsih.0 + 1)].map(|tsih| {
        let mut second = logging_in(BOB, 0, tsih, 1, Some(&mut first));
        let (response, data) = second.login_response();
        (response.status, data, second.driver.closed)
    });
    assert_eq!(answers[0], answers[1]);
}

/// Two hosts of one target, each with a user of its own.
fn hosts_with_users() -> Setup {
    let host = |name: &str, initiator: &str, user: &str| Host {
        name: name.into(),
        authentication: Some(only_users(vec![credentials(user, SECRET)])),
        ..only(initiator)
    };
    Setup { hosts: vec![host("one", INITIATOR, USER), host("two", "iqn.x", "bob")], ..Setup::default() }
}

#[test]
fn a_user_is_known_at_its_own_host_alone() {
    for (user, is_let_in) in [(USER, true), ("bob", false)] {
        let mut peer = Peer::connect(hosts_with_users());
        let challenge = challenged(&mut peer, "7");
        peer.login(request(true), &text(&[("CHAP_N", user), ("CHAP_R", &challenge.answer(SECRET))]));
        if is_let_in {
            assert!(Said::of(&mut peer).0);
            assert_eq!(peer.driver.session().unwrap().host.as_deref(), Some("one"));
        } else {
            denied(&mut peer);
        }
    }
}
