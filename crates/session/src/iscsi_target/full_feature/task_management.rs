//! Task management requests and their answers.

use lunette_buffer::Payload;
use lunette_pdu::{
    InitiatorTaskTag, LunField, SerialNumber, TaskManagementFunction, TaskManagementRequest, TaskManagementResponse,
    TaskManagementResponseCode,
};

use super::FullFeature;
use super::numbering::{Turn, Waiting};
use super::query::is_query;
use crate::iscsi_target::event::{Signal, TaskManagement, TaskTag};
use crate::iscsi_target::expect::Expect;
use crate::iscsi_target::tasks::task::{Phase, Task};
use crate::iscsi_target::turn_context::TurnContext;
use crate::iscsi_target::violation::Violation;

impl FullFeature {
    pub(super) fn task_management(
        &mut self,
        request: &TaskManagementRequest,
        cx: &mut TurnContext<'_>,
    ) -> Result<Expect, Violation> {
        let turn = self.numbering.arrive(request.immediate, request.cmd_sn, cx)?;
        if turn == Turn::Never {
            return Ok(Expect::Nothing);
        }
        if let Err(violation) = self.functions.admit(request) {
            if turn == Turn::Later {
                self.numbering.pass_over(request.cmd_sn, request.cmd_sn.next(), cx);
            }
            return Err(violation);
        }
        let ends_many =
            !matches!(request.function, TaskManagementFunction::ABORT_TASK | TaskManagementFunction::TASK_REASSIGN)
                && !is_query(request.function);
        if turn == Turn::Later {
            self.numbering.hold(request.cmd_sn, Waiting::TaskManagement(*request), cx);
        } else if !ends_many || !request.immediate || !self.numbering.hold_until_complete(request, cx) {
            self.manage_tasks(request, cx);
        }
        Ok(Expect::Nothing)
    }

    /// Does what is asked for, or lets the driver do it.
    pub(super) fn manage_tasks(&mut self, request: &TaskManagementRequest, cx: &mut TurnContext<'_>) {
        // What comes after it by its number may have come before it: it may have been lost, or have waited for lost
        // commands.
        let before = self.session.may_have_gaps().then_some(request.cmd_sn);
        let covered = |task: &Task| before.is_none_or(|before| task.order.is_covered_by(before));
        let (at_once, referenced) = match request.function {
            TaskManagementFunction::ABORT_TASK => self.referenced_task(request, cx),
            TaskManagementFunction::ABORT_TASK_SET
            | TaskManagementFunction::CLEAR_TASK_SET
            | TaskManagementFunction::LOGICAL_UNIT_RESET => {
                self.silence(|task| task.lun == request.lun && covered(task), cx);
                (None, None)
            }
            TaskManagementFunction::TARGET_WARM_RESET | TaskManagementFunction::TARGET_COLD_RESET => {
                self.silence(covered, cx);
                (None, None)
            }
            TaskManagementFunction::I_T_NEXUS_RESET if self.parameters.has_sam5_features() => {
                self.silence(covered, cx);
                (None, None)
            }
            TaskManagementFunction::QUERY_TASK if self.parameters.has_sam5_features() => {
                (self.query_task(request, cx), None)
            }
            function if is_query(function) && self.parameters.has_sam5_features() => (None, None),
            TaskManagementFunction::TASK_REASSIGN => (self.refused_reassignment(request, cx), None),
            _ => (Some(TaskManagementResponseCode::FUNCTION_NOT_SUPPORTED), None),
        };
        match at_once {
            Some(response) => self.task_management_done(request.itt, response, cx),
            None => cx.events.push_back(Signal::TaskManagement(TaskManagement {
                itt: request.itt,
                function: request.function,
                lun: request.lun,
                referenced,
                referenced_itt: request.referenced_task_tag,
                exp_data_sn: request.exp_data_sn,
                before,
            })),
        }
    }

