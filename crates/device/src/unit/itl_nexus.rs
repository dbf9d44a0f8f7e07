//! `I_T_L` nexuses: one nexus on one logical unit.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lunette_scsi::{AdditionalSense, Lun, SenseData};

use super::LogicalUnit;
use super::copy_records::CopyRecords;
use super::medium::MediumUse;
use crate::nexus::unit_attentions::UnitAttentions;
use crate::nexus::{ItNexus, NexusId};
use crate::port_groups::access::{AccessRule, AtomicAccess};
use crate::reservations::{Refusal, ReservationRule};
use crate::sanitize::{SanitizeEpoch, SanitizeRule};

/// An `I_T_L` nexus: one nexus on one logical unit.
pub(crate) struct ItlNexus {
    pub(crate) nexus: NexusId,
    pub(crate) it_nexus: Arc<ItNexus>,
    pub(crate) lun: Lun,
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) unit_attentions: UnitAttentions,
    /// The access state of the target port for the unit.
    pub(crate) access: AtomicAccess,
    /// PREVENT of PREVENT ALLOW MEDIUM REMOVAL; ends with the nexus.
    pub(crate) prevents_removal: AtomicBool,
    /// Third-party copies that were requested through this nexus.
    pub(crate) copy_records: CopyRecords,
}

/// Whether the nexus may access the medium of the unit as `medium` says, as a READ or WRITE would. For a command that
/// was sent to another logical unit. Returns the sanitize epoch of the check.
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

/// Whether the unit is ready, as TEST UNIT READY would report. For a command that was sent to another logical unit;
/// reservations do not matter.
pub(crate) fn is_ready(itl: &ItlNexus) -> Result<(), SenseData> {
    itl.access.check(AccessRule::Active)?;
    itl.unit.sanitize().check()?;
    check_medium(MediumUse::Needed, &itl.unit)
}

pub(crate) fn check_medium(medium: MediumUse, unit: &LogicalUnit) -> Result<(), SenseData> {
    if medium != MediumUse::Untouched && !unit.medium_present() {
        return Err(SenseData::not_ready(AdditionalSense::MEDIUM_NOT_PRESENT));
    }
    match unit.write_protection().filter(|_| medium == MediumUse::Writes) {
        Some(code) => Err(SenseData::data_protect(code)),
        None => Ok(()),
    }
}
