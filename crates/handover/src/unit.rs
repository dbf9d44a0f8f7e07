//! Targets, logical units and their disks.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The state that a target keeps beside its logical units, and that no state file has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// The name.
    pub name: String,
    /// The access states of its port groups, in the encoding of the device server.
    pub port_groups: ByteBuf,
    /// The view of its initiators, in the encoding of the device server, to be compared and not read.
    pub view: ByteBuf,
    /// The number of the last ROD token.
    pub last_token: u64,
    /// The ROD tokens that have not expired.
    pub tokens: Vec<Token>,
}

/// A ROD token: blocks as they were at its creation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Token {
    /// The number.
    pub id: u64,
    /// The bytes.
    pub bytes: ByteBuf,
    /// The serial number of the logical unit that has the blocks.
    pub serial: String,
    /// The blocks, each run of them by its offset and its length in bytes.
    pub extents: Vec<(u64, u64)>,
    /// Whether a block may have changed since.
    pub changed: bool,
    /// How long it lasts without being used, in milliseconds.
    pub timeout_ms: u64,
    /// When it was used last, in milliseconds since 1970.
    pub last_used_ms: u64,
}

/// The state that a logical unit keeps beside its blocks, and that no state file has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unit {
    /// The name of its target.
    pub target: String,
    /// The serial number.
    pub serial: String,
    /// The name of what its blocks lie in, and how; empty where they are not there. It is compared, and not read.
    pub medium: String,
    /// Registrations and persistent reservation, as the state file has them; empty where gateways have them in common.
    pub reservations: ByteBuf,
    /// PRGENERATION.
    pub reservations_generation: u32,
    /// APTPL of the last registration.
    pub reservations_persist: bool,
    /// The nexus that holds the unit by RESERVE(6) or (10), as the state file writes a nexus; empty without one.
    pub legacy_holder: ByteBuf,
    /// The current mode pages, as the state file has saved ones; empty where gateways have them in common.
    pub mode_pages: ByteBuf,
    /// The version of what the gateways of the unit have in common, as its nexuses know it; 0 without one.
    pub common_version: u64,
    /// The entries of that version, by name.
    pub common_entries: Vec<(String, ByteBuf)>,
    /// How a sanitize operation has failed, as the state file has it; empty without a failure.
    pub sanitize_failure: ByteBuf,
    /// Whether the medium is ejected.
    pub medium_ejected: bool,
    /// Whether the store is not there.
    pub not_ready: bool,
    /// The number of blocks.
    pub blocks: u64,
    /// Whether initiators know that the space has fallen to the soft threshold.
    pub threshold_told: bool,
    /// When the unit began to doubt the digests of its blocks, in milliseconds since 1970; 0 when it does not.
    pub doubts_since_ms: u64,
    /// When the unit was created, in milliseconds since 1970; 0 when that is not known.
    pub created_ms: u64,
    /// Milliseconds that the clock of the unit is ahead of the time of day, as SET TIMESTAMP has set it.
    pub clock_offset_ms: Option<i64>,
    /// The `I_T` nexuses that were lost and have missed nothing since, as the state file writes a nexus.
    pub lost_nexuses: Vec<ByteBuf>,
    /// Counters by name.
    pub counters: Vec<(String, u64)>,
    /// The bytes that initiators have moved.
    pub initiators: Vec<Initiator>,
}

/// The bytes that an initiator has moved from and to a logical unit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Initiator {
    /// The name; empty for all those that are not remembered one by one.
    pub name: String,
    /// Bytes that it has read.
    pub read_bytes: u64,
    /// Bytes that it has written.
    pub written_bytes: u64,
    /// Whether it has a session.
    pub attached: bool,
}

/// The disks in memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// The place of the descriptor of the memory, which the disks share.
    pub descriptor: u32,
    /// The disks.
    pub disks: Vec<MemoryDisk>,
}

/// A disk in memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryDisk {
    /// The name of its target.
    pub target: String,
    /// The number of its LUN.
    pub lun: u16,
    /// The length, in bytes.
    pub len_bytes: u64,
    /// For each chunk that exists: its number in the disk, and the number of its place in the memory.
    pub places: Vec<(u64, u64)>,
}
