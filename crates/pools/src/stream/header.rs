//! The header of a stream: what its records are the content of.

use serde::{Deserialize, Serialize};

use super::StreamError;
use crate::check;
use crate::error::PoolError;
use crate::limits::{BLOCK_BYTES, MAX_ID_BYTES};
use crate::name::Name;
use crate::pool::Labels;

/// The description of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The volume that the snapshot is of, for people.
    pub volume: String,
    /// The serial number of that volume.
    pub serial: String,
    /// The labels of that volume.
    pub labels: Labels,
    /// The snapshot whose content this is.
    pub snapshot: SentSnapshot,
    /// The snapshot whose content the receiver has. Without it, the receiver begins with zeroes.
    pub since: Option<Since>,
    /// The length of the content in bytes.
    pub size_bytes: u64,
    /// The offset from which on the stream has the content. What is before it was sent already.
    pub from: u64,
}

/// The snapshot that is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentSnapshot {
    /// The name.
    pub name: Name,
    /// The identity, which a received snapshot keeps.
    pub id: String,
    /// The labels.
    pub labels: Labels,
}

/// The snapshot since which changes are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Since {
    /// The name that it has where it was sent, for people.
    pub name: Name,
    /// The identity.
    pub id: String,
}

impl Header {
    pub(super) fn parse(text: &[u8]) -> Result<Self, StreamError> {
        let header: Self = serde_json::from_slice(text).map_err(|error| StreamError::Header(error.to_string()))?;
        header.check().map_err(StreamError::Header)?;
        Ok(header)
    }

    fn check(&self) -> Result<(), String> {
        let refused = |error: PoolError| error.to_string();
        check::len(self.size_bytes).map_err(refused)?;
        check::serial(&self.serial).map_err(refused)?;
        check::labels(&self.labels).map_err(refused)?;
        check::labels(&self.snapshot.labels).map_err(refused)?;
        for id in std::iter::once(&self.snapshot.id).chain(self.since.as_ref().map(|since| &since.id)) {
            if !is_identity(id) {
                return Err(format!("an identity has 1 to {MAX_ID_BYTES} letters and digits"));
            }
        }
        if self.from > self.size_bytes || !self.from.is_multiple_of(BLOCK_BYTES.into()) {
            return Err(format!("it begins at byte {}, which is no block of the volume", self.from));
        }
        Ok(())
    }
}

/// Whether a text can be the identity of a snapshot.
pub fn is_identity(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_plain && (1..=MAX_ID_BYTES).contains(&text.len())
}
