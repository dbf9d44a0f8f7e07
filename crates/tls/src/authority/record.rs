//! The record of an authority: what was issued to which name, and what was revoked.

use std::path::Path;

use data_encoding::HEXLOWER;
use lunette_files::read_text;
use rcgen::SerialNumber;
use serde::{Deserialize, Serialize};

use super::{AuthorityError, FILE, RECORD, write};
use crate::folder::Side;

/// The length of a serial number in bytes.
const SERIAL_LEN: usize = 16;

/// Ends soon: within 30 days.
const SOON_SECONDS: i64 = 30 * 24 * 3600;

/// The identities of a certificate beside its common name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identities {
    /// The names and addresses by which clients reach a server. A client has none.
    pub hosts: Vec<String>,
    /// iSCSI names, which stand in the certificate as URIs.
    pub iscsi_names: Vec<String>,
    /// Names in the DNS of a client.
    pub dns_names: Vec<String>,
}

impl Identities {
    /// A server at these names and addresses.
    pub fn server(hosts: &[String]) -> Self {
        Self { hosts: hosts.into(), ..Self::default() }
    }

    pub(super) fn side(&self) -> Side {
        if self.hosts.is_empty() { Side::Client } else { Side::Server }
    }
}

/// A certificate that was issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issued {
    /// The name of the client, or of the server's folder.
    pub name: String,
    pub(super) serial: Serial,
    /// The hosts of a server; empty for a client.
    pub hosts: Vec<String>,
    /// The iSCSI names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iscsi_names: Vec<String>,
    /// The DNS names of a client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_names: Vec<String>,
    /// The end of its validity in seconds since 1970.
    pub until: i64,
    /// When it was revoked, in seconds since 1970.
    pub revoked: Option<i64>,
}

impl Issued {
    pub(super) fn new(name: &str, identities: &Identities, serial: Serial, until: i64) -> Self {
        let Identities { hosts, iscsi_names, dns_names } = identities.clone();
        Self { name: name.into(), serial, hosts, iscsi_names, dns_names, until, revoked: None }
    }

    /// The identities beside the common name.
    pub fn identities(&self) -> Identities {
        let Self { hosts, iscsi_names, dns_names, .. } = self.clone();
        Identities { hosts, iscsi_names, dns_names }
    }
}

/// Whether a certificate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The certificate counts.
    Valid,
    /// The end is within 30 days, and no later certificate of the name takes the place.
    EndsSoon,
    /// The time is over.
    Ended,
    /// The certificate was revoked.
    Revoked,
}

/// A serial number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Serial([u8; SERIAL_LEN]);

impl Serial {
    pub(super) fn random() -> Self {
        let mut serial = [0; SERIAL_LEN];
        aws_lc_rs::rand::fill(&mut serial).expect("AWS-LC ends the process itself when the system gives no randomness");
        // Serial numbers are positive (RFC 5280, section 4.1.2.2).
        serial[0] = serial[0] & 0x7f | 0x40;
        Self(serial)
    }

    pub(super) fn number(&self) -> SerialNumber {
        SerialNumber::from_slice(&self.0)
    }
}

impl TryFrom<String> for Serial {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| format!("a serial number has {} lower-case hexadecimal digits", 2 * SERIAL_LEN))
    }
}

impl From<Serial> for String {
    fn from(serial: Serial) -> Self {
        HEXLOWER.encode(&serial.0)
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    pub(super) issued: Vec<Issued>,
    /// Counts the lists of revoked certificates.
    pub(super) lists: u64,
}

impl State {
    pub(super) fn read(folder: &Path) -> Result<Self, AuthorityError> {
        let path = folder.join(RECORD);
        let text = read_text(&path, FILE)?;
        serde_json::from_str(&text).map_err(|error| AuthorityError::Damaged { path, reason: error.to_string() })
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), AuthorityError> {
        let text = serde_json::to_string_pretty(self).expect("the state is JSON");
        if text.len() > FILE.max_bytes {
            let message = format!("{}: there is no room for another certificate", folder.join(RECORD).display());
            return Err(AuthorityError::Refused(format!("{message}; make another authority")));
        }
        write(&folder.join(RECORD), text.as_bytes())
    }

    /// Revokes all certificates of a name. False when there is none that could be.
    pub(super) fn revoke(&mut self, name: &str, now: i64) -> bool {
        let mut found = false;
        for issued in self.issued.iter_mut().filter(|issued| issued.name == name && issued.revoked.is_none()) {
            issued.revoked = Some(now);
            found = true;
        }
        found
    }

    pub(super) fn standing(&self, issued: &Issued, now: i64) -> Standing {
        let is_later =
            |other: &&Issued| other.name == issued.name && other.revoked.is_none() && other.until > issued.until;
        match issued.revoked {
            Some(_) => Standing::Revoked,
            None if issued.until <= now => Standing::Ended,
            None if issued.until > now + SOON_SECONDS => Standing::Valid,
            None if self.issued.iter().any(|other| is_later(&other)) => Standing::Valid,
            None => Standing::EndsSoon,
        }
    }
}
