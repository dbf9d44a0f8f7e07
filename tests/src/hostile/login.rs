//! Logins: an honest one, and random keys of a hostile initiator.

use std::io;
use std::time::Duration;

use lunette_pdu::{Cid, Isid, LoginRequest, LoginResponse, SerialNumber, Stage, TargetPdu, Tsih};
use lunette_testkit::{Format, keys as text, requests};

use super::dice::Dice;
use super::wire::{Received, Sent, Wire};

/// The port, session and connection that log in, and the command number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Port {
    pub(super) isid: Isid,
    pub(super) tsih: Tsih,
    pub(super) cid: Cid,
    pub(super) cmd_sn: SerialNumber,
}

/// Logs in with one request from the operational stage to the full feature phase. Digests are in use when both sides
/// want them.
pub(super) fn log_in(wire: &mut Wire, port: Port, keys: &str, limit: Duration) -> io::Result<(LoginResponse, String)> {
    let request = request(port, (Stage::LoginOperationalNegotiation, Some(Stage::FullFeaturePhase)), false, keys);
    if wire.send(&wire.encode(&request.emit(), keys.as_bytes()), limit) != Sent::All {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    match wire.receive(limit) {
        Received::Pdu((TargetPdu::LoginResponse(response), text)) => {
            let text = String::from_utf8_lossy(&text).into_owned();
            wire.format = Format::agreed(&text);
            Ok((response, text))
        }
        Received::Pdu((pdu, _)) => Err(io::Error::other(format!("{pdu:?} answers a login"))),
        Received::Nothing => Err(io::ErrorKind::TimedOut.into()),
        Received::End => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Builds any login request.
pub(super) fn request(port: Port, stages: (Stage, Option<Stage>), continue_: bool, keys: &str) -> LoginRequest {
    let (csg, nsg) = stages;
    LoginRequest {
        transit: nsg.is_some(),
        continue_,
        csg,
        nsg: nsg.unwrap_or(csg),
        isid: port.isid,
        tsih: port.tsih,
        cid: port.cid,
        cmd_sn: port.cmd_sn,
        data_segment_len: keys.len(),
        ..requests::login()
    }
}

/// Keys that a hostile initiator may offer, and values from which one is drawn. An empty value leaves the key out.
const OFFERS: &[(&str, &[&str])] = &[
    ("HeaderDigest", &["", "", "None", "CRC32C", "CRC32C,None"]),
    ("DataDigest", &["", "", "None", "CRC32C", "CRC32C,None"]),
    ("MaxRecvDataSegmentLength", &["", "512", "8192", "65536", "262144", "16777215"]),
    ("MaxConnections", &["8", "8", "8", "2", "65535", ""]),
    ("InitialR2T", &["", "Yes", "No", "No"]),
    ("ImmediateData", &["", "Yes", "Yes", "No"]),
    ("MaxBurstLength", &["", "512", "16384", "262144", "1048576", "16777215"]),
    ("FirstBurstLength", &["", "512", "65536", "262144", "16777215"]),
    ("MaxOutstandingR2T", &["", "1", "8", "65535"]),
    ("DataPDUInOrder", &["", "Yes", "No"]),
    ("DataSequenceInOrder", &["", "Yes", "No"]),
    ("ErrorRecoveryLevel", &["", "0", "1", "2", "2"]),
    ("DefaultTime2Wait", &["", "0", "2", "3600"]),
    ("DefaultTime2Retain", &["", "0", "20", "3600"]),
    ("TaskReporting", &["", "RFC3720", "ResponseFence", "FastAbort", "FastAbort,ResponseFence,RFC3720"]),
    ("iSCSIProtocolLevel", &["", "", "1", "2", "65535"]),
];

/// The number of offers for connections after a session's first: the keys of a connection alone.
const CONNECTION_OFFERS: usize = 3;

/// Pairs that no correct initiator sends.
const NONSENSE: &[(&str, &str)] = &[
    ("MaxBurstLength", "99999999999999999999"),
    ("MaxConnections", "0"),
    ("InitialR2T", "Perhaps"),
    ("", "x"),
    ("X-org.example.hostile", "1"),
    ("ErrorRecoveryLevel", "-1"),
    ("TargetPortalGroupTag", "1"),
    ("IFMarker", "Yes"),
    ("CHAP_A", "5"),
];

/// Keys of a session's first connection, or of a further one.
pub(super) fn draw_keys(dice: &mut Dice, is_first: bool) -> String {
    let offers = if is_first { OFFERS } else { &OFFERS[..CONNECTION_OFFERS] };
    let drawn: Vec<(&str, &str)> = offers.iter().map(|(key, values)| (*key, dice.pick(values))).collect();
    let mut keys = text(&drawn.into_iter().filter(|(_, value)| !value.is_empty()).collect::<Vec<_>>());
    if dice.mishap(40) {
        keys += &text(&[dice.pick(NONSENSE)]);
    }
    if dice.mishap(60) {
        keys += &text(&[("X-org.example.long", &"x".repeat(dice.below(9000)))]);
    }
    keys
}
