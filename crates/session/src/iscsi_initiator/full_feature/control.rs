//! Pings, news, and the end of a connection.

use lunette_pdu::{
    AsyncEvent, AsyncMessage, BHS_LEN, Bhs, InitiatorTaskTag, LogoutReason, LogoutRequest, LogoutResponse,
    LogoutResponseCode, LunField, NopIn, NopOut, Reject, RejectReason, TargetTransferTag, TaskManagementResponseCode,
};

use super::FullFeature;
use super::task_management::request_ended;
use crate::iscsi_initiator::error::{SessionError, broken};
use crate::iscsi_initiator::event::{Event, TaskTag};
use crate::iscsi_initiator::lost::Answer;
use crate::iscsi_initiator::request::Request;
use crate::iscsi_initiator::task::Task;
use crate::iscsi_initiator::turn_context::TurnContext;
use crate::limits::MAX_UNREAD_PDUS;

impl FullFeature {
    /// Sends a ping for the driver. False when it cannot be sent, or when its echo would not fit a PDU.
    pub(in crate::iscsi_initiator) fn ping(&mut self, user: u64, data: Vec<u8>, context: &mut TurnContext<'_>) -> bool {
        if data.len() > self.ping_limit() || !context.shared.takes_requests() {
            return false;
        }
        let Some(tag) = context.add_request(Request::Ping { user, data: data.clone() }) else { return false };
        nop_out(tag.itt(), TargetTransferTag::RESERVED, LunField::default(), data, context);
        true
    }

    /// Bytes of a ping that this connection can carry there and back.
    pub(super) fn ping_limit(&self) -> usize {
        self.parameters.send_data_segment_len.min(self.parameters.recv_data_segment_len) as usize
    }

    /// Asks whether the target is there. A ping that is under way will do.
    pub(in crate::iscsi_initiator) fn keep_alive(&mut self, context: &mut TurnContext<'_>) {
        if self.keepalive.is_some() || self.logging_out || context.shared.logging_out {
            return;
        }
        let Some(tag) = context.add_request(Request::Keepalive) else { return };
        self.keepalive = Some(tag);
        nop_out(tag.itt(), TargetTransferTag::RESERVED, LunField::default(), Vec::new(), context);
    }

