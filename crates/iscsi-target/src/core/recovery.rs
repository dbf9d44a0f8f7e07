//! Connections that are lost while their tasks live on, and the tasks that other connections of the session take over
//! (ErrorRecoveryLevel 2, RFC 7143 sections 7.1.4.3 and 7.2.2).
//!
//! A suspended connection has no socket any more. It stays in the table until its tasks are taken over or its time is
//! over, and keeps the session and the nexus alive.

use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::{CloseReason, TaskTag};

use super::Core;
use super::connections::Conn;
use super::tasks::BarrierKey;
use crate::limits::{MAX_SUSPENDED_CONNECTIONS, SUSPENDED_BUFFER_SHARE};

impl Core {
    /// The socket of a connection is gone: its tasks wait, or end with it.
    pub(super) fn connection_lost(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        self.doubt_digests(id);
        let now = self.time(cx);
        if self.connections.in_session(id, |session| session.stream_lost(id, now)) == Some(true) {
            self.park(id);
            return self.touch(id);
        }
        self.close_now(cx, id);
    }

    /// A connection that has ended by itself keeps its tasks, and gets rid of its socket.
    pub(super) fn suspended(&mut self, cx: &mut Context<'_>, id: ConnectionId, reason: &CloseReason) {
        if let Some(conn) = self.connections.of_event(id) {
            conn.log_close(reason);
        }
        cx.close_after_send(id);
    }

    /// Parks a connection; unsent bytes are lost with the socket.
    fn park(&mut self, id: ConnectionId) {
        if let Some((conn, mut protocol)) = self.connections.link(id) {
            conn.permit = None;
            conn.answers.resize(protocol.answer_bytes());
        }
        self.connections.park(id);
    }

    /// A connection is logged out for recovery; its tasks wait.
    pub(super) fn detached(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        tracing::info!(
            initiator = self.connections.get(id).map_or("-", Conn::initiator),
            "connection logged out for recovery"
        );
        self.park(id);
        cx.close(id);
        self.touch(id);
    }

    /// The tasks of a connection end without an answer while the session goes on. The initiator is told by unit
    /// attention (RFC 7143 section 11.14.5).
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

    /// Ends what waits beyond the bounds, the longest waiting first. A connection that has failed, and whose last PDUs
    /// are still on their way, does not count before its socket is gone, in five seconds at most: until then it has the
    /// share of a live one.
    pub(super) fn bound_suspended(&mut self, cx: &mut Context<'_>) {
        let most_bytes = self.buffers.budget_bytes() / SUSPENDED_BUFFER_SHARE;
        let too_old = |core: &Self| {
            let (oldest, _) = core.connections.parked().next()?;
            let held = || core.connections.parked().map(|(_, conn)| conn.account.bytes()).sum::<usize>();
            let too_much = core.buffers.used_bytes() > most_bytes && held() > most_bytes;
            (core.connections.parked().count() > MAX_SUSPENDED_CONNECTIONS || too_much).then_some(oldest)
        };
        while let Some(oldest) = too_old(self) {
            tracing::warn!("too much waits to be recovered; the oldest lost connection is given up");
            self.close_now(cx, oldest);
        }
    }

    /// Connection `id` has taken over a task of one that was lost.
    pub(super) fn task_moved(&mut self, id: ConnectionId, from: ConnectionId, old: TaskTag, new: TaskTag) {
        let key = self.connections.get_mut(from).and_then(|conn| conn.tasks.remove(old));
        debug_assert!(key.is_some(), "a task moves from a connection that is gone");
        if let Some(key) = key
            && let Some(conn) = self.connections.get_mut(id)
        {
            conn.tasks.insert(new, key);
            self.tasks.reassign(key, id, new, &conn.account);
        }
    }
}
