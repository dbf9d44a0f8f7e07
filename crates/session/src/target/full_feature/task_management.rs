//! Task management requests and their answers.

use std::collections::VecDeque;

use lunette_pdu::{
    InitiatorTaskTag, RejectReason, TaskManagementFunction, TaskManagementRequest, TaskManagementResponse,
    TaskManagementResponseCode,
};

use super::FullFeature;
use crate::limits::MAX_PENDING_TASK_MANAGEMENT;
use crate::outbox::Segment;
use crate::target::connection::{Expect, Sender, Violation};
use crate::target::event::{Event, TaskManagement, TaskTag};
use crate::target::task::{Phase, Task};

impl FullFeature {
    pub(super) fn task_management(
        &mut self,
        request: &TaskManagementRequest,
        sender: &mut Sender,
        events: &mut VecDeque<Event>,
    ) -> Result<Expect, Violation> {
        if !self.arrive(request.immediate, request.cmd_sn)? {
            return Ok(Expect::Nothing);
        }
        if self.pending_task_management.len() >= MAX_PENDING_TASK_MANAGEMENT {
            let why = "too many task management requests at a time";
            return Err(Violation::harmless(RejectReason::TOO_MANY_IMMEDIATE_COMMANDS, why));
        }
        self.pending_task_management.push(request.itt);
        let (at_once, referenced) = match request.function {
            TaskManagementFunction::ABORT_TASK => self.referenced_task(request),
            TaskManagementFunction::ABORT_TASK_SET
            | TaskManagementFunction::CLEAR_TASK_SET
            | TaskManagementFunction::LOGICAL_UNIT_RESET => {
                self.silence(|task| task.lun == request.lun);
                (None, None)
            }
            TaskManagementFunction::TARGET_WARM_RESET | TaskManagementFunction::TARGET_COLD_RESET => {
                self.silence(|_| true);
                (None, None)
            }
            TaskManagementFunction::TASK_REASSIGN => {
                (Some(TaskManagementResponseCode::REASSIGNMENT_NOT_SUPPORTED), None)
            }
            _ => (Some(TaskManagementResponseCode::FUNCTION_NOT_SUPPORTED), None),
        };
        match at_once {
            Some(response) => self.task_management_done(request.itt, response, sender),
            None => events.push_back(Event::TaskManagement(TaskManagement {
                itt: request.itt,
                function: request.function,
                lun: request.lun,
                referenced,
            })),
        }
        Ok(Expect::Nothing)
    }

    /// RFC 7143 section 11.6.1: a task that is gone but could still arrive counts as aborted; one that never was or has
    /// ended does not exist.
    pub(super) fn referenced_task(
        &mut self,
        request: &TaskManagementRequest,
    ) -> (Option<TaskManagementResponseCode>, Option<TaskTag>) {
        let alive = |tag: &TaskTag| self.tasks.get(*tag).is_some_and(|t| !matches!(t.phase, Phase::Draining(_)));
        if let Some(tag) = self.tasks.find(request.referenced_task_tag).filter(alive) {
            return (None, Some(tag));
        }
        let response = if self.silence(|task| task.itt == request.referenced_task_tag) {
            TaskManagementResponseCode::FUNCTION_COMPLETE
        } else {
            TaskManagementResponseCode::TASK_DOES_NOT_EXIST
        };
        (Some(response), None)
    }

    /// For the driver these tasks have ended, but their responses still wait for data. None may follow the answer to their
    /// abort. True when there was one.
    pub(super) fn silence(&mut self, concerned: impl Fn(&Task) -> bool) -> bool {
        let silenced = self.tasks.silence(concerned);
        for immediate in &silenced {
            self.release(*immediate);
        }
        !silenced.is_empty()
    }

    pub(crate) fn task_management_done(
        &mut self,
        itt: InitiatorTaskTag,
        response: TaskManagementResponseCode,
        sender: &mut Sender,
    ) {
        let Some(index) = self.pending_task_management.iter().position(|pending| *pending == itt) else { return };
        self.pending_task_management.swap_remove(index);
        let (exp_cmd_sn, max_cmd_sn) = self.session.command_numbers();
        let pdu = TaskManagementResponse {
            response,
            additional_response_information: [0; 3],
            itt,
            stat_sn: sender.next_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
        };
        sender.outbox.push(pdu.emit(), Segment::Empty);
    }
}
