//! Everything that is no command: messages, pings, text, task management and logout.

use lunette_pdu::{
    AsyncEvent, AsyncMessage, Cid, InitiatorTaskTag, LogoutReason, LogoutRequest, LogoutResponseCode, LunField, NopOut,
    SerialNumber, TargetPdu, TargetTransferTag, TaskManagementFunction, TaskManagementRequest,
    TaskManagementResponseCode, TextRequest,
};
use lunette_scsi::Lun;
use lunette_store::filters::Delay;

use super::Initiator;

impl Initiator {
    /// The next unit attention that comes by asynchronous message.
    pub(crate) fn news(&mut self) -> (u16, (u8, u8, u8)) {
        while self.news.is_empty() {
            self.take_one();
        }
        self.news.remove(0)
    }

    /// Acknowledges news of ended tasks: a NOP-Out that asks for nothing.
    pub(crate) fn acknowledge(&mut self, lun: LunField) {
        self.nop_out(lun, InitiatorTaskTag::RESERVED, TargetTransferTag::RESERVED);
    }

    /// The next asynchronous message for that event; others before it do not come.
    pub(crate) fn message(&mut self, event: AsyncEvent) -> AsyncMessage {
        while self.messages.is_empty() {
            self.take_one();
        }
        let message = self.messages.remove(0);
        assert_eq!(message.event, event);
        message
    }

    /// A text request in one piece, and the answer to it.
    pub(crate) fn text(&mut self, list: &[u8]) -> Vec<u8> {
        let request = TextRequest {
            immediate: true,
            final_: true,
            continue_: false,
            lun: LunField([0; 8]),
            itt: self.next_itt(),
            ttt: TargetTransferTag::RESERVED,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_segment_len: list.len(),
        };
        self.send(request.emit(), list);
        let (pdu, data) = self.receive().unwrap();
        assert!(matches!(pdu, TargetPdu::TextResponse(response) if response.final_), "{pdu:?}");
        data
    }

    pub(super) fn answer_ping(&mut self, ttt: TargetTransferTag) {
        self.nop_out(LunField([0; 8]), InitiatorTaskTag::RESERVED, ttt);
    }

    /// Sends a ping with data, whose echo is not waited for.
    pub(crate) fn send_ping(&mut self, data: &[u8]) {
        let (itt, cmd_sn, exp_stat_sn) = (self.next_itt(), self.cmd_sn, self.exp_stat_sn);
        let ping = NopOut {
            immediate: true,
            lun: LunField([0; 8]),
            itt,
            ttt: TargetTransferTag::RESERVED,
            cmd_sn,
            exp_stat_sn,
            data_segment_len: data.len(),
        };
        self.send(ping.emit(), data);
    }

    pub(super) fn nop_out(&mut self, lun: LunField, itt: InitiatorTaskTag, ttt: TargetTransferTag) {
        let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
        self.send(NopOut { immediate: true, lun, itt, ttt, cmd_sn, exp_stat_sn, data_segment_len: 0 }.emit(), &[]);
    }

    /// Answers the first ping of the target, which may have come before.
    pub(crate) fn answer_first_ping(&mut self) {
        while self.pings == 0 {
            self.take_one();
        }
    }

    pub(crate) fn start_management(
        &mut self,
        function: TaskManagementFunction,
        lun: u16,
        referenced: Option<InitiatorTaskTag>,
    ) -> InitiatorTaskTag {
        self.send_management(function, lun, referenced, 0)
    }

    pub(crate) fn send_management(
        &mut self,
        function: TaskManagementFunction,
        lun: u16,
        referenced: Option<InitiatorTaskTag>,
        exp_data_sn: u32,
    ) -> InitiatorTaskTag {
        let itt = self.next_itt();
        let request = TaskManagementRequest {
            immediate: true,
            function,
            lun: LunField(Lun::new(lun).unwrap().encode()),
            itt,
            referenced_task_tag: referenced.unwrap_or(InitiatorTaskTag::RESERVED),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: SerialNumber(0),
            ref_cmd_sn: SerialNumber(1),
            exp_data_sn,
        };
        self.send(request.emit(), &[]);
        itt
    }

    pub(crate) fn finish_management(&mut self, itt: InitiatorTaskTag) -> TaskManagementResponseCode {
        loop {
            if let Some(response) = self.managed.remove(&itt) {
                return response;
            }
            self.take_one();
        }
    }

    /// A function that concerns a task of the store: its answer comes when the store is done with it, and not before.
    pub(crate) fn manage_held(&mut self, function: TaskManagementFunction, task: InitiatorTaskTag, store: &Delay) {
        let request = self.start_management(function, 0, Some(task));
        self.round_trip();
        self.round_trip();
        assert!(!self.has_answer(request), "the store still works on the task");
        store.release();
        assert_eq!(self.finish_management(request), TaskManagementResponseCode::FUNCTION_COMPLETE);
    }

    pub(crate) fn send_logout(&mut self) {
        self.send_logout_of(LogoutReason::CLOSE_SESSION, 0);
    }

    /// Asks for the end of a connection of the session, or of all.
    pub(crate) fn send_logout_of(&mut self, reason: LogoutReason, cid: u16) {
        self.send_logout_after(reason, Cid(cid), SerialNumber(0));
    }

    pub(super) fn send_logout_after(&mut self, reason: LogoutReason, cid: Cid, exp_stat_sn: SerialNumber) {
        let request =
            LogoutRequest { immediate: true, reason, itt: self.next_itt(), cid, cmd_sn: self.cmd_sn, exp_stat_sn };
        self.send(request.emit(), &[]);
    }

    pub(crate) fn logout_response(&mut self) -> LogoutResponseCode {
        let (pdu, _) = self.receive().unwrap();
        let TargetPdu::LogoutResponse(response) = pdu else { panic!("{pdu:?} answers a logout") };
        response.response
    }

    /// Waits until the target asks for a logout.
    pub(crate) fn wait_for_logout_request(&mut self) {
        while !self.logout_requested {
            self.take_one();
        }
    }
}
