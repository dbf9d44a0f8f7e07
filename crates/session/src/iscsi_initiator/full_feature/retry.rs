//! Requests that did not reach the target undamaged: they are sent again with their old numbers and tags (RFC 7143
//! sections 7.1.4.2, 7.2.1 and 7.3).
//!
//! The target waits for the number of a request that it has discarded, and takes it from the retry. One that it has
//! already is ignored. Commands follow each retry soon enough to keep to the rule of section 4.2.2.1 on wraps.

use lunette_buffer::Payload;
use lunette_pdu::{Bhs, InitiatorPdu, Opcode, RejectReason, SerialNumber};

use super::FullFeature;
use crate::iscsi_initiator::error::SessionError;
use crate::iscsi_initiator::event::TaskTag;
use crate::iscsi_initiator::request::{Request, Underway};
use crate::iscsi_initiator::turn_context::TurnContext;
use crate::limits::MAX_DAMAGED_RESENDS;

/// Where ExpStatSN stands in every request.
const EXP_STAT_SN: std::ops::Range<usize> = 28..32;

impl FullFeature {
    /// Does what a Reject asks for at a recovery level above 0. `None` when that is the same as at level 0.
    pub(super) fn recover_rejected(
        &mut self,
        refused: &Bhs,
        reason: RejectReason,
        context: &mut TurnContext<'_>,
    ) -> Option<Result<(), SessionError>> {
        match InitiatorPdu::parse(refused) {
            Ok(InitiatorPdu::SnackRequest(snack)) => Some(self.snack_rejected(&snack, context)),
            // RFC 7143 section 7.3: the target asks for it again, or it ends the task.
            Ok(InitiatorPdu::DataOut(_)) => Some(Ok(())),
            _ if reason == RejectReason::DATA_DIGEST_ERROR => Some(self.came_damaged(refused, context)),
            _ => None,
        }
    }

    /// The target has discarded one of our requests because its data was damaged.
    fn came_damaged(&mut self, refused: &Bhs, context: &mut TurnContext<'_>) -> Result<(), SessionError> {
        let tag = TaskTag::from_itt(refused.itt());
        if refused.opcode() != Opcode::SCSI_COMMAND {
            if let Some(sent) = context.request(tag).and_then(|underway| underway.sent.as_mut()) {
                count(&mut sent.retries)?;
            }
            self.resend_request(tag, context);
            return Ok(());
        }
        let Some(task) = context.task(tag) else { return Ok(()) };
        count(&mut task.retries)?;
        let cmd_sn = task.cmd_sn;
        if !context.shared.window.is_acknowledged(cmd_sn) {
            self.retry_command(tag, context);
        }
        Ok(())
    }

    /// Sends the request again that has this number, as the target waits for it. False when it is none of this
    /// connection.
    pub(in crate::iscsi_initiator) fn retry(&self, cmd_sn: SerialNumber, context: &mut TurnContext<'_>) -> bool {
        let task = context.shared.tasks.iter().find(|(_, task)| task.cmd_sn == cmd_sn && task.cid == self.cid);
        if let Some((tag, _)) = task {
            self.retry_command(tag, context);
            return true;
        }
        let is_it = |underway: &Underway| underway.cmd_sn == Some(cmd_sn) && underway.cid == self.cid;
        let request = context.shared.requests.iter().find(|(_, underway)| is_it(underway)).map(|(tag, _)| tag);
        let Some(tag) = request else { return false };
        self.resend_request(tag, context);
        true
    }

    /// With its immediate and its unsolicited data.
    fn retry_command(&self, tag: TaskTag, context: &mut TurnContext<'_>) {
        context.sender.forget(tag);
        if let Some(task) = context.task(tag) {
            task.is_retried = true;
        }
        self.send_again(tag, context);
    }

    pub(super) fn resend_request(&self, tag: TaskTag, context: &mut TurnContext<'_>) {
        let exp_stat_sn = context.sender.exp_stat_sn();
        let Some(Underway { sent: Some(sent), request, .. }) = context.request(tag) else { return };
        // RFC 7143 section 11.14.4: the logout of a lost connection has that of the lost one.
        if !matches!(request, Request::LogOutLost { .. }) {
            sent.header[EXP_STAT_SN].copy_from_slice(&exp_stat_sn.0.to_be_bytes());
        }
        if matches!(request, Request::Ping { .. }) {
            // The target may take less than it did when the ping was sent.
            sent.shorten(self.ping_limit());
        }
        let (header, segment) = (sent.header, Payload::from(sent.segment.clone()));
        context.sender.outbox.push(header, segment);
        context.shared.recoveries.retries += 1;
    }
}

/// A peer may be wrong about digests: that ends somewhere.
fn count(retries: &mut u32) -> Result<(), SessionError> {
    *retries += 1;
    if *retries > MAX_DAMAGED_RESENDS { Err(SessionError::Unrecovered("an acknowledgement")) } else { Ok(()) }
}
