//! `I_T` nexuses and their ports by name, and the unit attentions of a nexus.

pub(crate) mod unit_attentions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The ports of a nexus, by the names that SCSI knows them under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NexusName {
    /// Initiator port: `iqn...,i,0x<ISID in hex>`.
    pub initiator: String,
    /// Target port: `iqn...,t,0x<portal group tag in hex>`.
    pub target_port: String,
    /// RELATIVE TARGET PORT IDENTIFIER, from 1.
    pub relative_port: u16,
}

/// A target port by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TargetPort {
    /// RELATIVE TARGET PORT IDENTIFIER.
    pub(crate) relative: u16,
    /// As [`NexusName::target_port`] has it.
    pub(crate) name: Arc<str>,
}

/// An `I_T` nexus by the names of its ports: what reservations belong to. It stays the same when the initiator comes back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ItNexus {
    /// The initiator port, in lower case.
    pub(crate) initiator: Arc<str>,
    pub(crate) port: TargetPort,
}

impl ItNexus {
    pub(crate) fn new(name: &NexusName) -> Self {
        let port = TargetPort { relative: name.relative_port, name: name.target_port.as_str().into() };
        Self { initiator: name.initiator.to_lowercase().into(), port }
    }
}

/// Tells nexuses apart for as long as the process lives; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NexusId(pub(crate) u64);

impl NexusId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