    /// RFC 7143 section 11.6.1: a task that is gone but could still arrive counts as aborted; one that never was or has
    /// ended does not exist. When it was aborted, only the driver knows whether anything still works for it. A logical
    /// unit aborts its own tasks (SAM-5 7.2), so the name of a task of another one means nothing.
    pub(super) fn referenced_task(
        &mut self,
        request: &TaskManagementRequest,
        cx: &mut TurnContext<'_>,
    ) -> (Option<TaskManagementResponseCode>, Option<TaskTag>) {
        let is_meant = |task: &Task| task.itt == request.referenced_task_tag && task.lun == request.lun;
        let alive = |task: &Task| is_meant(task) && !matches!(task.phase, Phase::Draining(_));
        let named = self.tasks.find(request.referenced_task_tag);
        if let Some(tag) = named.filter(|tag| self.tasks.get(*tag).is_some_and(alive)) {
            if !self.numbering.withdraw(tag, cx) {
                return (None, Some(tag));
            }
            self.tasks.end(tag, None);
            return (Some(TaskManagementResponseCode::FUNCTION_COMPLETE), None);
        }
        if self.text.abort(request.referenced_task_tag) {
            return (Some(TaskManagementResponseCode::FUNCTION_COMPLETE), None);
        }
        if request.referenced_task_tag != request.itt && self.is_request(request.referenced_task_tag) {
            // Not of task management, says RFC 7143 section 11.5.1.
            return (Some(TaskManagementResponseCode::FUNCTION_REJECTED), None);
        }
        if self.silence(is_meant, cx) || self.count_lost(request, cx) {
            return (Some(TaskManagementResponseCode::FUNCTION_COMPLETE), None);
        }
        // It may wait on a connection that was lost (RFC 7143 section 11.5.1), or be one that was aborted. The driver
        // knows.
        (None, None)
    }

    /// Counts the command that a request names as received, when it was lost on its way (RFC 7143 section 11.6.1). True
    /// then.
    pub(super) fn count_lost(&self, request: &TaskManagementRequest, cx: &mut TurnContext<'_>) -> bool {
        let elsewhere = cx.window.holds(request.ref_cmd_sn);
        !elsewhere && self.numbering.pass_over(request.ref_cmd_sn, request.cmd_sn, cx)
    }

    /// Why a task cannot come to this connection, when that needs no look at others.
    fn refused_reassignment(
        &self,
        request: &TaskManagementRequest,
        cx: &TurnContext<'_>,
    ) -> Option<TaskManagementResponseCode> {
        if !self.session.recovers_connections() {
            return Some(TaskManagementResponseCode::REASSIGNMENT_NOT_SUPPORTED);
        }
        let referenced = request.referenced_task_tag;
        if referenced != request.itt && self.is_request(referenced) {
            return Some(TaskManagementResponseCode::FUNCTION_REJECTED);
        }
        let is_here = self.known_task(referenced, cx.sender).is_some_and(|task| task.tag.is_some());
        is_here.then_some(TaskManagementResponseCode::TASK_STILL_ALLEGIANT)
    }

    /// For the driver these tasks have ended, but their responses still wait for data. None may follow the answer to
    /// their abort. True when there was one.
    pub(super) fn silence(&mut self, concerned: impl Fn(&Task) -> bool, cx: &mut TurnContext<'_>) -> bool {
        let silenced = self.tasks.silence(concerned);
        for immediate in &silenced {
            self.release(*immediate, cx);
        }
        !silenced.is_empty()
    }

    /// Silences the tasks that a request on another connection covers.
    pub(crate) fn silence_covered(&mut self, lun: Option<LunField>, before: SerialNumber, cx: &mut TurnContext<'_>) {
        self.silence(|task| lun.is_none_or(|lun| lun == task.lun) && task.order.is_covered_by(before), cx);
    }

    pub(crate) fn task_management_done(
        &mut self,
        itt: InitiatorTaskTag,
        response: TaskManagementResponseCode,
        cx: &mut TurnContext<'_>,
    ) {
        self.answer_task_management(itt, response, [0; 3], cx);
    }

    pub(super) fn answer_task_management(
        &mut self,
        itt: InitiatorTaskTag,
        response: TaskManagementResponseCode,
        additional_response_information: [u8; 3],
        cx: &mut TurnContext<'_>,
    ) {
        if !self.functions.answer(itt) {
            return;
        }
        let (exp_cmd_sn, max_cmd_sn) = cx.window.numbers();
        let pdu = TaskManagementResponse {
            response,
            additional_response_information,
            itt,
            stat_sn: cx.sender.next_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
        };
        cx.sender.push_numbered(pdu.emit(), Payload::Empty);
    }
}
