//! Immediate requests that are not answered, from recovery level 1 on.
//!
//! One whose header came damaged is lost without a trace: it has no number that the target could wait for. When a ping
//! that went after it is answered and no response is missing, it is sent again with its old tag. The target may have
//! had it all the same and work on it; so it may be answered twice. One that is asked for again and again without any
//! answer is the end of the connection, as it may never come. A target that works on it for long may say so: Task in
//! progress.

use lunette_pdu::RejectReason;

use super::FullFeature;
use crate::Time;
use crate::iscsi_initiator::attempts::Attempts;
use crate::iscsi_initiator::error::SessionError;
use crate::iscsi_initiator::event::TaskTag;
use crate::iscsi_initiator::request::Request;
use crate::iscsi_initiator::turn_context::TurnContext;

const WHAT: &str = "an answer";

impl FullFeature {
    /// Sends requests again that were not answered in time.
    pub(super) fn repeat_unanswered(&mut self, heard: Time, context: &mut TurnContext<'_>) -> Result<(), SessionError> {
        let (cid, now, patience) = (self.cid, context.now, context.shared.config.timers.resend);
        let requests = context.shared.requests.iter().filter(|(_, underway)| underway.cid == cid);
        let overdue = requests.filter(|(_, underway)| underway.answer_due(patience).is_some_and(|due| due <= now));
        let overdue: Vec<TaskTag> = overdue.map(|(tag, _)| tag).collect();
        for tag in overdue {
            self.unanswered(tag, heard, context)?;
        }
        Ok(())
    }

    fn unanswered(&mut self, tag: TaskTag, heard: Time, context: &mut TurnContext<'_>) -> Result<(), SessionError> {
        let seems_lost = self.seems_lost(tag, heard, context);
        let (is_probed, now) = (self.keepalive.is_some(), context.now);
        let Some(underway) = context.request(tag) else { return Ok(()) };
        let Some(sent) = &mut underway.sent else { return Ok(()) };
        let attempts = sent.attempts.get_or_insert(Attempts::begin(now));
        if !seems_lost || sent.is_known {
            sent.probed = is_probed;
            attempts.later(now);
            return Ok(());
        }
        attempts.after_silence(WHAT, now)?;
        sent.probed = false;
        context.shared.repeat(tag);
        self.resend_request(tag, context);
        Ok(())
    }

    /// Whether a request that was not answered in time has not come to the target, as far as that can be known. Pings,
    /// when there is none under way to know it by.
    fn seems_lost(&mut self, tag: TaskTag, heard: Time, context: &mut TurnContext<'_>) -> bool {
        if !context.sender.outbox.is_empty() || !self.recovery().statuses.is_empty() {
            return false;
        }
        let Some(underway) = context.request(tag) else { return false };
        let Some(sent) = &underway.sent else { return false };
        match underway.request {
            // Nothing may follow it, and it has its own patience with silence.
            Request::Logout { .. } => return true,
            Request::Keepalive => return sent.attempts.is_some_and(|attempts| attempts.was_before(heard)),
            _ => {}
        }
        let was_probed = sent.probed;
        if !was_probed {
            self.keep_alive(context);
        }
        was_probed && self.keepalive.is_none()
    }

    /// Whether a Reject is for one of two: the request has an answer already, or the target works on it.
    pub(super) fn refused_twin(tag: TaskTag, reason: RejectReason, context: &mut TurnContext<'_>) -> bool {
        if reason == RejectReason::TASK_IN_PROGRESS
            && let Some(sent) = context.request(tag).and_then(|underway| underway.sent.as_mut())
        {
            sent.is_known = true;
        }
        let busy = [RejectReason::TASK_IN_PROGRESS, RejectReason::TOO_MANY_IMMEDIATE_COMMANDS].contains(&reason);
        context.shared.is_repeated(tag) && (busy || context.request(tag).is_none())
    }
}
