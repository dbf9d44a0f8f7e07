//! Which tasks somebody ends who does not have them: those of other nexuses, on this core and on others.

use std::sync::Arc;

use lunette_device::{LogicalUnit, NexusId, TargetDevice};
use lunette_scsi::Lun;

use super::Core;
use super::running::{RunningTask, TaskKey};

/// A description of tasks that every core understands.
#[derive(Clone)]
pub(crate) enum Doomed {
    /// LOGICAL UNIT RESET.
    OfUnit { device: Arc<TargetDevice>, lun: Lun },
    /// TARGET WARM RESET, TARGET COLD RESET.
    OfTarget(Arc<TargetDevice>),
    /// PREEMPT AND ABORT: of these nexuses on this number, or wherever they work with the unit.
    OfNexuses { nexuses: Vec<(NexusId, Lun)>, unit: Arc<LogicalUnit> },
    /// A login: what stores still do for initiator ports of that name.
    Orphans { device: Arc<TargetDevice>, initiator: String },
}

impl Doomed {
    pub(super) fn covers(&self, task: &RunningTask) -> bool {
        match self {
            Self::OfUnit { device, lun } => Arc::ptr_eq(&task.device, device) && task.lun == *lun,
            Self::OfTarget(device) => Arc::ptr_eq(&task.device, device),
            Self::OfNexuses { nexuses, unit } => {
                let works_there = task.task.uses(unit);
                nexuses.iter().any(|(nexus, lun)| task.nexus == *nexus && (task.lun == *lun || works_there))
            }
            Self::Orphans { device, initiator } => {
                let name = task.orphan.as_ref().and_then(|orphan| orphan.initiator.as_ref());
                name.is_some_and(|name| name.eq_ignore_ascii_case(initiator)) && Arc::ptr_eq(&task.device, device)
            }
        }
    }
}

impl Core {
    /// The nexuses that lose these tasks, each once.
    pub(super) fn nexuses_of(&self, keys: &[TaskKey]) -> Vec<NexusId> {
        let tasks = keys.iter().filter_map(|key| self.tasks.get(*key)).filter(|task| !task.is_orphan());
        let mut nexuses: Vec<NexusId> = tasks.map(|task| task.nexus).collect();
        nexuses.sort_unstable();
        nexuses.dedup();
        nexuses
    }
}
