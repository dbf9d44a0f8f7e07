//! Logical units and their disks.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// What a logical unit keeps beside its blocks, and that no state file has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unit {
    /// The name of its target.
    pub target: String,
    /// Its serial number.
    pub serial: String,
    /// Registrations and persistent reservation, as the state file has them.
    pub reservations: ByteBuf,
    /// PRGENERATION.
    pub reservations_generation: u32,
    /// APTPL of the last registration.
    pub reservations_persist: bool,
    /// The nexus that holds the unit by RESERVE(6) or (10), as the state file writes a nexus; empty without one.
    pub legacy_holder: ByteBuf,
    /// The current mode pages, as the state file has saved ones.
    pub mode_pages: ByteBuf,
    /// Whether the medium is loaded.
    pub medium_present: bool,
    /// The `I_T` nexuses that were lost and have missed nothing since, as the state file writes a nexus.
    pub lost_nexuses: Vec<ByteBuf>,
    /// Counters by name.
    pub counters: Vec<(String, u64)>,
}

/// The blocks of a disk, by a descriptor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Disk {
    /// An open file or block device, with its locks.
    File {
        /// The place of its descriptor.
        descriptor: u32,
    },
    /// The blocks of a disk in memory.
    Memory {
        /// The serial number of the logical unit.
        serial: String,
        /// The place of the descriptor of the memory, which several disks may share.
        descriptor: u32,
        /// The length of the disk, in bytes.
        len_bytes: u64,
        /// Its chunks.
        chunks: Chunks,
    },
}

/// The chunks of a disk in memory that are not zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Chunks {
    /// The bytes of a chunk.
    pub chunk_bytes: u32,
    /// The number of a chunk in the disk, and the number of its place in the memory.
    pub places: Vec<(u64, u64)>,
}
