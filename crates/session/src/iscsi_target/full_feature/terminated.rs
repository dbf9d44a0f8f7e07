//! Tasks that were ended together while data for them is under way (RFC 7143 sections 4.2.3.3 to 4.2.3.5).

use lunette_buffer::Payload;
use lunette_pdu::{AsyncEvent, AsyncMessage, LunField, NopOut, SerialNumber};

use super::FullFeature;
use crate::iscsi_target::turn_context::TurnContext;
use crate::keys::TaskReporting;

impl FullFeature {
    /// Event 5 is for sessions with FastAbort alone. Its ExpCmdSN is that of the moment when the tasks ended: an
    /// initiator can tell them from later ones by it, and ignores it otherwise, for it is old (RFC 7143 section
    /// 4.2.2.1).
    pub(crate) fn tasks_terminated(&mut self, lun: LunField, before: SerialNumber, cx: &mut TurnContext<'_>) {
        if self.parameters.task_reporting != TaskReporting::FastAbort {
            return;
        }
        // The initiator ends all tasks that the message names. An answer that waits, behind a fence or for data, would
        // be one to a task that is gone.
        self.silence(|task| task.lun == lun && task.order.cmd_sn.is_before(before), cx);
        let event = AsyncEvent::TASK_TERMINATION;
        let message = AsyncMessage { event, lun, exp_cmd_sn: before, ..cx.news() };
        self.functions.terminated(lun, message.stat_sn);
        cx.sender.push_numbered(message.emit(), Payload::Empty);
    }

    /// A NOP-Out without tags, which may acknowledge such news: nothing more comes for the tasks.
    pub(super) fn termination_acknowledged(&mut self, nop: &NopOut) {
        if self.functions.acknowledged(nop.lun, nop.exp_stat_sn) {
            self.forget_data(Some(nop.lun));
        }
    }

    pub(crate) fn owes_data(&self, lun: Option<LunField>) -> bool {
        self.tasks.iter().any(|task| task.is_silent() && lun.is_none_or(|lun| lun == task.lun))
    }

    pub(crate) fn forget_data(&mut self, lun: Option<LunField>) {
        for tag in self.tasks.tags_where(|task| task.is_silent() && lun.is_none_or(|lun| lun == task.lun)) {
            self.tasks.remove(tag);
        }
    }
}
