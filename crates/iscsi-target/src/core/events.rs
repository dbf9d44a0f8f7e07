//! What the events of connections come to.

use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::{CloseReason, Event, LoginEvent, SessionInfo};

use super::Core;
use super::connections::Next;
use super::watchdog::MAX_EVENTS;

/// What [`Core::pump`] has done.
pub(super) struct Pumped {
    /// Bytes that are left for later, for answers are to leave first.
    pub(super) left: usize,
    /// There were events.
    pub(super) moved: bool,
}

impl Core {
    /// Lets the connection's state machine go on: over `bytes`, and over what it held back.
    pub(super) fn pump(&mut self, cx: &mut Context<'_>, id: ConnectionId, mut bytes: &[u8]) -> Pumped {
        let now = self.time(cx);
        let mut events = 0;
        let answers_first = loop {
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
        let left = self.connections.end_events(cx, id, bytes, answers_first, &self.counts.traffic);
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
            Event::TaskManagement(ticket) => self.manage_tasks(id, ticket),
            Event::Moved { from, old, new } => self.task_moved(id, from, old, new),
            Event::NexusReset => self.drop_session(cx, id),
            Event::TargetReset => self.reset_target(cx, id),
            Event::Logout { ticket, connection } => self.log_out(cx, id, connection, ticket),
            Event::Detached => self.detached(cx, id),
            Event::Gone => self.gone(id),
            Event::Close(reason) => self.close(cx, id, &reason),
        }
    }

    /// The connection is over: its answers still go out, its tasks end.
    fn close(&mut self, cx: &mut Context<'_>, id: ConnectionId, reason: &CloseReason) {
        let Some(conn) = self.connections.of_event(id) else { return };
        conn.log_close(reason);
        let (session, key) = (conn.session.clone(), conn.key);
        let takes_along = session.as_ref().is_some_and(|session| takes_siblings_along(session, reason));
        if self.keep_failed(cx, id, reason) {
            return;
        }
        if self.connections.is_parked(id) {
            return self.end_unrecovered(id);
        }
        if takes_along {
            self.end_siblings(cx, id, reason);
        }
        self.end_session_part(id);
        // After a logout the answer announces the window.
        if let Some(key) = key.filter(|_| !takes_along && *reason != CloseReason::ConnectionLogout) {
            self.announce_window(key);
        }
        if *reason == CloseReason::LogoutTimeout && self.lifecycle.is_stopping() {
            // It had its time to read what it was sent: the stop waits no longer for it.
            self.connections.remove(id);
            return cx.close(id);
        }
        cx.close_after_send(id);
    }

    /// Ends what a connection has in this process beside its socket.
    pub(super) fn end_session_part(&mut self, id: ConnectionId) {
        self.terminate_tasks(id, None);
        let Some(conn) = self.connections.get_mut(id) else { return };
        conn.nexus = None;
        conn.session = None;
        self.due_resets.extend(conn.target_reset.take());
        if let Some(key) = conn.key {
            self.connections.leave(key, id);
        }
    }

    /// Closes a connection at once, with what it still has to send: another one takes its place, or the target is reset.
    pub(super) fn close_now(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        self.end_session_part(id);
        self.connections.remove(id);
        cx.close(id);
    }
}

/// Whether the other connections of the session end with this one. At recovery level 2 they outlive a failure.
fn takes_siblings_along(session: &SessionInfo, reason: &CloseReason) -> bool {
    match reason {
        CloseReason::ConnectionLogout => false,
        CloseReason::Logout | CloseReason::LogoutTimeout | CloseReason::SessionLost => true,
        _ => !session.recovers_connections(),
    }
}
