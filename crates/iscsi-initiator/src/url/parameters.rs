//! The parameters of a URL, after its question mark.

use std::ops::RangeInclusive;

use lunette_ecl::association::Seal;
use lunette_ecl::recovery::CongestionControl;
use lunette_reactor::Offloads;
use lunette_session::keys::{self, Choices, Offer, Parameters, Rule};
use lunette_session::limits::{CONNECTION_RECOVERY_LEVEL, MIN_MARKER_INTERVAL_WORDS};
use lunette_session::{ChapAlgorithms, Secret, check_foreign_name};

use super::keys::{self as key_parameters, KeyParameters};
use crate::limits::MAX_PATHS;
use crate::options::Transport;
use crate::portal::Portal;

use super::error::{UrlError, wrong};
use super::redacted::TARGET_PASSWORD;
use super::tls;
use super::{NO_ISER, Paths, Url, decode, decode_bytes};

/// If absent, a session that recovers connections offers the default of RFC 7143 section 13.16.
const TIME2RETAIN: &str = "default_time2retain";

/// A parameter that sets the value offered for a key.
pub(super) struct KeyParameter {
    pub(super) name: &'static str,
    /// The key of RFC 7143; its row in [`keys::KEYS`] has the range.
    pub(super) key: &'static str,
    set: fn(&mut Offer, u32),
}

/// One parameter for each key that is negotiated.
#[rustfmt::skip]
pub(super) const KEY_PARAMETERS: [KeyParameter; 17] = [
    KeyParameter { name: "header_digest", key: "HeaderDigest", set: |w, v| w.header_digest = Choices(v as u8) },
    KeyParameter { name: "data_digest", key: "DataDigest", set: |w, v| w.data_digest = Choices(v as u8) },
    KeyParameter { name: "max_connections", key: "MaxConnections", set: |w, v| w.max_connections = v },
    KeyParameter { name: "initial_r2t", key: "InitialR2T", set: |w, v| w.initial_r2t = v == 1 },
    KeyParameter { name: "immediate_data", key: "ImmediateData", set: |w, v| w.immediate_data = v == 1 },
    KeyParameter { name: "max_recv_data_segment_length", key: "MaxRecvDataSegmentLength", set: |w, v| w.recv_data_segment_len = v },
    KeyParameter { name: "max_burst_length", key: "MaxBurstLength", set: |w, v| w.max_burst_len = v },
    KeyParameter { name: "first_burst_length", key: "FirstBurstLength", set: |w, v| w.first_burst_len = v },
    KeyParameter { name: "default_time2wait", key: "DefaultTime2Wait", set: |w, v| w.time2wait_s = v },
    KeyParameter { name: TIME2RETAIN, key: "DefaultTime2Retain", set: |w, v| w.time2retain_s = v },
    KeyParameter { name: "max_outstanding_r2t", key: "MaxOutstandingR2T", set: |w, v| w.max_outstanding_r2t = v },
    KeyParameter { name: "data_pdu_in_order", key: "DataPDUInOrder", set: |w, v| w.data_pdu_in_order = v == 1 },
    KeyParameter { name: "data_sequence_in_order", key: "DataSequenceInOrder", set: |w, v| w.data_sequence_in_order = v == 1 },
    KeyParameter { name: "error_recovery_level", key: "ErrorRecoveryLevel", set: |w, v| w.error_recovery_level = v },
    KeyParameter { name: "task_reporting", key: "TaskReporting", set: |w, v| w.task_reporting = Choices(v as u8) },
    KeyParameter { name: "iscsi_protocol_level", key: "iSCSIProtocolLevel", set: |w, v| w.protocol_level = v },
    // One interval for both directions, and it turns markers on.
    KeyParameter { name: "marker_interval", key: "OFMarkInt", set: |w, v| w.marker_interval = Some(v) },
];

/// A short name for `max_connections`.
const CONNECTIONS: &str = "connections";

/// Bytes of a socket's buffer: from one segment to what the system can count (`SO_RCVBUF` of socket(7), doubled).
const SOCKET_BUFFER: RangeInclusive<u32> = 2048..=(1 << 30) - 1;

/// Characters of a congestion control's name (`TCP_CA_NAME_MAX` of Linux, less its end).
const MAX_CONGESTION_CONTROL_LEN: usize = 15;

/// The parameters that are not keys.
const OTHERS: [&str; 16] = [
    CONNECTIONS,
    "coalesce",
    "congestion_control",
    "send_buffer",
    "receive_buffer",
    "offloads",
    "protect",
    "initiator",
    "paths",
    "portals",
    "chap_secret_file",
    "chap_target_secret_file",
    "chap_algorithms",
    "target_user",
    TARGET_PASSWORD,
    "iser",
];

