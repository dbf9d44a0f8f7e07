//! Task management functions that ask and change nothing (RFC 7144, SAM-5 chapter 7).

use lunette_pdu::{
    InitiatorTaskTag, LunField, TaskManagementFunction, TaskManagementRequest, TaskManagementResponseCode,
};

use super::FullFeature;
use crate::iscsi_target::tasks::task::Task;
use crate::iscsi_target::turn_context::TurnContext;

/// Whether a function only asks. It waits for no command that is still on its way: what it learns is a snapshot in any
/// case.
pub(super) fn is_query(function: TaskManagementFunction) -> bool {
    matches!(
        function,
        TaskManagementFunction::QUERY_TASK
            | TaskManagementFunction::QUERY_TASK_SET
            | TaskManagementFunction::QUERY_ASYNCHRONOUS_EVENT
    )
}

impl FullFeature {
    /// QUERY TASK (SAM-5 7.10): a task is there until its response is sent, also when it waits for nothing but that. A
    /// command that was lost on its way counts as received from now on, as for ABORT TASK (RFC 7144 section 6.3.3).
    /// `None`: it may wait on a connection that was lost, or be one that was aborted. The driver knows.
    pub(super) fn query_task(
        &self,
        request: &TaskManagementRequest,
        cx: &mut TurnContext<'_>,
    ) -> Option<TaskManagementResponseCode> {
        // RFC 7144 section 6.3: QUERY TASK is for SCSI commands alone.
        if self.is_request(request.referenced_task_tag) && request.referenced_task_tag != request.itt {
            return Some(TaskManagementResponseCode::FUNCTION_REJECTED);
        }
        let named = self.tasks.find(request.referenced_task_tag).and_then(|tag| self.tasks.get(tag));
        match named.filter(|task| !task.is_silent()) {
            Some(task) if task.lun == request.lun => Some(TaskManagementResponseCode::FUNCTION_SUCCEEDED),
            Some(_) => Some(TaskManagementResponseCode::FUNCTION_COMPLETE),
            None => self.count_lost(request, cx).then_some(TaskManagementResponseCode::FUNCTION_COMPLETE),
        }
    }

    pub(crate) fn has_tasks(&self, lun: LunField) -> bool {
        let counts = |task: &Task| task.lun == lun && !task.is_silent();
        self.tasks.iter().any(counts)
    }

    pub(crate) fn task_management_succeeded(
        &mut self,
        itt: InitiatorTaskTag,
        information: [u8; 3],
        cx: &mut TurnContext<'_>,
    ) {
        self.answer_task_management(itt, TaskManagementResponseCode::FUNCTION_SUCCEEDED, information, cx);
    }
}
