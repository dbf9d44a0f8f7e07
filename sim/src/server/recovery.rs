//! Connections that are lost while their tasks live on, and the tasks that other connections of the session take over
//! (ErrorRecoveryLevel 2). `session` says what a driver does about them.

use lunette_pdu::{
    Cid, InitiatorTaskTag, LogoutResponseCode, SerialNumber, TaskManagementFunction as Function,
    TaskManagementResponseCode as Answer,
};
use lunette_session::iscsi_target::{CloseReason, KnownTask, TaskManagement};

use super::Server;
use super::management::Behind;
use crate::env::Env;
use crate::wire::{Network, Side, WireId};

/// Where a task is that the initiator names.
enum Whereabouts {
    /// On a suspended connection; `detached` when that one is logged out.
    Suspended {
        wire: WireId,
        task: KnownTask,
        detached: bool,
    },
    /// On a connection that is served.
    Served,
    /// It is no command.
    Request,
    Nowhere,
}

impl Server {
    /// Whether the tasks of a connection outlive it.
    pub(super) fn keeps(&self, id: WireId) -> bool {
        self.connections.get(&id).is_some_and(|conn| conn.session.is_some() && conn.protocol.is_suspended())
    }

    pub(super) fn is_parked(&self, id: WireId) -> bool {
        self.connections.get(&id).is_some_and(|conn| conn.parked)
    }

    /// Whether the other connections of the session end with this one. At recovery level 2 they outlive a failure.
    pub(super) fn takes_siblings_along(&self, id: WireId, reason: &CloseReason) -> bool {
        let recovers = self.session_of(id).is_some_and(|session| session.recovers_connections());
        match reason {
            CloseReason::ConnectionLogout => false,
            CloseReason::Logout | CloseReason::LogoutTimeout | CloseReason::SessionLost => true,
            _ => !recovers,
        }
    }

    /// The socket is gone: the tasks of the connection wait, or end with it.
    pub(super) fn lose(&mut self, id: WireId, net: &mut Network, env: &mut Env) {
        net.close(id, Side::Target, env);
        let Some(conn) = self.connections.get_mut(&id) else { return };
        if conn.session.is_some() && conn.protocol.stream_lost(env.now) {
            conn.parked = true;
            return self.suspended(id, None, net, env);
        }
        if self.takes_siblings_along(id, &CloseReason::Gap) {
            self.end_siblings(id, &CloseReason::SessionLost, net, env);
        }
        self.end_session_part(id, env);
        self.connections.remove(&id);
    }

    /// Enters a connection among those that wait, and tells the initiator of its loss unless it knows.
    pub(super) fn suspended(&mut self, id: WireId, reason: Option<&CloseReason>, net: &mut Network, env: &mut Env) {
        let Some(session) = self.session_of(id) else { return };
        env.note(|| format!("wire {id} is suspended"));
        if reason == Some(&CloseReason::RecoveryLogout) {
            self.sessions.detach(session.tsih, id);
            self.let_go_if_empty(id, net, env);
        } else if let Some((cid, _)) = self.sessions.connections(session.tsih).iter().find(|(_, wire)| *wire == id) {
            let cid = *cid;
            self.sessions.suspend(session.tsih, id);
            let served = self.sessions.connections(session.tsih).first().map(|(_, wire)| *wire);
            if let Some(conn) = served.and_then(|wire| self.connections.get_mut(&wire)) {
                conn.protocol.announce_loss(cid);
                conn.touched = true;
            }
        }
        self.touch(id);
    }

    /// The initiator logs out of a connection to go on with its tasks on another one.
    pub(super) fn log_out_for_recovery(
        &mut self,
        id: WireId,
        cid: Cid,
        received: SerialNumber,
        net: &mut Network,
        env: &mut Env,
    ) {
        let Some(session) = self.session_of(id) else { return };
        let Some(leaving) = self.sessions.find(session.tsih, cid) else {
            return self.answer_logout(id, LogoutResponseCode::CID_NOT_FOUND);
        };
        env.note(|| format!("wire {id} logs out wire {leaving} for recovery"));
        let barrier = self.open_barrier(Behind::Logout(id));
        if leaving != id {
            self.detach(leaving, received, Some(barrier), net, env);
        } else if session.parameters.time2retain_s == 0 {
            self.abandon(id, Some(barrier), env);
        }
        self.pass(barrier, env);
    }

