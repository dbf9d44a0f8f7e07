//! Connections that are lost while their tasks live on, and the tasks that other connections of the session take over
//! (ErrorRecoveryLevel 2, RFC 7143 sections 7.1.4.3 and 7.2.2).
//!
//! A suspended connection has no socket any more. It stays in the table until its tasks are taken over or its time is over,
//! and keeps the session and the nexus alive.

use lunette_pdu::SerialNumber;
use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::{CloseReason, SessionKey, TaskTag};

use super::Core;
use super::connections::{Answers, Conn};
use super::tasks::BarrierKey;
use crate::limits::{MAX_SESSION_SUSPENDED, MAX_SUSPENDED_CONNECTIONS, SUSPENDED_BUFFER_SHARE};

impl Core {
    /// The socket of a connection is gone: its tasks wait, or end with it.
    pub(super) fn connection_lost(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        let now = self.time(cx);
        let may_wait = self.may_be_recovered(id);
        if may_wait && self.connections.in_session(id, |session| session.stream_lost(id, now)) == Some(true) {
            self.park(id);
            self.touch(id);
            return self.bound_session(id);
        }
        let Some(conn) = self.connections.get(id) else { return };
        if conn.session.as_ref().is_some_and(|session| !session.recovers_connections()) {
            self.end_siblings(cx, id, &CloseReason::SessionLost);
        }
        self.end_unrecovered(id);
    }

    /// A connection that has failed keeps its tasks, and gets rid of its socket. False when it has to end.
    pub(super) fn keep_failed(&mut self, cx: &mut Context<'_>, id: ConnectionId, reason: &CloseReason) -> bool {
        if !self.may_be_recovered(id)
            || self.connections.in_session(id, |session| session.keep(id, reason)) != Some(true)
        {
            return false;
        }
        self.bound_session(id);
        cx.close_after_send(id);
        true
    }

    /// Whether anybody would be let in to recover it.
    fn may_be_recovered(&mut self, id: ConnectionId) -> bool {
        let (directory, devices) = (self.lifecycle.directory(), self.lifecycle.devices());
        !self.lifecycle.is_stopping()
            && self.connections.get(id).is_some_and(|conn| conn.session.is_some() && conn.may_stay(directory, devices))
    }

    /// What was not sent is lost with the socket.
    fn park(&mut self, id: ConnectionId) {
        if let Some((conn, mut protocol)) = self.connections.link(id) {
            (conn.answers, conn.permit) = (Answers::new(&conn.account), None);
            conn.count_answers(&mut protocol);
        }
        self.connections.park(id);
    }

    /// A login takes the place of a connection: that is its logout for recovery. `received`: how far the initiator has come there.
    pub(super) fn detach(&mut self, cx: &mut Context<'_>, id: ConnectionId, received: SerialNumber) {
        let now = self.time(cx);
        if self.connections.in_session(id, |session| session.detach(id, received, now)) == Some(true) {
            self.detached(cx, id);
        } else {
            self.terminate_tasks(id, None);
            self.close_now(cx, id);
        }
    }

    /// A connection is logged out for recovery; its tasks wait.
    pub(super) fn detached(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        // A stop has ended all others that wait; it would wait for the tasks of this one.
        if self.lifecycle.is_stopping() {
            self.gone(id);
            return cx.close(id);
        }
        self.park(id);
        cx.close(id);
        self.touch(id);
        self.bound_session(id);
    }

    /// Nothing of a lost connection is left to be taken over.
    pub(super) fn gone(&mut self, id: ConnectionId) {
        self.end_session_part(id);
        self.connections.remove(id);
    }

    /// The session that a connection belongs to, while it does.
    fn key_of(&self, id: ConnectionId) -> Option<SessionKey> {
        self.connections.get(id).filter(|conn| conn.session.is_some())?.key
    }

    /// The tasks of a connection end without an answer while the session goes on. The initiator is told by unit attention (RFC
    /// 7143 section 11.14.5).
    pub(super) fn terminate_tasks(&mut self, id: ConnectionId, barrier: Option<BarrierKey>) {
        if let Some(conn) = self.connections.get(id)
            && let (Some(device), Some(nexus), Some(_)) = (&conn.device, &conn.nexus, &conn.session)
            && let Some(session) = conn.key.and_then(|key| self.connections.session(key))
            && session.members().any(|other| other != id)
        {
            device.commands_cleared(nexus, conn.tasks.keys().filter_map(|key| Some(self.tasks.get(key)?.lun())));
        }
        self.abandon_tasks(id, barrier);
    }

    /// The tasks of a connection that is gone end with it and are not taken over. The session may go on.
    pub(super) fn end_unrecovered(&mut self, id: ConnectionId) {
        let key = self.key_of(id);
        self.end_session_part(id);
        self.connections.remove(id);
        if let Some(key) = key {
            self.announce_window(key);
        }
    }

    /// Tasks of a session have ended without an answer. They may have held the command window shut.
    pub(super) fn announce_window(&mut self, session: SessionKey) {
        if let Some(session) = self.connections.session_mut(session) {
            session.announce_window();
        }
        self.connections.touch_members(session);
    }

    /// Ends what waits beyond the bounds, the longest waiting first. A connection that has failed, and whose last PDUs are still on
    /// their way, does not count before its socket is gone, in five seconds at most: until then it has the share of a live one.
    pub(super) fn bound_suspended(&mut self) {
        let most_bytes = self.buffers.budget_bytes() / SUSPENDED_BUFFER_SHARE;
        let too_old = |core: &Self| {
            let (oldest, _) = core.connections.parked().next()?;
            let held = || core.connections.parked().map(|(_, conn)| conn.account.bytes()).sum::<usize>();
            let too_much = core.buffers.used_bytes() > most_bytes && held() > most_bytes;
            (core.connections.parked().count() > MAX_SUSPENDED_CONNECTIONS || too_much).then_some(oldest)
        };
        while let Some(oldest) = too_old(self) {
            tracing::warn!("too much waits to be recovered; the oldest lost connection is given up");
            self.end_unrecovered(oldest);
        }
    }

    /// The same for one session.
    fn bound_session(&mut self, id: ConnectionId) {
        let Some(session) = self.key_of(id) else { return };
        let oldest = |core: &Self| {
            let mut suspended = core.connections.session(session)?.suspended();
            let oldest = suspended.next()?;
            (suspended.count() >= MAX_SESSION_SUSPENDED).then_some(oldest)
        };
        while let Some(oldest) = oldest(self) {
            self.end_unrecovered(oldest);
        }
    }

    /// Ends all connections that wait to be recovered and that `concerned` holds for.
    pub(super) fn end_suspended(&mut self, cx: &mut Context<'_>, concerned: impl Fn(&Conn) -> bool) {
        let ids: Vec<_> = self.connections.parked().filter(|(_, conn)| concerned(conn)).map(|(id, _)| id).collect();
        for id in ids {
            self.close_now(cx, id);
        }
    }

    /// Connection `id` has taken over a task of one that was lost.
    pub(super) fn task_moved(&mut self, id: ConnectionId, from: ConnectionId, old: TaskTag, new: TaskTag) {
        let key = self.connections.get_mut(from).and_then(|conn| conn.tasks.remove(old));
        if let Some(key) = key
            && let Some(conn) = self.connections.get_mut(id)
        {
            conn.tasks.insert(new, key);
            self.tasks.reassign(key, id, new, &conn.account);
        }
    }
}
