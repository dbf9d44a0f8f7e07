//! Text, task management, logout, and tasks that outlive their connection.

use lunette_pdu::{
    Cid, InitiatorTaskTag, LogoutReason, LogoutRequest, LogoutResponseCode, SerialNumber, TargetPdu,
    TaskManagementFunction, TaskManagementRequest, TaskManagementResponseCode, TextRequest,
};

use super::ScriptedInitiator;
use crate::requests::{self, lun};

impl ScriptedInitiator {
    /// A text request in one piece, and the answer to it.
    pub fn text(&mut self, list: &[u8]) -> Vec<u8> {
        let itt = self.next_itt().0;
        let request = TextRequest {
            immediate: true,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_segment_len: list.len(),
            ..requests::text(itt)
        };
        self.send(request.emit(), list);
        let (pdu, data) = self.receive().expect("an answer");
        assert!(matches!(pdu, TargetPdu::TextResponse(response) if response.final_), "{pdu:?}");
        data
    }

    /// Sends a task management request.
    pub fn start_management(
        &mut self,
        function: TaskManagementFunction,
        number: u16,
        referenced: Option<InitiatorTaskTag>,
    ) -> InitiatorTaskTag {
        self.send_management(function, number, referenced, 0)
    }

    /// Sends a task management request with an ExpDataSN, as TASK REASSIGN has it.
    pub fn send_management(
        &mut self,
        function: TaskManagementFunction,
        number: u16,
        referenced: Option<InitiatorTaskTag>,
        exp_data_sn: u32,
    ) -> InitiatorTaskTag {
        let itt = self.next_itt();
        let request = TaskManagementRequest {
            lun: lun(number),
            referenced_task_tag: referenced.unwrap_or(InitiatorTaskTag::RESERVED),
            cmd_sn: self.cmd_sn,
            ref_cmd_sn: SerialNumber(1),
            exp_data_sn,
            ..requests::task_management(itt.0, function)
        };
        self.send(request.emit(), &[]);
        itt
    }

    /// Waits for the answer to a task management request.
    pub fn finish_management(&mut self, itt: InitiatorTaskTag) -> TaskManagementResponseCode {
        self.wait_for(|pdu, _| match pdu {
            TargetPdu::TaskManagementResponse(pdu) if pdu.itt == itt => Some(pdu.response),
            _ => None,
        })
    }

    /// Asks for the end of the session.
    pub fn send_logout(&mut self) {
        self.send_logout_of(LogoutReason::CLOSE_SESSION, 0);
    }

    /// Asks for the end of a connection of the session, or of all.
    pub fn send_logout_of(&mut self, reason: LogoutReason, cid: u16) {
        self.send_logout_after(reason, Cid(cid), SerialNumber(0));
    }

    fn send_logout_after(&mut self, reason: LogoutReason, cid: Cid, exp_stat_sn: SerialNumber) {
        let itt = self.next_itt().0;
        let request = LogoutRequest { cid, cmd_sn: self.cmd_sn, exp_stat_sn, ..requests::logout(itt, reason) };
        self.send(request.emit(), &[]);
    }

    /// The next PDU, which answers a logout.
    pub fn logout_response(&mut self) -> LogoutResponseCode {
        let (pdu, _) = self.receive().expect("an answer");
        let TargetPdu::LogoutResponse(response) = pdu else { panic!("{pdu:?} answers a logout") };
        response.response
    }

    /// Logs another connection out for recovery.
    pub fn recover(&mut self, lost: &Self) {
        self.send_logout_after(LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY, lost.cid, lost.exp_stat_sn);
        assert_eq!(self.logout_response(), LogoutResponseCode::CLOSED);
    }

    /// Names its tasks as `old`, whose place it takes, would have gone on.
    #[must_use]
    pub fn with_tags_after(mut self, old: &Self) -> Self {
        self.next_itt = old.next_itt;
        self
    }

    /// Asks for a task of another connection to go on here.
    pub fn reassign(&mut self, from: &mut Self, itt: InitiatorTaskTag) -> TaskManagementResponseCode {
        self.reassign_from(from, itt, 0)
    }

    /// Reassigns a task of which data has been received.
    pub fn reassign_from(
        &mut self,
        from: &mut Self,
        itt: InitiatorTaskTag,
        exp_data_sn: u32,
    ) -> TaskManagementResponseCode {
        self.take_over(from, itt);
        let request = self.send_management(TaskManagementFunction::TASK_REASSIGN, 0, Some(itt), exp_data_sn);
        self.finish_management(request)
    }
}
