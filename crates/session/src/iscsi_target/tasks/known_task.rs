//! Tasks as connections know them by the names that the initiator has given.

use lunette_pdu::LunField;

use crate::iscsi_target::event::{CommandOrder, TaskTag};

/// A task that a connection knows by the initiator's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownTask {
    /// Names the task while the driver has it; `None` when it has ended, and the initiator may not know.
    pub(crate) tag: Option<TaskTag>,
    /// The task's place among the commands of the session.
    pub(crate) order: CommandOrder,
    /// The task's logical unit: a request that names the task and another one does not mean it.
    pub(crate) lun: LunField,
}

impl KnownTask {
    /// Whether their name means this task and not `other`, of another connection of the session. A name may have been
    /// used before, by a task whose end the initiator has not acknowledged: the last one is meant.
    pub(crate) fn supersedes(&self, other: &Self) -> bool {
        self.tag.is_some() || other.tag.is_none() && self.order.cmd_sn.is_after(other.order.cmd_sn)
    }
}

#[cfg(test)]
mod tests {
    use lunette_pdu::SerialNumber;

    use super::*;

    fn known(tag: Option<u16>, cmd_sn: u32) -> KnownTask {
        let order = CommandOrder { cmd_sn: SerialNumber(cmd_sn), immediate: false };
        KnownTask { tag: tag.map(|slot| TaskTag { slot, generation: 0 }), order, lun: LunField([0; 8]) }
    }

    #[test]
    fn a_name_means_the_task_that_the_driver_has_and_else_the_last_one() {
        assert!(known(Some(0), 1).supersedes(&known(None, 2)));
        assert!(!known(None, 2).supersedes(&known(Some(0), 1)));
        assert!(known(None, 1).supersedes(&known(None, u32::MAX)), "numbers wrap");
        assert!(!known(None, u32::MAX).supersedes(&known(None, 1)));
    }
}