/// Reads `NAME=VALUE&NAME=VALUE…` into `url`.
/// `speaks_tls`: it is one of `iscsis://`.
pub(super) fn read(url: &mut Url, speaks_tls: bool, query: &str) -> Result<(), UrlError> {
    let mut seen: Vec<String> = Vec::new();
    let mut keys = key_parameters::Values::default();
    let mut tls = tls::Values::default();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let name = if name == CONNECTIONS { "max_connections" } else { name };
        if seen.iter().any(|seen| seen == name) {
            return wrong(format!("the parameter {name} stands there twice"));
        }
        // Unknown ones end here, so this list is no longer than that of all parameters.
        match key_parameters::NAMES.iter().position(|known| *known == name) {
            Some(at) if !value.is_empty() => keys[at] = Some(decode(value)?),
            _ if !tls::NAMES.contains(&name) => one(url, name, value)?,
            _ if !speaks_tls => return wrong(format!("{name} is for iscsis://")),
            _ if name == tls::NAMES[0] => tls.pin = Some(tls::pin(&decode(value)?)?),
            _ => tls.name = Some(decode(value)?),
        }
        seen.push(name.into());
    }
    if speaks_tls {
        url.tls = Some(tls.finish(key_parameters::folder(&keys))?);
        if !key_parameters::has_keys(&keys) {
            key_parameters::forget_folder(&mut keys);
        }
    }
    url.keys = KeyParameters::of(keys)?;
    let offer = &mut url.offer;
    if offer.error_recovery_level >= CONNECTION_RECOVERY_LEVEL && !seen.iter().any(|seen| seen == TIME2RETAIN) {
        offer.time2retain_s = Parameters::default().time2retain_s;
    }
    Ok(())
}

/// Whether there is a parameter of this name.
pub(super) fn is_parameter(name: &str) -> bool {
    OTHERS.contains(&name)
        || key_parameters::NAMES.contains(&name)
        || tls::NAMES.contains(&name)
        || KEY_PARAMETERS.iter().any(|parameter| parameter.name == name)
}

fn one(url: &mut Url, name: &str, value: &str) -> Result<(), UrlError> {
    if name == "iser" {
        return wrong(NO_ISER);
    }
    if !is_parameter(name) {
        let all: Vec<&str> = KEY_PARAMETERS
            .iter()
            .map(|parameter| parameter.name)
            .chain(OTHERS.into_iter().filter(|n| *n != "iser"))
            .chain(key_parameters::NAMES)
            .chain(tls::NAMES)
            .collect();
        return wrong(format!("there is no parameter {name:?}; those that there are: {}", all.join(", ")));
    }
    if value.is_empty() {
        return wrong(format!("the parameter {name} has no value; write {name}=VALUE"));
    }
    if name == TARGET_PASSWORD {
        let bytes = decode_bytes(value).ok_or_else(|| {
            UrlError("target_password has a '%' without two hexadecimal digits; write %25 for '%'".into())
        })?;
        url.login.target_password = Some(Secret::new(bytes));
        return Ok(());
    }
    let value = decode(value)?;
    match name {
        "coalesce" => url.coalesce = yes_or_no(name, &value)?,
        "congestion_control" if url.transport == Transport::Ecl => {
            let control = CongestionControl::of_name(&value);
            let missing =
                || UrlError(format!("congestion_control={value}: the Effective Cross Layer has cubic and bbr"));
            url.datagrams.congestion_control = Some(control.ok_or_else(missing)?);
        }
        "congestion_control" => url.tcp.congestion_control = Some(congestion_control(&value)?),
        "send_buffer" => url.tcp.send_buffer_bytes = Some(number_within(name, &value, &SOCKET_BUFFER)?),
        "receive_buffer" => url.tcp.receive_buffer_bytes = Some(number_within(name, &value, &SOCKET_BUFFER)?),
        "offloads" => {
            url.datagrams.offloads = if yes_or_no(name, &value)? { Offloads::On } else { Offloads::Off };
        }
        "protect" => {
            url.datagrams.seal = Some(match &*value {
                "headers" => Seal::Headers,
                "all" => Seal::Everything,
                _ => return wrong(format!("protect={value}: write headers or all")),
            });
        }
        "initiator" => {
            check_foreign_name(&value).map_err(|error| UrlError(error.to_string()))?;
            url.initiator_name = Some(value);
        }
        "paths" | "portals" if url.transport != Transport::Tcp => {
            return wrong(format!("{name}={value}: several paths are for iscsi://"));
        }
        "paths" | "portals" if url.paths.is_some() => {
            return wrong("paths and portals exclude each other; portals names all paths besides the first");
        }
        "paths" => url.paths = Some(Paths::Discovered(number_of_paths(&value)?)),
        "portals" => url.paths = Some(Paths::Portals(portals(&value)?)),
        "chap_secret_file" => url.login.secret_file = Some(value.into()),
        "chap_target_secret_file" => url.login.target_secret_file = Some(value.into()),
        "chap_algorithms" => {
            let algorithms = value.parse::<ChapAlgorithms>();
            let algorithms = algorithms.map_err(|error| UrlError(format!("chap_algorithms={value}: {error}")))?;
            url.login.algorithms = Some(algorithms);
        }
        "target_user" => url.login.target_user = Some(value),
        _ => {
            for parameter in KEY_PARAMETERS.iter().filter(|parameter| parameter.name == name) {
                (parameter.set)(&mut url.offer, value_of(parameter, &value)?);
            }
        }
    }
    Ok(())
}

