//! `I_T` nexuses and their ports by name, and the unit attentions of a nexus.

pub(crate) mod unit_attentions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::persist::{ValueReader, put_bytes};

/// The names of the two ports of a nexus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NexusName {
    /// The SCSI name of the initiator port: `iqn...,i,0x<ISID in hex>`.
    pub initiator: String,
    /// The SCSI name of the target port: `iqn...,t,0x<portal group tag in hex>`.
    pub target_port: String,
    /// The RELATIVE TARGET PORT IDENTIFIER of the target port, from 1.
    pub relative_port: u16,
}

/// A target port: its relative identifier and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TargetPort {
    /// The RELATIVE TARGET PORT IDENTIFIER.
    pub(crate) relative: u16,
    /// The SCSI name of the port, in the form of [`NexusName::target_port`].
    pub(crate) name: Arc<str>,
}

/// An `I_T` nexus by the names of its ports, to which reservations belong. It stays the same when the initiator logs in
/// again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ItNexus {
    /// The name of the initiator port, in lower case.
    pub(crate) initiator: Arc<str>,
    pub(crate) port: TargetPort,
}

impl ItNexus {
    pub(crate) fn new(name: &NexusName) -> Self {
        let port = TargetPort { relative: name.relative_port, name: name.target_port.as_str().into() };
        Self { initiator: name.initiator.to_lowercase().into(), port }
    }

    /// Appends the nexus to a saved value: the RELATIVE TARGET PORT IDENTIFIER, and the names of both ports behind
    /// their lengths in two bytes.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.port.relative.to_be_bytes());
        put_bytes(bytes, self.port.name.as_bytes());
        put_bytes(bytes, self.initiator.as_bytes());
    }

    pub(crate) fn decode(reader: &mut ValueReader<'_>) -> Option<Arc<Self>> {
        let relative = u16::from_be_bytes(reader.take()?);
        let port = TargetPort { relative, name: reader.text()?.into() };
        Some(Arc::new(Self { initiator: reader.text()?.into(), port }))
    }
}

/// The number of an attached nexus, unique for the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NexusId(pub(crate) u64);

impl NexusId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
