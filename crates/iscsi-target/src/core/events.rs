//! The effects of the events of connections.

use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::{CloseReason, Event, LoginEvent};

use super::Core;
use super::connections::Next;
use super::watchdog::MAX_EVENTS;

/// The result of [`Core::pump`].
pub(super) struct Pumped {
    /// Bytes that are left for later, for answers are to leave first.
    pub(super) left: usize,
    /// Whether events came.
    pub(super) moved: bool,
}

impl Core {
    /// Lets the connection's state machine go on: over `bytes`, and over what it held back.
    pub(super) fn pump(&mut self, cx: &mut Context<'_>, id: ConnectionId, mut bytes: &[u8]) -> Pumped {
        let now = self.time(cx);
        self.tasks.stopwatch().begin(cx.now());
        let mut events = 0;
        let answers_first = loop {
            if !bytes.is_empty() && self.tasks.are_unordered() {
                events += self.connections.answer_at_once(id, &mut bytes, now, &self.buffers, self.tasks.stopwatch());
            }
            match self.connections.next_event(id, &mut bytes, now) {
                Next::Login(event) => self.handle_login(cx, id, event),
                Next::Session(event) => self.handle(cx, id, event),
                Next::Nothing => break false,
                Next::AnswersFirst => break true,
            }
            events += 1;
            if events > MAX_EVENTS {
                self.end_runaway(cx, id);
            }
        };
        let left = self.connections.end_events(cx, id, bytes, answers_first, &self.counts.traffic, &self.buffers);
        Pumped { left, moved: events > 0 }
    }

    fn handle_login(&mut self, cx: &mut Context<'_>, id: ConnectionId, event: LoginEvent) {
        match event {
            LoginEvent::Admit(request) => self.admit(cx, id, request),
            LoginEvent::Close(reason) => self.close(cx, id, &reason),
        }
    }

    fn handle(&mut self, cx: &mut Context<'_>, id: ConnectionId, event: Event<ConnectionId>) {
        match event {
            Event::Command(command) => self.start_task(id, &command),
            Event::DataOut { task, buffer } => self.data_arrived(id, task, buffer),
            Event::Aborted(task) => self.forget_task(id, task),
            Event::TaskManagement(ticket) => self.manage_tasks(self.time(cx), id, ticket),
            Event::Moved { from, old, new } => self.task_moved(id, from, old, new),
            Event::DataDamaged => self.doubt_digests(id),
            Event::TargetReset => self.reset_target(id),
            Event::Logout { ticket, connection } => self.log_out(cx, id, connection, ticket),
            Event::Suspended(reason) => self.suspended(cx, id, &reason),
            Event::Detached => self.detached(cx, id),
            Event::Gone => self.close_now(cx, id),
            Event::Close(reason) => self.close(cx, id, &reason),
        }
    }

    /// The connection is over: its answers still go out, its tasks end.
    fn close(&mut self, cx: &mut Context<'_>, id: ConnectionId, reason: &CloseReason) {
        let Some(conn) = self.connections.of_event(id) else { return };
        conn.log_close(reason);
        if conn.login.is_some() {
            // Its target is a word of the initiator's still.
            let is_refused = matches!(reason, CloseReason::LoginRefused(_));
            self.logins.count("", |logins| *if is_refused { &mut logins.refused } else { &mut logins.failed } += 1);
        }
        // After the time for a logout a stop waits no longer for what the connection was sent to be read.
        let logged_out = matches!(reason, CloseReason::Logout | CloseReason::ConnectionLogout);
        if !logged_out {
            self.doubt_digests(id);
        }
        let is_overdue = *reason == CloseReason::LogoutTimeout && self.lifecycle.is_stopping();
        if self.connections.is_parked(id) || is_overdue {
            return self.close_now(cx, id);
        }
        self.end_session_part(id);
        cx.close_after_send(id);
    }

    /// The initiator may have ended the connection, or asks again, because it has found a digest wrong that the device
    /// has told. (At recovery level 0 it says no more than that.)
    pub(super) fn doubt_digests(&self, id: ConnectionId) {
        if let Some(conn) = self.connections.get(id)
            && let (Some(device), Some(_)) = (&conn.device, &conn.nexus)
        {
            device.doubt_digests();
        }
    }

    /// Ends what a connection has in this process beside its socket.
    fn end_session_part(&mut self, id: ConnectionId) {
        if let Some(key) = self.connections.get(id).and_then(|conn| conn.key) {
            self.connections.leave(key, id);
        }
        self.terminate_tasks(id, None);
        self.observe(id, false);
        let Some(conn) = self.connections.get_mut(id) else { return };
        conn.nexus = None;
        conn.session = None;
        self.due_resets.extend(conn.target_reset.take());
    }

    /// Closes a connection at once, with what it still has to send: another one takes its place, or the target is
    /// reset.
    pub(super) fn close_now(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        self.doubt_digests(id);
        self.end_session_part(id);
        self.connections.remove(id);
        cx.close(id);
    }
}
