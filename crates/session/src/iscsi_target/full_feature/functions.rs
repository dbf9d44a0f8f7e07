//! Task management functions that are under way, and the news of tasks that such functions of others have ended.

use lunette_pdu::{InitiatorTaskTag, LunField, RejectReason, SerialNumber, TaskManagementRequest};

use crate::iscsi_target::violation::Violation;
use crate::limits::MAX_PENDING_TASK_MANAGEMENT;

#[derive(Default)]
pub(super) struct Functions {
    /// Requests that have not been answered.
    pending: Vec<InitiatorTaskTag>,
    terminations: Vec<Termination>,
}

/// News of ended tasks that the initiator has not acknowledged.
struct Termination {
    stat_sn: SerialNumber,
    lun: LunField,
}

impl Functions {
    /// Takes a request, which is [answered](Self::answer) once.
    pub(super) fn admit(&mut self, request: &TaskManagementRequest) -> Result<(), Violation> {
        if request.immediate && self.is_pending(request.itt) {
            // Sent again by an initiator that could not know that it has come. Now it can; it is answered once.
            let why = "the task management request is under way";
            return Err(Violation::harmless(RejectReason::TASK_IN_PROGRESS, why));
        }
        if self.pending.len() >= MAX_PENDING_TASK_MANAGEMENT {
            let why = "too many task management requests at a time";
            return Err(Violation::harmless(RejectReason::TOO_MANY_IMMEDIATE_COMMANDS, why));
        }
        self.pending.push(request.itt);
        Ok(())
    }

    /// Whether a request has not been answered.
    pub(super) fn are_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(super) fn is_pending(&self, itt: InitiatorTaskTag) -> bool {
        self.pending.contains(&itt)
    }

    /// Ends a request with its answer. False when none of that name is under way.
    pub(super) fn answer(&mut self, itt: InitiatorTaskTag) -> bool {
        let Some(index) = self.pending.iter().position(|pending| *pending == itt) else { return false };
        self.pending.swap_remove(index);
        true
    }

    /// News of ended tasks go out with this status number. They cover earlier ones of the logical unit.
    pub(super) fn terminated(&mut self, lun: LunField, stat_sn: SerialNumber) {
        self.terminations.retain(|known| known.lun != lun);
        self.terminations.push(Termination { stat_sn, lun });
    }

    /// The initiator has acknowledged a status of the logical unit. True when news are among them: nothing more comes
    /// for the tasks.
    pub(super) fn acknowledged(&mut self, lun: LunField, exp_stat_sn: SerialNumber) -> bool {
        let heard = |known: &mut Termination| known.lun == lun && exp_stat_sn.is_after(known.stat_sn);
        self.terminations.extract_if(.., heard).count() > 0
    }
}
