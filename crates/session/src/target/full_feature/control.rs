//! Pings, text, and the end of a connection.

use std::time::Duration;

use lunette_pdu::{
    AsyncEvent, AsyncMessage, InitiatorTaskTag, LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode,
    LunField, NopIn, NopOut, RejectReason, SerialNumber, TargetTransferTag, TextRequest, TextResponse,
};

use super::FullFeature;
use crate::outbox::Segment;
use crate::target::connection::{Expect, Sender, Violation};
use crate::target::text::{Asker, Part};

/// The transfer tag of text exchanges. A connection has one exchange at a time, so one tag is enough.
const TEXT_TAG: TargetTransferTag = TargetTransferTag(0x0007_e870);

impl FullFeature {
    pub(super) fn nop_out(&self, nop: NopOut) -> Result<Expect, Violation> {
        // Without a task tag it answers our ping, or only carries numbers; nothing goes back (RFC 7143 section 11.18).
        let expect = if nop.itt.is_reserved() { Expect::Nothing } else { Expect::Ping(nop) };
        self.numbered(nop.immediate, nop.cmd_sn, expect)
    }

    pub(super) fn echo(&self, nop: &NopOut, mut data: Vec<u8>, sender: &mut Sender) {
        data.truncate(self.parameters.send_data_segment_len as usize);
        let stat_sn = sender.next_stat_sn();
        self.nop_in(nop.itt, TargetTransferTag::RESERVED, stat_sn, data, sender);
    }

    /// Asks the initiator whether it is there. The next StatSN is reported, not used up (RFC 7143 section 11.19).
    pub(crate) fn ping(&mut self, sender: &mut Sender) {
        self.last_ping = (self.last_ping + 1) & 0x7fff_ffff;
        let stat_sn = sender.stat_sn();
        let ttt = TargetTransferTag(self.last_ping);
        self.nop_in(InitiatorTaskTag::RESERVED, ttt, stat_sn, Vec::new(), sender);
    }

    pub(super) fn nop_in(
        &self,
        itt: InitiatorTaskTag,
        ttt: TargetTransferTag,
        stat_sn: SerialNumber,
        data: Vec<u8>,
        sender: &mut Sender,
    ) {
        let (exp_cmd_sn, max_cmd_sn) = self.session.command_numbers();
        let data_segment_len = data.len();
        let pdu = NopIn { lun: LunField([0; 8]), itt, ttt, stat_sn, exp_cmd_sn, max_cmd_sn, data_segment_len };
        sender.outbox.push(pdu.emit(), Segment::owned(data));
    }

    pub(super) fn text_request(
        &mut self,
        request: &TextRequest,
        data: &[u8],
        sender: &mut Sender,
    ) -> Result<(), Violation> {
        let asker = Asker { directory: &self.directory, session: &self.session, local: self.local };
        let Part { text, continue_, final_ } = self
            .text
            .request(request, data, &asker, &mut self.parameters)
            .map_err(|error| Violation::harmless(RejectReason::PROTOCOL_ERROR, error.to_string()))?;
        let (exp_cmd_sn, max_cmd_sn) = self.session.command_numbers();
        let pdu = TextResponse {
            final_,
            continue_,
            lun: request.lun,
            itt: request.itt,
            ttt: if final_ { TargetTransferTag::RESERVED } else { TEXT_TAG },
            stat_sn: sender.next_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
            data_segment_len: text.len(),
        };
        sender.outbox.push(pdu.emit(), Segment::owned(text));
        Ok(())
    }

    pub(super) fn logout(&mut self, request: &LogoutRequest, sender: &mut Sender) -> Result<Expect, Violation> {
        if !self.arrive(request.immediate, request.cmd_sn)? {
            return Ok(Expect::Nothing);
        }
        let response = match request.reason {
            LogoutReason::CLOSE_SESSION => LogoutResponseCode::CLOSED,
            LogoutReason::CLOSE_CONNECTION if request.cid == self.cid => LogoutResponseCode::CLOSED,
            LogoutReason::CLOSE_CONNECTION => LogoutResponseCode::CID_NOT_FOUND,
            LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY => LogoutResponseCode::RECOVERY_NOT_SUPPORTED,
            _ => return Err(Violation::fatal(RejectReason::INVALID_PDU_FIELD, "unknown logout reason")),
        };
        let (exp_cmd_sn, max_cmd_sn) = self.session.command_numbers();
        let pdu = LogoutResponse {
            response,
            itt: request.itt,
            stat_sn: sender.next_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
            time2wait: self.parameters.time2wait_s as u16,
            time2retain: self.parameters.time2retain_s as u16,
        };
        sender.outbox.push(pdu.emit(), Segment::Empty);
        self.logged_out = response == LogoutResponseCode::CLOSED;
        Ok(Expect::Nothing)
    }

    /// RFC 7143 section 11.9.1, event 1: the target asks for a logout; Parameter3 is the time that it gives, in seconds.
    pub(crate) fn request_logout(&mut self, grace: Duration, sender: &mut Sender) {
        let message = AsyncMessage {
            event: AsyncEvent::LOGOUT_REQUEST,
            parameter3: u16::try_from(grace.as_secs()).unwrap_or(u16::MAX),
            ..self.news(sender)
        };
        sender.outbox.push(message.emit(), Segment::Empty);
    }

    /// RFC 7143 sections 11.9.1, event 0, and 11.9.4: sense data with its length in front.
    pub(crate) fn scsi_event(&self, lun: LunField, sense: &[u8], sender: &mut Sender) {
        let sense_len = u16::try_from(sense.len()).unwrap_or(u16::MAX);
        let sense = &sense[..usize::from(sense_len)];
        let data = [&sense_len.to_be_bytes()[..], sense].concat();
        let message = AsyncMessage { lun, data_segment_len: data.len(), ..self.news(sender) };
        sender.outbox.push(message.emit(), Segment::owned(data));
    }

    /// A message with the numbers filled in.
    fn news(&self, sender: &mut Sender) -> AsyncMessage {
        let (exp_cmd_sn, max_cmd_sn) = self.session.command_numbers();
        AsyncMessage {
            lun: LunField([0; 8]),
            stat_sn: sender.next_stat_sn(),
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
}