    pub(super) fn nop_in(
        &mut self,
        pdu: &NopIn,
        segment: &[u8],
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        if pdu.itt.is_reserved() {
            return self.pinged(pdu, context);
        }
        context.status(pdu.stat_sn, pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
        let tag = TaskTag::from_itt(pdu.itt);
        let is_kind =
            |request: &Request| matches!(request, Request::Ping { .. } | Request::Keepalive | Request::Filler);
        match context.take_request(tag, "NOP-In", is_kind)? {
            Some(Request::Ping { user, data }) => {
                // It may have been sent again with less.
                let whole = segment.len() >= data.len().min(self.ping_limit());
                context.events.push_back(Event::Pong { user, intact: whole && data.starts_with(segment) });
            }
            Some(Request::Keepalive) => self.keepalive = None,
            _ => {}
        }
        Ok(())
    }

    /// The target's own ping, or one that only carries numbers (RFC 7143 section 11.19).
    fn pinged(&mut self, pdu: &NopIn, context: &mut TurnContext<'_>) -> Result<(), SessionError> {
        self.status_reported(pdu.stat_sn, context)?;
        context.shared.window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
        if pdu.data_segment_len > 0 {
            return Err(broken("11.19.1", "a ping of the target that carries data"));
        }
        if pdu.ttt.is_reserved() || self.logging_out || context.shared.logging_out {
            return Ok(());
        }
        answers_are_read(context)?;
        nop_out(InitiatorTaskTag::RESERVED, pdu.ttt, pdu.lun, Vec::new(), context);
        Ok(())
    }

    pub(super) fn async_message(
        &mut self,
        pdu: &AsyncMessage,
        segment: &[u8],
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        context.status(pdu.stat_sn, pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
        match pdu.event {
            AsyncEvent::CONNECTION_DROP if pdu.parameter1 == self.cid.0 => self.drop_announced(pdu),
            AsyncEvent::SESSION_DROP => self.drop_announced(pdu),
            AsyncEvent::NEGOTIATION_REQUEST => self.negotiate(context),
            AsyncEvent::TASK_TERMINATION => {
                // Commands that the target had not received by then are not concerned, and those on other connections
                // are told of there.
                let (cid, lun) = (self.cid, pdu.lun);
                let ended =
                    |task: &Task| task.cid == cid && task.command.lun == lun && task.cmd_sn.is_before(pdu.exp_cmd_sn);
                let ended = context.shared.tasks_ended_by_others(ended);
                context.give_back(&ended);
                answers_are_read(context)?;
                // RFC 7143 section 11.9.1: the target waits for the acknowledgement, which names the logical unit.
                let reserved = (InitiatorTaskTag::RESERVED, TargetTransferTag::RESERVED);
                nop_out(reserved.0, reserved.1, pdu.lun, Vec::new(), context);
            }
            _ => {}
        }
        context.events.push_back(Event::Async { message: *pdu, data: segment.to_vec() });
        Ok(())
    }

    pub(in crate::iscsi_initiator) fn drop_announced(&mut self, pdu: &AsyncMessage) {
        self.dropping = true;
        self.announced = Some((pdu.parameter2.into(), pdu.parameter3.into()));
    }

    /// A PDU of ours that was refused. What does not touch a command goes on; a command is undecided then, and at
    /// recovery level 0 that ends the session (RFC 7143 section 7.3).
    pub(super) fn reject(
        &mut self,
        pdu: &Reject,
        segment: &[u8],
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        context.status(pdu.stat_sn, pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
        self.rejected(pdu, segment, context)
    }

    /// Deals with what a Reject says, whatever its number.
    pub(super) fn rejected(
        &mut self,
        pdu: &Reject,
        segment: &[u8],
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        let Some(refused) = segment.get(..BHS_LEN).and_then(Bhs::ref_from) else {
            return Err(broken("11.17", "a Reject without the header that it refuses"));
        };
        if self.recovers()
            && let Some(outcome) = self.recover_rejected(refused, pdu.reason, context)
        {
            return outcome;
        }
        let tag = TaskTag::from_itt(refused.itt());
        if Self::refused_twin(tag, pdu.reason, context) {
            return Ok(());
        }
        match context.request(tag).map(|underway| &underway.request) {
            Some(Request::TaskManagement { .. } | Request::Ping { .. } | Request::Keepalive) => {}
            Some(Request::Reassign { .. } | Request::LogOutLost { .. })
                if pdu.reason == RejectReason::TOO_MANY_IMMEDIATE_COMMANDS => {}
            _ => return Err(SessionError::Rejected { opcode: refused.opcode(), reason: pdu.reason }),
        }
        match context.shared.requests.remove(tag).map(|underway| underway.request) {
            Some(Request::TaskManagement { user, .. }) => {
                let response = TaskManagementResponseCode::FUNCTION_REJECTED;
                context.events.push_back(Event::TaskManagementDone { user, response, information: [0; 3] });
                request_ended(context);
            }
            Some(Request::Ping { user, .. }) => context.events.push_back(Event::Pong { user, intact: false }),
            Some(Request::Reassign { task, from }) => context.answered(Answer::TaskBusy { task, from }),
            Some(Request::LogOutLost { lost }) => context.answered(Answer::LogoutBusy { lost }),
            _ => self.keepalive = None,
        }
        Ok(())
    }

    /// Asks for the end of the session. False when it was asked for already.
    pub(in crate::iscsi_initiator) fn logout(&mut self, context: &mut TurnContext<'_>) -> bool {
        if self.logging_out || context.shared.logging_out {
            return false;
        }
        context.shared.logging_out = self.send_logout(LogoutReason::CLOSE_SESSION, context);
        context.shared.logging_out
    }

    /// Logs out of the connection when it is to leave and nothing is under way on it. True when the request is out.
    #[inline]
    pub(in crate::iscsi_initiator) fn log_out_if_idle(&mut self, context: &mut TurnContext<'_>) -> bool {
        self.leaving && self.leave_if_idle(context)
    }

    fn leave_if_idle(&mut self, context: &mut TurnContext<'_>) -> bool {
        let shared = &context.shared;
        if self.logging_out || shared.logging_out {
            return false;
        }
        let idle = shared.load(self.cid) == 0 && shared.requests.len() == 0 && shared.window.room() > 0;
        idle && self.send_logout(LogoutReason::CLOSE_CONNECTION, context)
    }

    /// The logout of a connection takes its turn among the commands: nothing that was sent over it is discarded as
    /// early.
    fn send_logout(&mut self, reason: LogoutReason, context: &mut TurnContext<'_>) -> bool {
        let immediate = reason == LogoutReason::CLOSE_SESSION;
        let Some(tag) = context.add_request(Request::Logout { session: immediate }) else { return false };
        self.logging_out = true;
        context.sender.stop_data();
        let pdu = LogoutRequest {
            immediate,
            reason,
            itt: tag.itt(),
            cid: self.cid,
            cmd_sn: if immediate { context.shared.window.cmd_sn() } else { context.take_number(tag) },
            exp_stat_sn: context.sender.exp_stat_sn(),
        };
        context.send_request(tag, pdu.emit(), Vec::new());
        true
    }
}

/// Refuses to let answers that the target demands pile up.
pub(super) fn answers_are_read(context: &TurnContext<'_>) -> Result<(), SessionError> {
    if context.sender.outbox.pdus() > MAX_UNREAD_PDUS {
        return Err(broken("11.19", "the target asks for answers and reads none"));
    }
    Ok(())
}

/// The end of the connection, unless it was a lost one that was logged out.
pub(super) fn logout_response(pdu: &LogoutResponse, context: &mut TurnContext<'_>) -> Result<(), SessionError> {
    context.status(pdu.stat_sn, pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
    let is_kind = |request: &Request| matches!(request, Request::Logout { .. } | Request::LogOutLost { .. });
    let tag = TaskTag::from_itt(pdu.itt);
    let Some(request) = context.take_request(tag, "Logout Response", is_kind)? else { return Ok(()) };
    if let Request::LogOutLost { lost } = request {
        context.answered(Answer::LoggedOut { lost, response: *pdu });
        return Ok(());
    }
    Err(match (pdu.response, request) {
        (LogoutResponseCode::CLOSED, Request::Logout { session: false }) => SessionError::ConnectionRemoved,
        (LogoutResponseCode::CLOSED, _) => SessionError::LoggedOut,
        (other, _) => broken("11.15.1", format!("a logout ends with: {other}")),
    })
}

fn nop_out(itt: InitiatorTaskTag, ttt: TargetTransferTag, lun: LunField, data: Vec<u8>, context: &mut TurnContext<'_>) {
    let pdu = NopOut {
        immediate: true,
        lun,
        itt,
        ttt,
        cmd_sn: context.shared.window.cmd_sn(),
        exp_stat_sn: context.sender.exp_stat_sn(),
        data_segment_len: data.len(),
    };
    context.send_request(TaskTag::from_itt(itt), pdu.emit(), data);
}