    /// A connection is logged out for recovery. `received`: how far the initiator has come there.
    pub(super) fn detach(
        &mut self,
        id: WireId,
        received: SerialNumber,
        barrier: Option<u64>,
        net: &mut Network,
        env: &mut Env,
    ) {
        let Some(session) = self.session_of(id) else { return };
        let Some(conn) = self.connections.get_mut(&id) else { return };
        if conn.protocol.log_out_for_recovery(received, env.now) {
            (conn.parked, conn.touched) = (true, true);
            self.sessions.detach(session.tsih, id);
            net.close(id, Side::Target, env);
            self.let_go_if_empty(id, net, env);
        } else {
            self.abandon(id, barrier, env);
            self.cut(id, net, env);
        }
    }

    /// Nobody is waited for when there is nothing to take over, and others keep the session.
    fn let_go_if_empty(&mut self, id: WireId, net: &mut Network, env: &mut Env) {
        let Some(session) = self.session_of(id) else { return };
        let is_empty = self.is_parked(id) && self.connections[&id].protocol.keeps_nothing();
        let is_detached = self.sessions.suspended(session.tsih).contains(&(None, id));
        if is_empty && is_detached && self.sessions.members(session.tsih).any(|other| other != id) {
            self.cut(id, net, env);
        }
    }

    /// The same for all that the session of a connection has lost.
    pub(super) fn let_go_of_empty(&mut self, id: WireId, net: &mut Network, env: &mut Env) {
        let Some(session) = self.session_of(id) else { return };
        let suspended: Vec<WireId> = self.sessions.suspended(session.tsih).iter().map(|(_, lost)| *lost).collect();
        for lost in suspended {
            self.let_go_if_empty(lost, net, env);
        }
    }

    /// Nobody has taken over what the connection kept.
    pub(super) fn end_unrecovered(&mut self, id: WireId, net: &mut Network, env: &mut Env) {
        let session = self.session_of(id);
        self.cut(id, net, env);
        let Some(session) = session else { return };
        // Its tasks may have held the command window shut.
        let served = self.sessions.connections(session.tsih).first().map(|(_, wire)| *wire);
        if let Some(conn) = served.and_then(|wire| self.connections.get_mut(&wire)) {
            conn.protocol.announce_window();
            conn.touched = true;
        }
    }

    // Tasks.

    /// TASK REASSIGN: the answer goes out before the task moves.
    pub(super) fn reassign(&mut self, id: WireId, request: &TaskManagement, net: &mut Network, env: &mut Env) {
        let (from, answer) = match self.find_elsewhere(id, request) {
            Whereabouts::Suspended { wire, detached: true, .. } => (Some(wire), Answer::FUNCTION_COMPLETE),
            Whereabouts::Suspended { .. } | Whereabouts::Served => (None, Answer::TASK_STILL_ALLEGIANT),
            Whereabouts::Request => (None, Answer::FUNCTION_REJECTED),
            Whereabouts::Nowhere if self.is_here(id, request.referenced_itt) => (None, Answer::TASK_STILL_ALLEGIANT),
            Whereabouts::Nowhere => return self.answer_gone(id, request, env),
        };
        self.answer(id, request, answer);
        if let Some(from) = from {
            self.move_task(from, id, request.referenced_itt, request.exp_data_sn, net, env);
        }
    }

    /// Whether the connection itself has the task, though it has ended for it.
    fn is_here(&self, id: WireId, itt: InitiatorTaskTag) -> bool {
        self.connections.get(&id).is_some_and(|conn| conn.protocol.known_task(itt).is_some())
    }

    pub(super) fn answer(&mut self, id: WireId, request: &TaskManagement, answer: Answer) {
        if let Some(conn) = self.connections.get_mut(&id) {
            conn.protocol.task_management_done(request.itt, answer);
            conn.touched = true;
        }
    }

    pub(super) fn succeed(&mut self, id: WireId, request: &TaskManagement, information: [u8; 3]) {
        if let Some(conn) = self.connections.get_mut(&id) {
            conn.protocol.task_management_succeeded(request.itt, information);
            conn.touched = true;
        }
    }

