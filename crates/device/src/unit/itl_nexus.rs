//! `I_T_L` nexuses: one nexus on one logical unit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lunette_scsi::{AdditionalSense, Lun, SenseData};

use super::LogicalUnit;
use super::copy_records::CopyRecords;
use super::counters::NexusCounters;
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
    /// The number that the nexus uses.
    pub(crate) lun: Lun,
    /// The number of the unit in its device.
    pub(crate) unit_lun: Lun,
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) unit_attentions: UnitAttentions,
    /// Writes of this nexus are refused.
    pub(crate) read_only: AtomicBool,
    /// The access state of the target port for the unit.
    pub(crate) access: AtomicAccess,
    /// PREVENT of PREVENT ALLOW MEDIUM REMOVAL; ends with the nexus.
    pub(crate) prevents_removal: AtomicBool,
    /// Third-party copies that were requested through this nexus.
    pub(crate) copy_records: CopyRecords,
    /// The counts of the nexus's commands on the unit.
    pub(crate) counters: Arc<NexusCounters>,
}

/// The last of its tasks has ended.
impl Drop for ItlNexus {
    fn drop(&mut self) {
        self.unit.counters().close(&self.counters);
    }
}

impl ItlNexus {
    /// The reason why writes of the nexus are refused, if they are.
    pub(crate) fn write_protection(&self) -> Option<AdditionalSense> {
        let of_nexus = || self.read_only.load(Ordering::Relaxed).then_some(AdditionalSense::WRITE_PROTECTED);
        self.unit.write_protection().or_else(of_nexus)
    }

    /// Refuses writes of the nexus, or takes them again. True, and the nexus is told, when that is a change.
    pub(crate) fn set_read_only(&self, read_only: bool) -> bool {
        let is_change = self.read_only.swap(read_only, Ordering::Relaxed) != read_only;
        if is_change {
            // WP is in the mode parameter header.
            self.unit_attentions.raise(AdditionalSense::MODE_PARAMETERS_CHANGED);
        }
        is_change
    }
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
    check_medium(medium, itl)?;
    Ok(epoch)
}

/// Whether the unit is ready, as TEST UNIT READY would report. For a command that was sent to another logical unit;
/// reservations do not matter.
pub(crate) fn is_ready(itl: &ItlNexus) -> Result<(), SenseData> {
    itl.access.check(AccessRule::Active)?;
    itl.unit.sanitize().check()?;
    check_medium(MediumUse::Needed, itl)
}

pub(crate) fn check_medium(medium: MediumUse, itl: &ItlNexus) -> Result<(), SenseData> {
    if medium != MediumUse::Untouched
        && let Some(why) = itl.unit.not_ready()
    {
        return Err(SenseData::not_ready(why));
    }
    if medium != MediumUse::Writes {
        return Ok(());
    }
    match itl.write_protection() {
        Some(code) => Err(SenseData::data_protect(code)),
        None => Ok(()),
    }
}
