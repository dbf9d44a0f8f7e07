//! CHAP from the initiator's side: with our own target, and with targets that cheat.

use lunette_pdu::text::{format_binary, parse_binary};
use lunette_pdu::{LoginResponse, LoginStatus, Stage};
use lunette_session::iscsi_initiator::{ChapIdentity, Event, LoginError, SessionConfig, SessionError};
use lunette_session::{Authentication, ChapAlgorithms};
use md5::{Digest as _, Md5};

use crate::harness::{Pair, ScriptedTarget, config, credentials, entropy, node};

fn identity(mutual: bool) -> ChapIdentity {
    ChapIdentity {
        initiator: credentials("user", "a secret of the user"),
        target: mutual.then(|| credentials("target", "a secret of the target")),
        algorithms: ChapAlgorithms::ALL,
    }
}

fn policy(user_secret: &str, target_secret: &str) -> Authentication {
    Authentication::Chap {
        initiators: vec![credentials("user", user_secret)],
        target: Some(credentials("target", target_secret)),
        algorithms: ChapAlgorithms::ALL,
    }
}

fn right() -> Authentication {
    policy("a secret of the user", "a secret of the target")
}

fn outcome(chap: Option<ChapIdentity>, authentication: Authentication) -> Event {
    let config = SessionConfig { chap, ..config() };
    let mut pair = Pair::new(config, node(authentication, <_>::default()), Authentication::None);
    pair.run();
    pair.ends.events.pop_front().expect("an end of the login")
}

fn why(event: Event) -> SessionError {
    if let Event::Closed { why, .. } = event { why } else { panic!("{event:?}") }
}

#[test]
fn our_target_and_we_agree() {
    for mutual in [false, true] {
        let event = outcome(Some(identity(mutual)), right());
        assert!(matches!(event, Event::LoggedIn(_)), "mutual {mutual}: {event:?}");
    }
    let any_name = ChapIdentity { target: Some(credentials("", "a secret of the target")), ..identity(false) };
    assert!(matches!(outcome(Some(any_name), right()), Event::LoggedIn(_)));
    // One that asks for no proof.
    assert!(matches!(outcome(Some(identity(false)), Authentication::None), Event::LoggedIn(_)));
    assert!(matches!(outcome(None, Authentication::None), Event::LoggedIn(_)));
}

#[test]
fn wrong_secrets_are_refused() {
    let denied = LoginError::Refused(LoginStatus::AUTHENTICATION_FAILURE).into();
    assert_eq!(why(outcome(Some(identity(false)), policy("another", "x"))), denied);
    assert_eq!(why(outcome(None, right())), denied);
    // Mutual CHAP with a target that proves nothing.
    assert_eq!(why(outcome(Some(identity(true)), Authentication::None)), denied);
}

#[test]
fn a_target_without_the_right_secret_or_name_is_not_trusted() {
    let wrong_secret = policy("a secret of the user", "a guess");
    assert_eq!(why(outcome(Some(identity(true)), wrong_secret)), LoginError::TargetAuthentication.into());
    let other_name = ChapIdentity { target: Some(credentials("disk", "a secret of the target")), ..identity(false) };
    assert_eq!(why(outcome(Some(other_name), right())), LoginError::TargetAuthentication.into());
}

#[test]
fn one_secret_for_both_directions_begins_no_login() {
    let chap = ChapIdentity { target: Some(credentials("target", "a secret of the user")), ..identity(false) };
    let same = policy("a secret of the user", "a secret of the user");
    assert_eq!(why(outcome(Some(chap), same)), LoginError::SameSecret.into());
}

#[test]
fn a_discovery_session_proves_itself_too() {
    let config = SessionConfig { target_name: None, chap: Some(identity(true)), ..config() };
    let mut pair = Pair::new(config, node(Authentication::None, <_>::default()), right());
    pair.run();
    pair.expect_login();
}

fn md5(identifier: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
    Md5::new().chain_update([identifier]).chain_update(secret).chain_update(challenge).finalize().to_vec()
}

/// A scripted target that has the initiator's CHAP_A.
fn at_algorithms(mutual: bool) -> (ScriptedTarget, LoginResponse) {
    let mut target = ScriptedTarget::new(SessionConfig { chap: Some(identity(mutual)), ..config() });
    let (request, keys) = target.login_request();
    assert_eq!(keys.last().unwrap().1, if mutual { "CHAP" } else { "CHAP,None" });
    target.answer_login(target.login_response(&request, false), &[("AuthMethod", "CHAP")]);
    let (request, keys) = target.login_request();
    assert_eq!(keys, [("CHAP_A".to_owned(), "8,6,5,7".to_owned())]);
    let response = target.login_response(&request, false);
    (target, response)
}

const CHALLENGE: [u8; 16] = [0xa7; 16];

/// A login after the initiator's proof, which is right; with the request that carried it.
fn at_proof(challenge: &str) -> (ScriptedTarget, LoginResponse, Vec<(String, String)>) {
    let (mut target, response) = at_algorithms(true);
    target.answer_login(response, &[("CHAP_A", "5"), ("CHAP_I", "17"), ("CHAP_C", challenge)]);
    let (request, keys) = target.login_request();
    assert_eq!(keys[0], ("CHAP_N".to_owned(), "user".to_owned()));
    let response = parse_binary(&keys[1].1, 1024).unwrap();
    assert_eq!(response, md5(17, "a secret of the user", &CHALLENGE));
    assert!(request.transit && request.nsg == Stage::LoginOperationalNegotiation);
    let response = target.login_response(&request, true);
    (target, response, keys)
}