    /// ABORT TASK of a task that this connection does not have. When it has ended on a lost one, its answer comes first.
    pub(super) fn abort_elsewhere(&mut self, id: WireId, request: &TaskManagement, net: &mut Network, env: &mut Env) {
        match self.find_elsewhere(id, request) {
            Whereabouts::Suspended { wire, task: KnownTask { tag: Some(tag), .. }, .. } => {
                let doomed = self.jobs_where(|job| job.wire == wire && job.tag == tag && !job.orphaned);
                let found = TaskManagement { referenced: Some(tag), ..*request };
                self.abort_all(id, &found, &doomed, env);
            }
            Whereabouts::Suspended { wire, .. } => {
                self.move_task(wire, id, request.referenced_itt, 0, net, env);
                self.answer(id, request, Answer::FUNCTION_COMPLETE);
            }
            Whereabouts::Request => self.answer(id, request, Answer::FUNCTION_REJECTED),
            Whereabouts::Served | Whereabouts::Nowhere => self.answer_gone(id, request, env),
        }
    }

    /// QUERY TASK of a task that this connection does not have. From one that is logged out it comes here.
    pub(super) fn query_elsewhere(&mut self, id: WireId, request: &TaskManagement, net: &mut Network, env: &mut Env) {
        let whereabouts = self.find_elsewhere(id, request);
        match whereabouts {
            Whereabouts::Suspended { .. } | Whereabouts::Served => self.succeed(id, request, [0; 3]),
            Whereabouts::Request => self.answer(id, request, Answer::FUNCTION_REJECTED),
            Whereabouts::Nowhere => self.answer_gone(id, request, env),
        }
        if let Whereabouts::Suspended { wire, detached: true, .. } = whereabouts {
            self.move_task(wire, id, request.referenced_itt, 0, net, env);
        }
    }

    /// A request for a task that is gone. It may be one of those that were aborted before and still run.
    fn answer_gone(&mut self, id: WireId, request: &TaskManagement, env: &mut Env) {
        let orphans = self.orphans();
        self.abort_all(id, request, &orphans, env);
    }

    /// Looks for a task on the other connections of the session. TASK REASSIGN names no logical unit; to others a task is one of
    /// that unit only (RFC 7143 section 11.5.3, SAM-5 7.2 and 7.10).
    fn find_elsewhere(&self, id: WireId, request: &TaskManagement) -> Whereabouts {
        let itt = request.referenced_itt;
        let is_meant = |task: &KnownTask| request.function == Function::TASK_REASSIGN || task.lun == request.lun;
        let Some(session) = self.session_of(id) else { return Whereabouts::Nowhere };
        let (mut found, mut is_request): (Option<(WireId, KnownTask)>, _) = (None, false);
        for other in self.sessions.members(session.tsih).filter(|other| *other != id) {
            let Some(conn) = self.connections.get(&other) else { continue };
            is_request |= conn.protocol.is_request(itt);
            let Some(task) = conn.protocol.known_task(itt).filter(is_meant) else { continue };
            if found.is_none_or(|(_, known)| task.supersedes(&known)) {
                found = Some((other, task));
            }
        }
        let Some((wire, task)) = found else {
            return if is_request { Whereabouts::Request } else { Whereabouts::Nowhere };
        };
        match self.sessions.suspended(session.tsih).iter().find(|(_, lost)| *lost == wire) {
            Some((cid, _)) => Whereabouts::Suspended { wire, task, detached: cid.is_none() },
            None => Whereabouts::Served,
        }
    }

    fn move_task(
        &mut self,
        from: WireId,
        to: WireId,
        itt: InitiatorTaskTag,
        exp_data_sn: u32,
        net: &mut Network,
        env: &mut Env,
    ) {
        let Some(old) = self.connections.get_mut(&from) else { return };
        let tag = old.protocol.known_task(itt).and_then(|known| known.tag);
        let Some(moved) = old.protocol.release_task(itt) else { return };
        env.note(|| format!("wire {to} takes over task {itt} of wire {from}"));
        let key = tag.and_then(|tag| self.find(from, tag));
        let Some(new) = self.connections.get_mut(&to) else { return };
        new.touched = true;
        if let (Some(tag), Some(job)) =
            (new.protocol.adopt_task(moved, exp_data_sn), key.and_then(|key| self.jobs.get_mut(&key)))
        {
            (job.wire, job.tag) = (to, tag);
        }
        self.wait_for_adopted(to);
        self.let_go_if_empty(from, net, env);
    }
}
