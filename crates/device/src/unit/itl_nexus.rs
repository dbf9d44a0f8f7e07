//! One nexus on one logical unit.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseKey};

use super::LogicalUnit;
use super::copies::Copies;
use super::medium::Medium;
use crate::nexus::unit_attentions::Attentions;
use crate::nexus::{ItNexus, NexusId};
use crate::port_groups::access::{AccessWord, Passes};
use crate::reservations::{Refusal, Reservation};
use crate::sanitize::{Era, Sanitizing};

/// One nexus on one logical unit: an `I_T_L` nexus.
pub(crate) struct Link {
    pub(crate) nexus: NexusId,
    pub(crate) ports: Arc<ItNexus>,
    pub(crate) lun: Lun,
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) attentions: Attentions,
    /// How the port of the nexus reaches the unit.
    pub(crate) access: AccessWord,
    /// PREVENT of PREVENT ALLOW MEDIUM REMOVAL; ends with the nexus.
    pub(crate) prevents_removal: AtomicBool,
    /// Copies that were asked for here.
    pub(crate) copies: Copies,
}

/// Whether the nexus may do this to the medium behind `link`, as READ or WRITE would: for a command to another logical unit
/// that reads or writes there. Tells when that was.
pub(crate) fn may_access(link: &Link, medium: Medium) -> Result<Era, Refusal> {
    link.access.check(Passes::Active)?;
    let reservation = if medium == Medium::Writes { Reservation::Conflicts } else { Reservation::PassesWriteExclusive };
    if !link.unit.reservations().permits(&link.ports, reservation) {
        return Err(Refusal::Conflict);
    }
    let era = link.unit.sanitize().admit(Sanitizing::Refused)?;
    check_medium(medium, &link.unit)?;
    Ok(era)
}

/// Whether the unit behind `link` is ready, as TEST UNIT READY would tell: for a command to another logical unit. Reservations
/// let that pass.
pub(crate) fn is_ready(link: &Link) -> Result<(), SenseData> {
    link.access.check(Passes::Active)?;
    link.unit.sanitize().check()?;
    check_medium(Medium::Needed, &link.unit)
}

pub(crate) fn check_medium(medium: Medium, unit: &LogicalUnit) -> Result<(), SenseData> {
    if medium != Medium::Untouched && !unit.medium_present() {
        return Err(SenseData::new(SenseKey::NOT_READY, AdditionalSense::MEDIUM_NOT_PRESENT));
    }
    match unit.write_protection().filter(|_| medium == Medium::Writes) {
        Some(code) => Err(SenseData::new(SenseKey::DATA_PROTECT, code)),
        None => Ok(()),
    }
}
