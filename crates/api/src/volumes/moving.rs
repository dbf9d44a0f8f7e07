//! Content that leaves a volume and comes to one. The API has the steps and the places of the blocks, and the client
//! moves the blocks by itself, on the machine of the server.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Labels;

/// The content of a snapshot, or what it changed of an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changes {
    /// The place of the blocks of the snapshot: a path, or an `rbd:` URL.
    #[schema(example = "/srv/tank/db/snapshots/monday.img")]
    pub place: String,
    /// The length of the snapshot.
    pub size_bytes: u64,
    /// The serial number of the volume.
    pub serial: String,
    /// The words that users gave the volume.
    pub labels: Labels,
    /// The snapshot.
    pub snapshot: MovedSnapshot,
    /// The snapshot since which the changes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<BaseSnapshot>,
    /// The ranges that may differ, in their order; without `since`, those that are not known to be zeroes.
    pub ranges: Vec<ChangedRange>,
    /// The offset from which on to ask for more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A range that may differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedRange {
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
    /// Whether it has only zeroes now.
    pub zero: bool,
}

/// A snapshot that moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MovedSnapshot {
    /// The name.
    #[schema(example = "monday")]
    pub name: String,
    /// The identity: the same of a snapshot in all pools that it was sent to.
    #[schema(example = "0123456789abcdef")]
    pub id: String,
    /// The words that users gave it.
    #[serde(default)]
    pub labels: Labels,
}

/// A snapshot that a receiver has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BaseSnapshot {
    /// The name that it has at the sender.
    #[schema(example = "monday")]
    pub name: String,
    /// The identity.
    #[schema(example = "0123456789abcdef")]
    pub id: String,
}

/// Content that a volume is to get, by a client that writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FillOrder {
    /// The length.
    pub size_bytes: u64,
    /// The serial number; without it, one is drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The serial number that it gets unless a volume has that already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_serial: Option<String>,
    /// The words that users give it.
    #[serde(default)]
    pub labels: Labels,
    /// The snapshot that has this content, and is taken of the volume at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<MovedSnapshot>,
    /// The snapshot whose content the volume must have. Without it the volume is a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<BaseSnapshot>,
    /// Whether a volume that was changed since then is rolled back. What it has becomes a snapshot.
    #[serde(default)]
    pub force: bool,
    /// Whether a filling that was interrupted goes on.
    #[serde(default)]
    pub resume: bool,
    /// Whether a new volume gets all of its space at once.
    #[serde(default)]
    pub full: bool,
}

/// A volume that is being filled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Filling {
    /// The place of the blocks to write to: a path, or an `rbd:` URL.
    #[schema(example = "/srv/tank/db/disk.img")]
    pub place: String,
    /// The proof of the client that fills it, for the steps that follow.
    pub token: String,
    /// The bytes from the start that it has already.
    pub done_bytes: u64,
}

/// The progress of a filling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FillingStep {
    /// The proof of the client.
    pub token: String,
    /// The bytes from the start that are on stable storage.
    pub done_bytes: u64,
}

/// The end of a filling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FillingEnd {
    /// The proof of the client.
    pub token: String,
    /// The snapshot to take, as ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<MovedSnapshot>,
}