/// The value of a parameter as its key's rule has it: 0 and 1 for No and Yes, a number, or a set of choices.
fn value_of(parameter: &KeyParameter, value: &str) -> Result<u32, UrlError> {
    let name = parameter.name;
    let Some((_, row)) = keys::row(parameter.key) else { return wrong(format!("{name} is not negotiated")) };
    match &row.rule {
        Rule::And | Rule::Or | Rule::Marker => yes_or_no(name, value).map(u32::from),
        Rule::Minimum(range) | Rule::Maximum(range) | Rule::Declared(range) => number_within(name, value, range),
        Rule::MarkerInterval => number_within(name, value, &(MIN_MARKER_INTERVAL_WORDS..=*keys::MARKER_INTERVAL.end())),
        Rule::FirstOf(values) => choices(name, value, values),
    }
}

fn congestion_control(value: &str) -> Result<String, UrlError> {
    let is_name = value.len() <= MAX_CONGESTION_CONTROL_LEN
        && value.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c));
    if is_name {
        Ok(value.into())
    } else {
        wrong(format!("congestion_control={value}: write a name such as cubic or bbr"))
    }
}

/// `all`, or a number of at least 2.
fn number_of_paths(value: &str) -> Result<Option<usize>, UrlError> {
    let count = value.parse().ok().filter(|count| (2..=MAX_PATHS).contains(count));
    match count {
        _ if value == "all" => Ok(None),
        Some(count) => Ok(Some(count)),
        None => wrong(format!("paths={value}: write all, or a number from 2 to {MAX_PATHS}")),
    }
}

/// Portals with commas between them.
fn portals(value: &str) -> Result<Vec<Portal>, UrlError> {
    let portal = |text: &str| {
        Portal::parse(text).map_err(|error| UrlError(format!("portals: {text:?} cannot be connected to: {error}")))
    };
    let portals = value.split(',').map(portal).collect::<Result<Vec<_>, _>>()?;
    if portals.len() >= MAX_PATHS {
        return wrong(format!("portals names {} portals; a disk has at most {MAX_PATHS} paths", portals.len()));
    }
    Ok(portals)
}

fn yes_or_no(name: &str, value: &str) -> Result<bool, UrlError> {
    match value.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" | "1" => Ok(true),
        "no" | "false" | "off" | "0" => Ok(false),
        _ => wrong(format!("{name}={value}: write yes or no")),
    }
}

fn number_within(name: &str, value: &str, range: &RangeInclusive<u32>) -> Result<u32, UrlError> {
    let (low, high) = (range.start(), range.end());
    let number = number(value).filter(|number| range.contains(number));
    number.ok_or_else(|| UrlError(format!("{name}={value}: write a number from {low} to {high}")))
}

/// Digits, and K or M for powers of 1024.
fn number(text: &str) -> Option<u32> {
    let digits = text.trim_end_matches(['k', 'K', 'm', 'M']);
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        _ => return None,
    };
    digits.parse::<u32>().ok()?.checked_mul(factor)
}

/// Bit `n` for the n-th of `values`, of which `text` names some, with commas between them.
fn choices(name: &str, text: &str, values: &[&str]) -> Result<u32, UrlError> {
    let mut set = 0;
    for part in text.split(',') {
        let Some(bit) = values.iter().position(|value| value.eq_ignore_ascii_case(part)) else {
            let values = values.join(", ").to_ascii_lowercase();
            return wrong(format!("{name}={text}: write one of {values}, or several with commas"));
        };
        set |= 1 << bit;
    }
    Ok(set)
}
