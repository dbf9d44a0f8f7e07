//! Pings, news, and the end of a connection.

use lunette_buffer::Payload;
use lunette_pdu::{
    AsyncEvent, AsyncMessage, Cid, InitiatorTaskTag, LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode,
    NopOut, RejectReason, TargetTransferTag,
};

use super::FullFeature;
use super::logout::Step;
use super::numbering::{Turn, Waiting};
use crate::iscsi_target::expect::Expect;
use crate::iscsi_target::turn_context::TurnContext;
use crate::iscsi_target::violation::Violation;
use crate::keys::Parameters;

impl FullFeature {
    pub(super) fn nop_out(&mut self, nop: NopOut, cx: &mut TurnContext<'_>) -> Result<Expect, Violation> {
        // Without a task tag it answers our ping, or only carries numbers; nothing goes back (RFC 7143 section 11.18).
        if nop.itt.is_reserved() && nop.ttt.is_reserved() {
            self.termination_acknowledged(&nop);
        }
        let waits = self.recovers() && nop.data_segment_len > 0;
        let expect = if nop.itt.is_reserved() && !waits { Expect::Nothing } else { Expect::Ping(nop) };
        self.numbered(nop.immediate, nop.cmd_sn, expect, cx)
    }

    pub(super) fn echo(&self, nop: &NopOut, mut data: Vec<u8>, cx: &mut TurnContext<'_>) {
        if nop.itt.is_reserved() {
            return;
        }
        data.truncate(self.parameters.send_data_segment_len as usize);
        let stat_sn = cx.sender.next_stat_sn();
        let pdu = cx.nop_in(nop.itt, TargetTransferTag::RESERVED, stat_sn, data.len());
        cx.sender.push_numbered(pdu, Payload::from(data));
    }

    /// Asks the initiator whether it is there. The next StatSN is reported, not used up (RFC 7143 section 11.19).
    pub(crate) fn ping(&mut self, cx: &mut TurnContext<'_>) {
        self.last_ping = (self.last_ping + 1) & 0x7fff_ffff;
        let stat_sn = cx.sender.stat_sn();
        let ttt = TargetTransferTag(self.last_ping);
        let pdu = cx.nop_in(InitiatorTaskTag::RESERVED, ttt, stat_sn, 0);
        cx.sender.outbox.push(pdu, Payload::Empty);
    }

    pub(super) fn logout_request(
        &mut self,
        request: &LogoutRequest,
        cx: &mut TurnContext<'_>,
    ) -> Result<Expect, Violation> {
        match self.numbering.arrive(request.immediate, request.cmd_sn, cx)? {
            Turn::Now if is_known(request.reason) => self.log_out(request, cx),
            Turn::Later if is_known(request.reason) => {
                self.numbering.hold(request.cmd_sn, Waiting::Logout(*request), cx);
            }
            Turn::Never => {}
            _ => return Err(Violation::fatal(RejectReason::INVALID_PDU_FIELD, "unknown logout reason")),
        }
        Ok(Expect::Nothing)
    }

    pub(super) fn log_out(&mut self, request: &LogoutRequest, cx: &mut TurnContext<'_>) {
        match self.logout.begin(request, &self.session, self.cid) {
            Step::Answer(response) => self.answer_logout(request, response, cx),
            Step::Ask(signal) => cx.events.push_back(signal),
        }
    }

    /// The driver has ended the connection that a logout names, or knows of none.
    pub(crate) fn logout_done(&mut self, response: LogoutResponseCode, cx: &mut TurnContext<'_>) {
        if let Some(request) = self.logout.done(response, self.cid) {
            self.answer_logout(&request, response, cx);
        }
    }

    fn answer_logout(&self, request: &LogoutRequest, response: LogoutResponseCode, cx: &mut TurnContext<'_>) {
        let (exp_cmd_sn, max_cmd_sn) = cx.window.numbers();
        // RFC 7143 sections 11.15.3 and 11.15.4. At recovery level 2 a connection that was closed has no tasks left to
        // wait for.
        let is_discarded = self.session.recovers_connections()
            && response == LogoutResponseCode::CLOSED
            && request.reason != LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY;
        let Parameters { time2wait_s, time2retain_s, .. } = &self.parameters;
        let (time2wait_s, time2retain_s) = if is_discarded { (&0, &0) } else { (time2wait_s, time2retain_s) };
        let pdu = LogoutResponse {
            response,
            itt: request.itt,
            stat_sn: cx.sender.next_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
            time2wait: *time2wait_s as u16,
            time2retain: *time2retain_s as u16,
        };
        cx.sender.push_numbered(pdu.emit(), Payload::Empty);
    }

    /// RFC 7143 section 11.9.1, event 3: the session ends; Parameter2 and Parameter3 say when it may come again.
    pub(crate) fn drop_session(&self, cx: &mut TurnContext<'_>) {
        let message = AsyncMessage {
            event: AsyncEvent::SESSION_DROP,
            parameter2: self.parameters.time2wait_s as u16,
            parameter3: self.parameters.time2retain_s as u16,
            ..cx.news()
        };
        cx.sender.push_numbered(message.emit(), Payload::Empty);
    }

    /// RFC 7143 section 11.9.1, event 2: a connection of the session is lost; Parameter2 and Parameter3 say when its
    /// tasks may be taken over.
    pub(crate) fn announce_loss(&self, cid: Cid, cx: &mut TurnContext<'_>) {
        let message = AsyncMessage {
            event: AsyncEvent::CONNECTION_DROP,
            parameter1: cid.0,
            parameter2: self.parameters.time2wait_s as u16,
            parameter3: self.parameters.time2retain_s as u16,
            ..cx.news()
        };
        cx.sender.push_numbered(message.emit(), Payload::Empty);
    }
}

fn is_known(reason: LogoutReason) -> bool {
    matches!(
        reason,
        LogoutReason::CLOSE_SESSION | LogoutReason::CLOSE_CONNECTION | LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY
    )
}
