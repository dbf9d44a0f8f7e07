//! Tasks that outlive their connection.

use lunette_pdu::{
    Cid, InitiatorTaskTag, LogoutReason, LogoutResponseCode, TaskManagementFunction, TaskManagementResponseCode,
};

use super::Initiator;

impl Initiator {
    /// Waits until the target calls another connection of the session lost.
    pub(crate) fn hear_of_loss(&mut self) -> Cid {
        while self.dropped.is_empty() {
            self.take_one();
        }
        self.dropped.remove(0)
    }

    /// Expects the end of a task of another connection here.
    pub(crate) fn take_over(&mut self, from: &mut Self, itt: InitiatorTaskTag) {
        if let Some(task) = from.tasks.remove(&itt) {
            self.tasks.insert(itt, task);
        }
    }

    /// Names its tasks as `old`, whose place it takes, would have gone on.
    pub(crate) fn with_tags_after(mut self, old: &Self) -> Self {
        self.next_itt = old.next_itt;
        self
    }

    /// Asks for a task of another connection to go on here.
    pub(crate) fn reassign(&mut self, from: &mut Self, itt: InitiatorTaskTag) -> TaskManagementResponseCode {
        self.reassign_from(from, itt, 0)
    }

    /// The same when data of it has been received.
    pub(crate) fn reassign_from(
        &mut self,
        from: &mut Self,
        itt: InitiatorTaskTag,
        exp_data_sn: u32,
    ) -> TaskManagementResponseCode {
        self.take_over(from, itt);
        let request = self.send_management(TaskManagementFunction::TASK_REASSIGN, 0, Some(itt), exp_data_sn);
        self.finish_management(request)
    }

    /// Logs another connection out for recovery.
    pub(crate) fn recover(&mut self, lost: &Self) {
        self.send_logout_after(LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY, lost.cid, lost.exp_stat_sn);
        assert_eq!(self.logout_response(), LogoutResponseCode::CLOSED);
    }
}
