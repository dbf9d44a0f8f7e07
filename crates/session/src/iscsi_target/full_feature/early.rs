//! Requests that came before their turn, and how they are dealt with when it comes (RFC 7143 section 4.2.2.1).

use super::FullFeature;
use super::numbering::{Due, Waiting};
use crate::Time;
use crate::iscsi_target::event::{Command, Signal};
use crate::iscsi_target::turn_context::TurnContext;

impl FullFeature {
    /// Whether anything waits for its turn.
    pub(crate) fn has_early(&self) -> bool {
        self.numbering.has_early()
    }

    /// Deals with one request that waits and is due. False when none is.
    pub(crate) fn deliver(&mut self, cx: &mut TurnContext<'_>, now: Time) -> bool {
        // Nothing follows a logout, and one at a time is answered.
        if self.logout.is_begun() {
            return false;
        }
        let Some(Due { request, waited, waiters }) = self.numbering.take_due(cx, now) else { return false };
        match request {
            Waiting::Command(command) => {
                self.numbering.task_started(cx);
                cx.events.push_back(Signal::Command(Command { window_wait: waited, ..command }));
            }
            Waiting::TaskManagement(request) => self.manage_tasks(&request, cx),
            Waiting::Logout(request) => self.log_out(&request, cx),
            Waiting::Ping(nop, data) => self.echo(&nop, data, cx),
            Waiting::Text(request, data) => {
                if let Err(violation) = self.text_request(&request, &data, cx)
                    && let Some(reason) = violation.reject
                {
                    cx.reject(reason, violation.data_sn, request.emit());
                }
            }
            Waiting::Stream => {}
        }
        self.numbering.resume(waiters, cx);
        true
    }

    /// Discards what waits for its turn.
    pub(super) fn discard_early(&mut self, cx: &mut TurnContext<'_>) {
        for tag in self.numbering.discard(cx) {
            self.tasks.remove(tag);
        }
    }
}
