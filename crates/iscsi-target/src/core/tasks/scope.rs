//! Which tasks a request ends that are not its own: those of other nexuses, on this core and on others.

use std::sync::Arc;

use lunette_device::{LogicalUnit, NexusId, TargetDevice};
use lunette_scsi::Lun;

use super::running::RunningTask;

/// A description of tasks that every core understands.
#[derive(Clone)]
pub(crate) enum AbortScope {
    /// LOGICAL UNIT RESET: the commands of all nexuses to the unit.
    Unit(Arc<LogicalUnit>),
    /// TARGET WARM RESET, TARGET COLD RESET.
    Target(Arc<TargetDevice>),
    /// PREEMPT AND ABORT: the tasks of these nexuses on this number, or wherever they work with the unit.
    Nexuses { nexuses: Vec<(NexusId, Lun)>, unit: Arc<LogicalUnit> },
    /// A login: what stores still do for initiator ports of that name.
    Orphans { device: Arc<TargetDevice>, initiator: String },
}

impl AbortScope {
    pub(in crate::core) fn covers(&self, task: &RunningTask) -> bool {
        match self {
            Self::Unit(unit) => task.is_for(unit),
            Self::Target(device) => task.is_of_device(device),
            Self::Nexuses { nexuses, unit } => {
                let works_there = task.uses(unit);
                nexuses.iter().any(|(nexus, lun)| task.nexus == *nexus && (task.lun == *lun || works_there))
            }
            Self::Orphans { device, initiator } => {
                let session = task.orphan.as_ref().and_then(|orphan| orphan.session.as_ref());
                session.is_some_and(|session| lunette_session::is_same_name(&session.initiator_name, initiator))
                    && task.is_of_device(device)
            }
        }
    }
}
