//! One nexus on one logical unit.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseKey};

use super::LogicalUnit;
use super::copy_records::CopyRecords;
use super::medium::MediumUse;
use crate::nexus::unit_attentions::UnitAttentions;
use crate::nexus::{ItNexus, NexusId};
use crate::port_groups::access::{AccessRule, AtomicAccess};
use crate::reservations::{Refusal, ReservationRule};
use crate::sanitize::{SanitizeEpoch, SanitizeRule};

/// One nexus on one logical unit: an `I_T_L` nexus.
pub(crate) struct ItlNexus {
    pub(crate) nexus: NexusId,
    pub(crate) it_nexus: Arc<ItNexus>,
    pub(crate) lun: Lun,
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) unit_attentions: UnitAttentions,
    /// How the port of the nexus reaches the unit.
    pub(crate) access: AtomicAccess,
    /// PREVENT of PREVENT ALLOW MEDIUM REMOVAL; ends with the nexus.
    pub(crate) prevents_removal: AtomicBool,
    /// Copies that were asked for here.
    pub(crate) copy_records: CopyRecords,
}

/// Whether the nexus may do this to the medium behind `itl`, as READ or WRITE would: for a command to another logical unit
/// that reads or writes there. Tells when that was.
pub(crate) fn may_access(itl: &ItlNexus, medium: MediumUse) -> Result<SanitizeEpoch, Refusal> {
    itl.access.check(AccessRule::Active)?;
    let reservation =
        if medium == MediumUse::Writes { ReservationRule::Conflicts } else { ReservationRule::PassesWriteExclusive };
    if !itl.unit.reservations().permits(&itl.it_nexus, reservation) {
        return Err(Refusal::Conflict);
    }
    let epoch = itl.unit.sanitize().admit(SanitizeRule::Refused)?;
    check_medium(medium, &itl.unit)?;
    Ok(epoch)
}

/// Whether the unit behind `itl` is ready, as TEST UNIT READY would tell: for a command to another logical unit. Reservations
/// let that pass.
pub(crate) fn is_ready(itl: &ItlNexus) -> Result<(), SenseData> {
    itl.access.check(AccessRule::Active)?;
    itl.unit.sanitize().check()?;
    check_medium(MediumUse::Needed, &itl.unit)
}

pub(crate) fn check_medium(medium: MediumUse, unit: &LogicalUnit) -> Result<(), SenseData> {
    if medium != MediumUse::Untouched && !unit.medium_present() {
        return Err(SenseData::new(SenseKey::NOT_READY, AdditionalSense::MEDIUM_NOT_PRESENT));
    }
    match unit.write_protection().filter(|_| medium == MediumUse::Writes) {
        Some(code) => Err(SenseData::new(SenseKey::DATA_PROTECT, code)),
        None => Ok(()),
    }
}
