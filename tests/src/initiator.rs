//! Logins of scripted initiators to a listening `lunette serve`.

use std::io;
use std::net::SocketAddr;

use lunette_pdu::text::{format_binary, parse_binary};
use lunette_pdu::{LoginResponse, Stage};
use lunette_testkit::ScriptedInitiator;
use sha2::{Digest, Sha256};

use crate::server::Server;

/// The keys that a login offers beside the names.
pub type LoginKeys<'a> = &'a [(&'a str, &'a str)];

/// The name of the initiators.
pub const NAME: &str = "iqn.2026-11.org.example:raw";

impl From<&Server> for SocketAddr {
    fn from(server: &Server) -> Self {
        server.address()
    }
}

/// Connects and logs in to the first target of `server`.
pub fn log_in(server: &Server, keys: LoginKeys<'_>) -> io::Result<ScriptedInitiator> {
    let target = server.url(0).split('/').nth(3).expect("iscsi://HOST:PORT/IQN/LUN");
    let mut initiator = ScriptedInitiator::connect(server);
    let names = [("SessionType", "Normal"), ("TargetName", target)];
    let (response, _) = login_request(&mut initiator, &[&names[..], keys].concat())?;
    if !response.status.is_success() {
        return Err(io::Error::other(format!("login refused: {}", response.status)));
    }
    Ok(initiator)
}

/// Connects, logs in, and takes the unit attention that a new nexus gets.
pub fn attach(server: &Server, keys: LoginKeys<'_>) -> ScriptedInitiator {
    let mut initiator = log_in(server, keys).expect("a login");
    initiator.test_unit_ready(0);
    initiator
}

/// Sends one login request, from the operational stage to the full feature phase, and receives the response with its
/// keys.
pub fn login_request(initiator: &mut ScriptedInitiator, keys: LoginKeys<'_>) -> io::Result<(LoginResponse, String)> {
    let keys = [&[("InitiatorName", NAME)], keys].concat();
    initiator.login_step(Stage::LoginOperationalNegotiation, Some(Stage::FullFeaturePhase), &keys)
}

/// Logs in to `target` with CHAP (SHA-256), with `keys` in the operational stage. Returns the last response.
pub fn chap_login(
    initiator: &mut ScriptedInitiator,
    target: &str,
    (user, secret): (&str, &str),
    keys: LoginKeys<'_>,
) -> io::Result<LoginResponse> {
    let security = Stage::SecurityNegotiation;
    let names = [("InitiatorName", NAME), ("TargetName", target), ("AuthMethod", "CHAP")];
    initiator.login_step(security, None, &names)?;
    let (_, said) = initiator.login_step(security, None, &[("CHAP_A", "7")])?;
    let value = |key: &str| {
        let mut pairs = said.split('\0').filter_map(|pair| pair.split_once('='));
        pairs.find(|(known, _)| *known == key).map(|(_, value)| value).expect("a challenge")
    };
    let identifier: u8 = value("CHAP_I").parse().expect("a number of one byte");
    let challenge = parse_binary(value("CHAP_C"), 1024).expect("a binary value");
    let answer = format_binary(&Sha256::digest([&[identifier], secret.as_bytes(), &challenge].concat()));
    let proof = [("CHAP_N", user), ("CHAP_R", &answer)];
    let (proven, _) = initiator.login_step(security, Some(Stage::LoginOperationalNegotiation), &proof)?;
    if !proven.status.is_success() {
        return Ok(proven);
    }
    let (response, _) =
        initiator.login_step(Stage::LoginOperationalNegotiation, Some(Stage::FullFeaturePhase), keys)?;
    Ok(response)
}
