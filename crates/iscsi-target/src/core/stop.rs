//! The stop of a core, step by step.

use lunette_reactor::{ConnectionId, Context};
use std::time::Instant;

use super::Core;
use super::lifecycle::StopStep;
use super::mesh::{CoreMessage, FIRST};
use crate::limits::{LOGOUT_GRACE, STOP_TIMEOUT};

/// The tag of flushes at the end. No slab key has this index.
pub(super) const STOP_FLUSH_TAG: u64 = u64::MAX;

impl Core {
    pub(super) fn begin_stop_if_asked(&mut self, cx: &mut Context<'_>) {
        if self.lifecycle.stop_is_due() && !self.stands_still() {
            tracing::info!(connections = self.mesh.connections(), "stopping");
            let deadline = cx.now() + STOP_TIMEOUT;
            self.mesh.send_to_others(|| CoreMessage::Stop { deadline });
            self.begin_stop(cx, deadline);
        }
    }

    /// Asks all initiators to log out.
    pub(super) fn begin_stop(&mut self, cx: &mut Context<'_>, deadline: Instant) {
        for id in self.connections.ids_where(|_| true) {
            self.request_logout(cx, id);
        }
        self.lifecycle.begin_stop(cx, deadline);
    }

    /// Asks the initiator to log out of the session of a connection. A login that has not ended does so at once.
    pub(super) fn request_logout(&mut self, cx: &Context<'_>, id: ConnectionId) {
        let now = self.time(cx);
        if let Some(login) = self.connections.get_mut(id).and_then(|conn| conn.login.as_mut()) {
            login.stop();
        } else {
            self.connections.in_session(id, |session| session.request_logout(LOGOUT_GRACE, now));
        }
        self.touch(id);
    }

    /// Goes on when nothing of a stage is left.
    pub(super) fn continue_stop(&mut self, cx: &mut Context<'_>) {
        loop {
            let is_idle = self.connections.len() == 0 && self.tasks.is_idle();
            let others = self.mesh.is_first().then(|| self.mesh.others().count());
            match self.lifecycle.next_stop_step(is_idle, others) {
                StopStep::Nothing => return,
                StopStep::TellFirst => self.mesh.send(FIRST, CoreMessage::Quiet),
                StopStep::Flush(stores) => {
                    for store in stores {
                        self.tasks.flush(&store, STOP_FLUSH_TAG);
                    }
                    self.take_completions();
                }
                StopStep::Leave => return cx.stop(),
            }
        }
    }

    pub(super) fn end_overdue_stop(&mut self, cx: &mut Context<'_>) {
        if self.lifecycle.end_overdue_stop(cx.now()) {
            cx.stop();
        }
    }
}
