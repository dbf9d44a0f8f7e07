//! The parameters of a portal group: keys of a login, as keys of a target.

use lunette_api::objects::Document;
use serde_json::{Map, Value};

use super::{flag, text};
use crate::failure::Failure;
use crate::model::Target;

/// Where a parameter stands.
enum Meaning {
    /// A key of `session` with a number.
    Number(&'static str, i64),
    /// A key of `session` with a size.
    Size(&'static str, i64),
    /// A key of `session` with Yes or No.
    YesNo(&'static str, bool),
    /// `max_connections`.
    Connections,
    /// `alias`.
    Alias,
    /// A text that initiators and the server agree on whatever it says.
    Fixed(&'static str),
}

use Meaning::{Alias, Connections, Fixed, Number, Size, YesNo};

/// The connections of a session where a target does not say a number.
const DEFAULT_CONNECTIONS: i64 = 8;

/// The name that LIO gives to each target.
const DEFAULT_ALIAS: &str = "LIO Target";

/// The longest segment that can be declared (RFC 7143 section 13.12).
const MAX_SIZE: i64 = (1 << 24) - 1;

const PARAMETERS: [(&str, Meaning); 21] = [
    ("AuthMethod", Fixed("CHAP,None")),
    ("DataDigest", Fixed("CRC32C,None")),
    ("DataPDUInOrder", YesNo("data_pdu_in_order", true)),
    ("DataSequenceInOrder", YesNo("data_sequence_in_order", true)),
    ("DefaultTime2Retain", Number("default_time2retain", 0)),
    ("DefaultTime2Wait", Number("default_time2wait", 0)),
    ("ErrorRecoveryLevel", Number("error_recovery_level", 0)),
    ("FirstBurstLength", Size("first_burst_length", 256 << 10)),
    ("HeaderDigest", Fixed("CRC32C,None")),
    ("IFMarkInt", Fixed("Reject")),
    ("IFMarker", Fixed("No")),
    ("ImmediateData", YesNo("immediate_data", true)),
    ("InitialR2T", YesNo("initial_r2t", false)),
    ("MaxBurstLength", Size("max_burst_length", 1 << 20)),
    ("MaxConnections", Connections),
    ("MaxOutstandingR2T", Number("max_outstanding_r2t", 8)),
    ("MaxRecvDataSegmentLength", Size("max_recv_data_segment_length", 256 << 10)),
    ("MaxXmitDataSegmentLength", Fixed("262144")),
    ("OFMarkInt", Fixed("Reject")),
    ("OFMarker", Fixed("No")),
    ("TargetAlias", Alias),
];

/// The names of all parameters.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PARAMETERS.iter().map(|(name, _)| *name)
}

fn meaning(name: &str) -> Option<&'static Meaning> {
    PARAMETERS.iter().find(|(known, _)| *known == name).map(|(_, meaning)| meaning)
}

/// The value of a parameter; none for one that does not exist.
pub(crate) fn get(target: &Target, name: &str) -> Option<String> {
    let nothing = Document::new();
    let document = &target.document;
    let session = document.get("session").and_then(Value::as_object).unwrap_or(&nothing);
    let yes_no = |is_set: bool| if is_set { "Yes" } else { "No" }.to_owned();
    Some(match meaning(name)? {
        Number(key, default) => session.get(*key).and_then(Value::as_i64).unwrap_or(*default).to_string(),
        Size(key, default) => text(session, key).and_then(bytes).unwrap_or(*default).to_string(),
        YesNo(key, default) => yes_no(if session.contains_key(*key) { flag(session, key) } else { *default }),
        Connections => {
            document.get("max_connections").and_then(Value::as_i64).unwrap_or(DEFAULT_CONNECTIONS).to_string()
        }
        Alias => text(document, "alias").unwrap_or(DEFAULT_ALIAS).into(),
        Fixed(value) => target.parameters.get(name).map_or(*value, String::as_str).into(),
    })
}

/// Sets a parameter.
pub(crate) fn set(target: &mut Target, name: &str, value: &str) -> Result<(), Failure> {
    let refused = |why: &str| Failure::new(format!("Cannot set parameter {name}: {why}"));
    let number = || value.parse::<i64>().ok().filter(|number| *number >= 0).ok_or_else(|| refused("it is a number"));
    let meaning = meaning(name).ok_or_else(|| Failure::new(format!("Cannot find RFC-3720 parameter: {name}")))?;
    let (key, value) = match meaning {
        Number(key, _) => (*key, number()?.into()),
        Size(key, _) => (*key, number()?.min(MAX_SIZE).to_string().into()),
        YesNo(key, _) => match value {
            "Yes" => (*key, true.into()),
            "No" => (*key, false.into()),
            _ => return Err(Failure::new(format!("Not setting {name}! Syntax error, '{value}' is not Yes|No."))),
        },
        Connections => {
            let number = number()?;
            target.document.insert("max_connections".into(), number.into());
            return Ok(());
        }
        Alias if value.is_empty() || value == DEFAULT_ALIAS => {
            target.document.remove("alias");
            return Ok(());
        }
        Alias => {
            target.document.insert("alias".into(), value.into());
            return Ok(());
        }
        // Both orders of a list are the same offer.
        Fixed(is) if same_list(is, value) || name == "MaxXmitDataSegmentLength" => {
            target.parameters.insert(name.into(), value.into());
            return Ok(());
        }
        Fixed(is) => return Err(refused(&format!("Lunette has {is}"))),
    };
    let session = target.document.entry("session").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(session) = session {
        session.insert(key.into(), value);
    }
    Ok(())
}

fn same_list(one: &str, other: &str) -> bool {
    let sorted = |text: &str| {
        let mut words: Vec<String> = text.split(',').map(|word| word.trim().to_owned()).collect();
        words.sort_unstable();
        words
    };
    sorted(one) == sorted(other)
}

/// The bytes of a size as the configuration writes it.
fn bytes(text: &str) -> Option<i64> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let power = match unit.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(1 << (10 * power))
}
