//! Connections that are lost while their tasks live on, and the tasks that other connections of the session take over
//! (ErrorRecoveryLevel 2, RFC 7143 sections 7.1.4.3 and 7.2.2).
//!
//! A suspended connection has no socket any more. It stays in the table until its tasks are taken over or its time is over,
//! and keeps the session and the nexus alive.

use lunette_pdu::{
    InitiatorTaskTag, SerialNumber, TaskManagementFunction as Function, TaskManagementResponseCode as Answer,
};
use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::{CloseReason, Connection, ConnectionMut, KnownTask, SessionKey, TaskManagement};

use super::Core;
use super::answers::Answers;
use super::barrier::{BarrierKey, Behind};
use super::connection::Conn;
use super::fences::Managed;
use crate::limits::{MAX_SESSION_SUSPENDED, MAX_SUSPENDED_CONNECTIONS, SUSPENDED_BUFFER_SHARE};

/// Where a task is that the initiator names.
enum Whereabouts {
    /// On a suspended connection; `detached` when that one is logged out.
    Suspended {
        connection: ConnectionId,
        task: KnownTask,
        detached: bool,
    },
    /// On a connection that is served.
    Served,
    /// It is no command, or there is none of that name.
    Request,
    Nowhere,
}

impl Core {
    /// The socket of a connection is gone: its tasks wait, or end with it.
    pub(super) fn connection_lost(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        let now = self.time(cx);
        let may_wait = self.may_be_recovered(id);
        let lose = |(_, mut protocol): (&mut Conn, ConnectionMut<'_>)| protocol.stream_lost(now);
        if may_wait && self.link(id).is_some_and(lose) {
            self.park(id);
            return self.suspended(id, None);
        }
        let Some(conn) = self.connections.get(id) else { return };
        if conn.session.as_ref().is_some_and(|session| !session.recovers_connections()) {
            self.end_siblings(cx, id, &CloseReason::SessionLost);
        }
        self.end_unrecovered(id);
    }

    /// A connection that has failed keeps its tasks, and gets rid of its socket. False when it has to end.
    pub(super) fn keep_failed(&mut self, cx: &mut Context<'_>, id: ConnectionId, reason: &CloseReason) -> bool {
        let keeps = self.protocol(id).is_some_and(Connection::is_suspended);
        if !keeps || !self.may_be_recovered(id) {
            return false;
        }
        self.suspended(id, Some(reason));
        cx.close_after_send(id);
        true
    }

    /// Whether anybody would be let in to recover it.
    fn may_be_recovered(&mut self, id: ConnectionId) -> bool {
        let (directory, devices) = (&self.directory, &self.devices);
        self.stopping.is_no()
            && self
                .connections
                .get_mut(id)
                .is_some_and(|conn| conn.session.is_some() && conn.may_stay(directory, devices))
    }

    /// Enters a connection among those that wait, and tells the initiator of its loss (RFC 7143 section 7.1.4.3) unless it
    /// knows.
    fn suspended(&mut self, id: ConnectionId, reason: Option<&CloseReason>) {
        let Some(key) = self.key_of(id) else { return };
        let Some(session) = self.sessions.get_mut(key) else { return };
        if reason == Some(&CloseReason::RecoveryLogout) {
            session.detach(id);
        } else if let Some(cid) = session.cid(id) {
            session.suspend(id);
            let other = session.connections().next();
            if let Some(other) = other
                && let Some(mut protocol) = session.connection_mut(other)
            {
                protocol.announce_loss(cid);
                self.touch(other);
            }
        }
        self.bound_session(key);
        self.touch(id);
    }

    /// What was not sent is lost with the socket.
    fn park(&mut self, id: ConnectionId) {
        if let Some((conn, mut protocol)) = self.link(id) {
            (conn.answers, conn.place) = (Answers::default(), None);
            conn.count_answers(&mut protocol);
        }
        self.connections.park(id);
    }

    /// The initiator has logged out of a connection for recovery. `received`: how far it has come there. When its tasks do
    /// not wait they end; `barrier` learns when no store works for them any more.
    pub(super) fn detach(
        &mut self,
        cx: &mut Context<'_>,
        id: ConnectionId,
        received: SerialNumber,
        barrier: Option<BarrierKey>,
    ) {
        let now = self.time(cx);
        let waits = self.link(id).is_some_and(|(_, mut protocol)| protocol.log_out_for_recovery(received, now));
        if let Some(key) = self.key_of(id).filter(|_| waits) {
            if let Some(session) = self.sessions.get_mut(key) {
                session.detach(id);
            }
            self.park(id);
            cx.close(id);
            self.touch(id);
            self.bound_session(key);
            self.let_go_if_empty(id, key);
        } else {
            self.terminate_tasks(id, barrier);
            self.cut(cx, id);
        }
    }

    /// Nobody is waited for when there is nothing to take over, and others keep the session.
    fn let_go_if_empty(&mut self, id: ConnectionId, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else { return };
        let is_empty = session.connection(id).is_some_and(Connection::keeps_nothing);
        if is_empty && session.is_detached(id) && session.members().any(|other| other != id) {
            self.end_session_part(id);
            self.remove(id);
        }
    }

    /// The same for all that the session of `id` has lost.
    pub(super) fn let_go_of_empty(&mut self, id: ConnectionId) {
        let (Some(key), Some(session)) = (self.key_of(id), self.session_of(id)) else { return };
        let suspended: Vec<_> = session.suspended().collect();
        for lost in suspended {
            self.let_go_if_empty(lost, key);
        }
    }

    /// The session that a connection belongs to, while it does.
    fn key_of(&self, id: ConnectionId) -> Option<SessionKey> {
        self.connections.get(id).filter(|conn| conn.session.is_some())?.key
    }

    /// The tasks of a connection end without an answer while the session goes on. The initiator is told by unit attention (RFC
    /// 7143 section 11.14.5).
    pub(super) fn terminate_tasks(&mut self, id: ConnectionId, barrier: Option<BarrierKey>) {
        if let Some(conn) = self.connections.get_mut(id)
            && let (Some(device), Some(nexus), Some(_)) = (&conn.device, &conn.nexus, &conn.session)
            && let Some(session) = conn.key.and_then(|key| self.sessions.get(key))
            && session.members().any(|other| other != id)
        {
            device.commands_cleared(nexus, conn.tasks.keys().filter_map(|key| Some(self.tasks.get(key)?.lun)));
        }
        self.abandon_tasks(id, barrier);
    }

    /// The tasks of a connection that is gone end with it: nobody takes them over. The session may go on.
    pub(super) fn end_unrecovered(&mut self, id: ConnectionId) {
        let key = self.key_of(id);
        self.end_session_part(id);
        self.remove(id);
        if let Some(key) = key {
            self.announce_window(key);
        }
    }

    /// Tasks of a session have ended without an answer. They may have held the command window shut.
    pub(super) fn announce_window(&mut self, session: SessionKey) {
        let Some(session) = self.sessions.get_mut(session) else { return };
        let served = session.connections().next();
        if let Some(served) = served
            && let Some(mut protocol) = session.connection_mut(served)
        {
            protocol.announce_window();
            self.touch(served);
        }
    }

    /// Ends what waits beyond the bounds, the longest waiting first. A connection that has failed, and whose last PDUs are still on
    /// their way, does not count before its socket is gone, in five seconds at most: until then it has the share of a live one.
    pub(super) fn bound_suspended(&mut self) {
        let most_bytes = self.pool.budget_bytes() / SUSPENDED_BUFFER_SHARE;
        let too_old = |core: &Self| {
            let (oldest, _) = core.connections.parked().next()?;
            let held = || core.connections.parked().map(|(_, conn)| conn.holdings.bytes()).sum::<usize>();
            let too_much = core.pool.used_bytes() > most_bytes && held() > most_bytes;
            (core.connections.parked().count() > MAX_SUSPENDED_CONNECTIONS || too_much).then_some(oldest)
        };
        while let Some(oldest) = too_old(self) {
            tracing::warn!("too much waits to be recovered; the oldest lost connection is given up");
            self.end_unrecovered(oldest);
        }
    }

    /// The same for one session.
    fn bound_session(&mut self, session: SessionKey) {
        let oldest = |core: &Self| {
            let mut suspended = core.sessions.get(session)?.suspended();
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
            self.cut(cx, id);
        }
    }

    // Tasks.

    /// TASK REASSIGN: connection `id` takes over a task.
    pub(super) fn reassign(&mut self, id: ConnectionId, request: &TaskManagement) {
        let (connection, answer) = match self.find_elsewhere(id, request) {
            Whereabouts::Suspended { connection, detached: true, .. } => (Some(connection), Answer::FUNCTION_COMPLETE),
            Whereabouts::Suspended { .. } | Whereabouts::Served => (None, Answer::TASK_STILL_ALLEGIANT),
            Whereabouts::Request => (None, Answer::FUNCTION_REJECTED),
            Whereabouts::Nowhere if self.is_here(id, request.referenced_itt) => (None, Answer::TASK_STILL_ALLEGIANT),
            Whereabouts::Nowhere => return self.answer_gone(id, request),
        };
        // RFC 7143 section 11.5.1: the answer goes out before the task moves.
        self.answer_task_management(id, request.itt, answer);
        if let Some(connection) = connection {
            self.move_task(connection, id, request.referenced_itt, request.exp_data_sn);
        }
    }

    /// ABORT TASK of a task that connection `id` does not have. On a connection that was lost it is aborted from here (RFC
    /// 7143 section 11.5.1); when it has ended there, its answer comes first.
    pub(super) fn abort_elsewhere(&mut self, id: ConnectionId, request: &TaskManagement) {
        let (itt, response) = (request.itt, Answer::FUNCTION_COMPLETE);
        match self.find_elsewhere(id, request) {
            Whereabouts::Suspended { connection, task: KnownTask { tag: Some(tag), .. }, .. } => {
                let barrier = self
                    .barriers
                    .open(Behind::TaskManagement { connection: id, managed: Managed::of_one(itt, response) });
                let key = self.connections.get_mut(connection).and_then(|conn| conn.tasks.get(tag));
                if let Some(key) = key {
                    self.abort_task(key, Some(barrier));
                }
                self.barriers.close(barrier);
            }
            Whereabouts::Suspended { connection, .. } => {
                self.move_task(connection, id, request.referenced_itt, 0);
                self.answer_task_management(id, itt, response);
            }
            Whereabouts::Request => self.answer_task_management(id, itt, Answer::FUNCTION_REJECTED),
            Whereabouts::Served | Whereabouts::Nowhere => self.answer_gone(id, request),
        }
        self.touch(id);
    }

    /// QUERY TASK of a task that connection `id` does not have. From one that is logged out it comes here (RFC 7144 section 6.3).
    pub(super) fn query_elsewhere(&mut self, id: ConnectionId, request: &TaskManagement) {
        let whereabouts = self.find_elsewhere(id, request);
        match whereabouts {
            Whereabouts::Suspended { .. } | Whereabouts::Served => self.succeed(id, request, [0; 3]),
            Whereabouts::Request => self.answer_task_management(id, request.itt, Answer::FUNCTION_REJECTED),
            Whereabouts::Nowhere => self.answer_gone(id, request),
        }
        if let Whereabouts::Suspended { connection, detached: true, .. } = whereabouts {
            self.move_task(connection, id, request.referenced_itt, 0);
        }
    }

    /// A request for a task that is gone. It may be one of those that were aborted before and whose stores still work.
    fn answer_gone(&mut self, id: ConnectionId, request: &TaskManagement) {
        let nexus = self.connections.get_mut(id).and_then(|conn| conn.nexus.as_ref().map(|nexus| nexus.id()));
        let (itt, response) = (request.itt, request.done());
        let barrier =
            self.barriers.open(Behind::TaskManagement { connection: id, managed: Managed::of_one(itt, response) });
        for key in self.tasks_where(|task| task.is_orphan() && Some(task.nexus) == nexus) {
            self.abort_task(key, Some(barrier));
        }
        self.barriers.close(barrier);
    }

    /// Looks for a task on the other connections of the session. TASK REASSIGN names no logical unit; to others a task is one of
    /// that unit only (RFC 7143 section 11.5.3, SAM-5 7.2 and 7.10).
    fn find_elsewhere(&self, id: ConnectionId, request: &TaskManagement) -> Whereabouts {
        let itt = request.referenced_itt;
        let is_meant = |task: &KnownTask| request.function == Function::TASK_REASSIGN || task.lun == request.lun;
        let Some(session) = self.session_of(id) else { return Whereabouts::Nowhere };
        let mut found: Option<(ConnectionId, KnownTask)> = None;
        let mut is_request = false;
        for other in session.members().filter(|other| *other != id) {
            let Some(protocol) = session.connection(other) else { continue };
            is_request |= protocol.is_request(itt);
            let Some(task) = protocol.known_task(itt).filter(is_meant) else { continue };
            if found.is_none_or(|(_, known)| task.supersedes(&known)) {
                found = Some((other, task));
            }
        }
        let Some((connection, task)) = found else {
            return if is_request { Whereabouts::Request } else { Whereabouts::Nowhere };
        };
        if session.suspended().any(|lost| lost == connection) {
            Whereabouts::Suspended { connection, task, detached: session.is_detached(connection) }
        } else {
            Whereabouts::Served
        }
    }

    /// Whether connection `id` itself has the task, though it has ended for it.
    fn is_here(&self, id: ConnectionId, itt: InitiatorTaskTag) -> bool {
        self.protocol(id).is_some_and(|protocol| protocol.known_task(itt).is_some())
    }

    fn move_task(&mut self, from: ConnectionId, to: ConnectionId, itt: InitiatorTaskTag, exp_data_sn: u32) {
        if self.connections.get(to).is_none() {
            return;
        }
        let session = self.key_of(from);
        let Some((old, mut protocol)) = self.link(from) else { return };
        let tag = protocol.known_task(itt).and_then(|known| known.tag);
        let Some(moved) = protocol.release_task(itt) else { return };
        let key = tag.and_then(|tag| old.tasks.remove(tag));
        let bytes = key.and_then(|key| self.tasks.get(key)).map_or(0, |running| running.bytes);
        if let Some(old) = self.connections.get_mut(from) {
            old.holdings.sub_task(bytes);
        }
        let Some((new, mut protocol)) = self.link(to) else { return };
        new.holdings.add_task(bytes);
        if let (Some(tag), Some(key)) = (new.adopt(&mut protocol, moved, exp_data_sn), key) {
            new.tasks.insert(tag, key);
            if let Some(running) = self.tasks.get_mut(key) {
                (running.connection, running.tag) = (to, tag);
            }
        }
        self.wait_for_adopted(to);
        self.touch(to);
        if let Some(session) = session {
            self.let_go_if_empty(from, session);
        }
    }
}