#[test]
fn challenges_and_proofs_are_read_in_hexadecimal_and_base64() {
    let hex = format_binary(&CHALLENGE);
    let base64 = "0bp6enp6enp6enp6enp6enpw==";
    for challenge in [&hex[..], base64] {
        let (mut target, response, keys) = at_proof(challenge);
        let identifier = keys[2].1.parse().unwrap();
        let ours = parse_binary(&keys[3].1, 1024).unwrap();
        let proof = format_binary(&md5(identifier, "a secret of the target", &ours));
        target.answer_login(response, &[("CHAP_N", "target"), ("CHAP_R", &proof)]);
        let (request, _) = target.login_request();
        assert_eq!(request.csg, Stage::LoginOperationalNegotiation);
    }
}

#[test]
fn a_proof_that_is_missing_or_wrong_is_no_proof() {
    let wrong = format_binary(&[1; 16]);
    for keys in [&[][..], &[("CHAP_N", "target")], &[("CHAP_N", "target"), ("CHAP_R", &wrong)], &[("CHAP_R", "zz")]] {
        let (mut target, response, _) = at_proof(&format_binary(&CHALLENGE));
        target.answer_login(response, keys);
        assert_eq!(target.closed(), LoginError::TargetAuthentication.into(), "{keys:?}");
    }
}

#[test]
fn a_reflected_challenge_ends_the_login() {
    let (mut target, response) = at_algorithms(true);
    let ours = format_binary(&entropy(0x40).0[..32]);
    target.answer_login(response, &[("CHAP_A", "5"), ("CHAP_I", "1"), ("CHAP_C", &ours)]);
    target.broken("9.2.1");
}

#[test]
fn broken_challenges_are_named() {
    let long = format!("0x{}", "ab".repeat(1025));
    for (algorithm, identifier, challenge) in [
        ("4", "1", "0x0011"),
        ("", "1", "0x0011"),
        ("5", "256", "0x0011"),
        ("5", "x", "0x0011"),
        ("5", "1", "0011"),
        ("5", "1", "0x"),
        ("5", "1", &long),
    ] {
        let (mut target, response) = at_algorithms(false);
        target.answer_login(response, &[("CHAP_A", algorithm), ("CHAP_I", identifier), ("CHAP_C", challenge)]);
        target.broken("12.1.3");
    }
    let (mut target, response) = at_algorithms(false);
    target.answer_login(response, &[("CHAP_A", "Reject")]);
    assert_eq!(target.closed(), LoginError::Incompatible("CHAP_A".into()).into());
}

#[test]
fn an_algorithm_that_was_not_offered_ends_the_login() {
    let chap = ChapIdentity { algorithms: "sha256,sha3-256".parse().unwrap(), ..identity(false) };
    for (chosen, is_taken) in [("8", true), ("7", true), ("6", false), ("5", false), ("9", false)] {
        let mut target = ScriptedTarget::new(SessionConfig { chap: Some(chap.clone()), ..config() });
        let (request, _) = target.login_request();
        target.answer_login(target.login_response(&request, false), &[("AuthMethod", "CHAP")]);
        let (request, keys) = target.login_request();
        assert_eq!(keys, [("CHAP_A".to_owned(), "8,7".to_owned())]);
        let challenge = format_binary(&CHALLENGE);
        let answer = [("CHAP_A", chosen), ("CHAP_I", "1"), ("CHAP_C", &challenge)];
        target.answer_login(target.login_response(&request, false), &answer);
        if is_taken {
            assert_eq!(target.login_request().1[0].0, "CHAP_N", "{chosen}");
        } else {
            target.broken("12.1.3");
        }
    }
}

#[test]
fn both_sides_use_the_strongest_algorithm_that_both_allow_or_none() {
    let allowing = |algorithms: &str| {
        let Authentication::Chap { initiators, target, .. } = right() else { unreachable!() };
        Authentication::Chap { initiators, target, algorithms: algorithms.parse().unwrap() }
    };
    let denied: SessionError = LoginError::Refused(LoginStatus::AUTHENTICATION_FAILURE).into();
    for (ours, theirs, passes) in [
        ("md5", "md5,sha1,sha256,sha3-256", true),
        ("md5,sha1,sha256,sha3-256", "sha1", true),
        ("sha256,md5", "sha256,sha3-256", true),
        ("md5,sha1", "sha256,sha3-256", false),
    ] {
        let chap = ChapIdentity { algorithms: ours.parse().unwrap(), ..identity(true) };
        match outcome(Some(chap), allowing(theirs)) {
            Event::LoggedIn(_) => assert!(passes, "{ours} with {theirs}"),
            event => assert_eq!((why(event), passes), (denied.clone(), false), "{ours} with {theirs}"),
        }
    }
}

#[test]
fn a_method_that_was_not_offered_is_not_followed() {
    for (chap, method) in [(None, "CHAP"), (Some(identity(true)), "None"), (None, "KRB5"), (None, "CHAP,None")] {
        let mut target = ScriptedTarget::new(SessionConfig { chap, ..config() });
        let (request, _) = target.login_request();
        target.answer_login(target.login_response(&request, false), &[("AuthMethod", method)]);
        target.broken("12.1");
    }
    let mut target = ScriptedTarget::new(config());
    let (request, _) = target.login_request();
    target.answer_login(target.login_response(&request, false), &[("AuthMethod", "Reject")]);
    assert_eq!(target.closed(), LoginError::Incompatible("AuthMethod".into()).into());
}

#[test]
fn a_target_that_must_prove_itself_cannot_move_on_before() {
    let mut target = ScriptedTarget::new(SessionConfig { chap: Some(identity(true)), ..config() });
    let (request, _) = target.login_request();
    let response = LoginResponse { nsg: Stage::LoginOperationalNegotiation, ..target.login_response(&request, true) };
    target.answer_login(response, &[]);
    target.broken("11.13");
}
