//! The state outside a full feature phase that one turn of it works on, and the messages that need no more.

use std::collections::VecDeque;
use std::time::Duration;

use lunette_buffer::Payload;
use lunette_pdu::{
    AsyncEvent, AsyncMessage, BHS_LEN, InitiatorTaskTag, LunField, NopIn, Reject, RejectReason, SerialNumber,
    TargetTransferTag,
};

use super::event::Signal;
use super::tasks::window::CommandWindow;
use super::transport::answer::Answer;
use super::transport::sender::Sender;

/// The state on which the full feature phase of a connection works for one turn, beside its own.
pub(crate) struct TurnContext<'a> {
    /// The window of the session.
    pub(crate) window: &'a mut CommandWindow,
    pub(crate) sender: &'a mut Sender,
    pub(crate) events: &'a mut VecDeque<Signal>,
}

impl TurnContext<'_> {
    /// Queues everything that answers a command.
    pub(super) fn push_answer(&mut self, answer: Answer) {
        self.sender.push_answer(answer, self.window.numbers());
    }

    /// Refuses a PDU, whose `header` goes back (RFC 7143 section 11.17).
    pub(crate) fn reject(&mut self, reason: RejectReason, data_sn: u32, header: [u8; BHS_LEN]) {
        let (exp_cmd_sn, max_cmd_sn) = self.window.numbers();
        let stat_sn = self.sender.next_stat_sn();
        let data_segment_len = BHS_LEN;
        let reject = Reject { reason, stat_sn, exp_cmd_sn, max_cmd_sn, data_sn, data_segment_len };
        self.sender.push_numbered(reject.emit(), Payload::from(header.to_vec()));
    }

    /// RFC 7143 section 11.9.1, event 1: the target asks for a logout; Parameter3 is the time that it gives, in
    /// seconds.
    pub(crate) fn request_logout(&mut self, grace: Duration) {
        let message = AsyncMessage {
            event: AsyncEvent::LOGOUT_REQUEST,
            parameter3: u16::try_from(grace.as_secs()).unwrap_or(u16::MAX),
            ..self.news()
        };
        self.sender.push_numbered(message.emit(), Payload::Empty);
    }

    /// RFC 7143 sections 11.9.1, event 0, and 11.9.4: sense data with its length in front.
    pub(crate) fn scsi_event(&mut self, lun: LunField, sense: &[u8]) {
        let sense_len = u16::try_from(sense.len()).unwrap_or(u16::MAX);
        let sense = &sense[..usize::from(sense_len)];
        let data = [&sense_len.to_be_bytes()[..], sense].concat();
        let message = AsyncMessage { lun, data_segment_len: data.len(), ..self.news() };
        self.sender.push_numbered(message.emit(), Payload::from(data));
    }

    /// A NOP-In with the numbers filled in.
    pub(super) fn nop_in(
        &mut self,
        itt: InitiatorTaskTag,
        ttt: TargetTransferTag,
        stat_sn: SerialNumber,
        data_segment_len: usize,
    ) -> [u8; BHS_LEN] {
        let (exp_cmd_sn, max_cmd_sn) = self.window.numbers();
        NopIn { lun: LunField([0; 8]), itt, ttt, stat_sn, exp_cmd_sn, max_cmd_sn, data_segment_len }.emit()
    }

    /// A message with the numbers filled in.
    pub(super) fn news(&mut self) -> AsyncMessage {
        let (exp_cmd_sn, max_cmd_sn) = self.window.numbers();
        AsyncMessage {
            lun: LunField([0; 8]),
            stat_sn: self.sender.next_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
            event: AsyncEvent::SCSI_EVENT,
            vcode: 0,
            parameter1: 0,
            parameter2: 0,
            parameter3: 0,
            data_segment_len: 0,
        }
    }

    /// Lets the initiator know how far the command window is open: a NOP-In without tags (RFC 7143 section 11.19).
    pub(crate) fn announce_window(&mut self) {
        let reserved = TargetTransferTag::RESERVED;
        let pdu = self.nop_in(InitiatorTaskTag::RESERVED, reserved, self.sender.stat_sn(), 0);
        self.sender.outbox.push(pdu, Payload::Empty);
    }
}
