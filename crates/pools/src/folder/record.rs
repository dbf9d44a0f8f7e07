//! Records: all that a pool knows of a volume or snapshot besides its blocks, as files in JSON.

use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::pool::{Labels, Origin};

/// The version of records that this program reads and writes.
const VERSION: u32 = 1;

/// The record of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VolumeRecord {
    pub(super) serial: String,
    pub(super) created: SystemTime,
    pub(super) labels: Labels,
    pub(super) origin: Option<Origin>,
    pub(super) is_filling: bool,
    /// Whether it got all of its space when it was created, and gets it when it grows.
    pub(super) is_full: bool,
}

impl VolumeRecord {
    /// Whether both are records of one volume, perhaps at different times.
    pub(super) fn is_same_volume(&self, other: &Self) -> bool {
        (&self.serial, self.created) == (&other.serial, other.created)
    }
}

/// The record of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SnapshotRecord {
    pub(super) created: SystemTime,
    pub(super) labels: Labels,
}

/// The text of a record's file.
pub(super) fn to_text<R: Serialize>(record: &R) -> String {
    #[derive(Serialize)]
    struct Versioned<'r, R> {
        version: u32,
        #[serde(flatten)]
        record: &'r R,
    }
    let mut text = serde_json::to_string_pretty(&Versioned { version: VERSION, record }).expect("texts and numbers");
    text.push('\n');
    text
}

/// The record in a file.
///
/// # Errors
///
/// A sentence with the reason and the remedy.
pub(super) fn parse<R: DeserializeOwned>(text: &str) -> Result<R, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let broken = |error| format!("this record is damaged ({error}); restore it from a backup");
    let Version { version } = serde_json::from_str(text).map_err(broken)?;
    if version != VERSION {
        return Err(format!("this record has version {version}, and not {VERSION}; use a newer version of Lunette"));
    }
    serde_json::from_str(text).map_err(broken)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn record() -> VolumeRecord {
        VolumeRecord {
            serial: "5eria1".into(),
            created: SystemTime::UNIX_EPOCH + Duration::new(1_800_000_000, 123_456_789),
            labels: [("tier".to_owned(), "gold \"1\"".to_owned())].into(),
            origin: Some(Origin { volume: "db".parse().unwrap(), snapshot: Some("monday".parse().unwrap()) }),
            is_filling: true,
            is_full: false,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        assert_eq!(parse(&to_text(&record())), Ok(record()));
        let snapshot = SnapshotRecord { created: record().created, labels: record().labels };
        assert_eq!(parse(&to_text(&snapshot)), Ok(snapshot));
    }

    /// Records of this version are read for ever.
    #[test]
    fn a_record_of_version_1_is_read() {
        let text = r#"{"version":1,"serial":"5eria1","created":{"secs_since_epoch":1800000000,"nanos_since_epoch":123456789},
            "labels":{"tier":"gold \"1\""},"origin":{"volume":"db","snapshot":"monday"},"is_filling":true,"is_full":false}"#;
        assert_eq!(parse(text), Ok(record()));
    }

    #[test]
    fn other_versions_and_damage_are_refused_with_a_remedy() {
        let text = to_text(&record());
        let said = |text: &str| parse::<VolumeRecord>(text).unwrap_err();
        assert!(said(&text.replace("\"version\": 1", "\"version\": 2")).contains("use a newer version"));
        for broken in
            ["", "{}", &text[..text.len() / 2], &text.replace("5eria1", "\u{0}"), &text.replace("db", "../db")]
        {
            assert!(said(broken).contains("restore it"), "{broken}");
        }
    }
}
