//! The replacement of a lost connection's PDUs (RFC 7143 sections 7.2.2, 11.5.1 and 11.14).

use lunette_pdu::{
    Cid, LogoutReason, LogoutRequest, LunField, NopOut, SerialNumber, TargetTransferTag, TaskManagementFunction,
    TaskManagementRequest, TaskManagementResponseCode,
};

use super::FullFeature;
use super::commands::extension;
use super::task_management::manage_tasks;
use crate::iscsi_initiator::event::{Event, TaskTag};
use crate::iscsi_initiator::request::{Request, Underway};
use crate::iscsi_initiator::task::Task;
use crate::iscsi_initiator::turn_context::TurnContext;

impl FullFeature {
    /// Logs out a lost connection over this one, ahead of the window: the lost commands may have closed it.
    /// `exp_stat_sn` is that of the lost connection (RFC 7143 section 11.14.4). False when it cannot be sent now.
    pub(in crate::iscsi_initiator) fn log_out_lost(
        lost: Cid,
        exp_stat_sn: SerialNumber,
        context: &mut TurnContext<'_>,
    ) -> bool {
        let Some(tag) = context.add_request(Request::LogOutLost { lost }) else { return false };
        let pdu = LogoutRequest {
            immediate: true,
            reason: LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY,
            itt: tag.itt(),
            cid: lost,
            cmd_sn: context.shared.window.cmd_sn(),
            exp_stat_sn,
        };
        context.send_request(tag, pdu.emit(), Vec::new());
        true
    }

    /// Asks the target to go on with a task here. The answer comes before anything else for it. False when it cannot be
    /// sent now.
    pub(in crate::iscsi_initiator) fn reassign(&self, task: TaskTag, from: Cid, context: &mut TurnContext<'_>) -> bool {
        let Some(tag) = context.add_request(Request::Reassign { task, from }) else { return false };
        let pdu = TaskManagementRequest {
            immediate: true,
            function: TaskManagementFunction::TASK_REASSIGN,
            lun: LunField::default(),
            itt: tag.itt(),
            referenced_task_tag: task.itt(),
            cmd_sn: context.shared.window.cmd_sn(),
            exp_stat_sn: context.sender.exp_stat_sn(),
            ref_cmd_sn: SerialNumber(0),
            exp_data_sn: context.shared.tasks.get_mut(task).map_or(0, Task::reassigned),
        };
        context.shared.move_task(task, self.cid);
        context.send_request(tag, pdu.emit(), Vec::new());
        true
    }

    /// Sends a command from its beginning, with its old number and tag.
    pub(in crate::iscsi_initiator) fn send_again(&self, tag: TaskTag, context: &mut TurnContext<'_>) {
        context.shared.move_task(tag, self.cid);
        let Some(task) = context.shared.tasks.get_mut(tag) else { return };
        task.restart();
        let Some(ahs) = extension(&task.command) else { return };
        context.shared.recoveries.retries += 1;
        self.send_command(tag, task, &ahs, context.sender);
    }

    /// Uses a number up that the target waits for, on a ping. False when it cannot be sent now.
    pub(in crate::iscsi_initiator) fn fill_gap(&self, cmd_sn: SerialNumber, context: &mut TurnContext<'_>) -> bool {
        let filler = Underway { cid: self.cid, cmd_sn: Some(cmd_sn), request: Request::Filler, sent: None };
        let Ok(tag) = context.shared.requests.insert(filler) else { return false };
        let pdu = NopOut {
            immediate: false,
            lun: LunField::default(),
            itt: tag.itt(),
            ttt: TargetTransferTag::RESERVED,
            cmd_sn,
            exp_stat_sn: context.sender.exp_stat_sn(),
            data_segment_len: 0,
        };
        context.send_request(tag, pdu.emit(), Vec::new());
        context.shared.recoveries.retries += 1;
        true
    }

    /// Sends a request as if it were new. Answers of its former connection do not come any more.
    pub(in crate::iscsi_initiator) fn repeat(&mut self, request: Request, context: &mut TurnContext<'_>) {
        match request {
            Request::TaskManagement { user, function, lun, referenced, .. } => {
                if !manage_tasks(user, function, lun, referenced, context) {
                    let response = TaskManagementResponseCode::FUNCTION_REJECTED;
                    context.events.push_back(Event::TaskManagementDone { user, response, information: [0; 3] });
                }
            }
            Request::Ping { user, mut data } => {
                data.truncate(self.ping_limit());
                if !self.ping(user, data, context) {
                    context.events.push_back(Event::Pong { user, intact: false });
                }
            }
            Request::Text(exchange) => self.repeat_text(exchange, context),
            // They concerned the lost connection alone.
            Request::Keepalive
            | Request::Logout { .. }
            | Request::LogOutLost { .. }
            | Request::Reassign { .. }
            | Request::Filler => return,
        }
        context.shared.recoveries.retries += 1;
    }
}
