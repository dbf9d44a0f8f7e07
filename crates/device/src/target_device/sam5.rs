//! The task management functions that SAM-5 added.

use lunette_scsi::{Lun, SenseKey};

use super::TargetDevice;
use crate::target_device::nexus::Nexus;

/// The answer to QUERY ASYNCHRONOUS EVENT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingEvent {
    /// The nexus sees no logical unit of this number.
    UnknownLun,
    /// No event is pending for the nexus.
    Nothing,
    /// A unit attention is pending; the additional response information describes it (SAM-5 7.8).
    UnitAttention([u8; 3]),
}

impl TargetDevice {
    /// QUERY ASYNCHRONOUS EVENT (SAM-5 7.8): whether a unit attention is pending for the nexus. It stays pending. There
    /// are no deferred errors.
    pub fn query_asynchronous_event(&self, lun: [u8; 8], by: &Nexus) -> PendingEvent {
        const ONE: u8 = 0b01 << 4;
        const SEVERAL: u8 = 0b10 << 4;
        let Some(itl) = by.state.find(Lun::decode(lun)) else { return PendingEvent::UnknownLun };
        let Some((code, count)) = itl.unit_attentions.peek() else { return PendingEvent::Nothing };
        let depth = if count > 1 { SEVERAL } else { ONE };
        PendingEvent::UnitAttention([depth | SenseKey::UNIT_ATTENTION.0, code.asc, code.ascq])
    }
}
