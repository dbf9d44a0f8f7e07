//! Task management functions, and the answers that wait: for stores that still work, and for other connections.

use lunette_pdu::{LogoutResponseCode, SerialNumber, TaskManagementFunction as Function};
use lunette_session::target::{Connection, TaskManagement};

use super::Server;
use crate::env::Env;
use crate::request::lun;
use crate::wire::{Network, WireId};

/// What happens when no store works any more for what was aborted.
#[derive(Clone, Copy)]
pub(super) enum Behind {
    TaskManagement(WireId, TaskManagement),
    Logout(WireId),
    Login(WireId),
}

/// An answer that waits until the initiator has acknowledged what other connections of its session sent before: the response
/// fence of RFC 7143 section 4.2.2.3.
pub(super) struct Fence {
    wire: WireId,
    request: TaskManagement,
    behind: Vec<(WireId, SerialNumber)>,
}

impl Server {
    pub(super) fn manage_tasks(&mut self, id: WireId, request: &TaskManagement, net: &mut Network, env: &mut Env) {
        env.note(|| format!("wire {id}: {}", request.function));
        match (request.function, request.referenced) {
            (Function::TASK_REASSIGN, _) => self.reassign(id, request, net, env),
            (Function::ABORT_TASK, None) => self.abort_elsewhere(id, request, net, env),
            _ => self.abort_covered(id, request, env),
        }
    }

    /// Aborts what the request covers.
    fn abort_covered(&mut self, id: WireId, request: &TaskManagement, env: &mut Env) {
        let covered = |order: lunette_session::target::CommandOrder| {
            request.before.is_none_or(|before| order.is_covered_by(before))
        };
        let doomed = match request.function {
            Function::ABORT_TASK => {
                self.jobs_where(|job| job.wire == id && Some(job.tag) == request.referenced && !job.orphaned)
            }
            Function::ABORT_TASK_SET | Function::CLEAR_TASK_SET | Function::LOGICAL_UNIT_RESET => {
                self.jobs_where(|job| lun(job.request.extent.unit) == request.lun && covered(job.order))
            }
            _ => self.jobs_where(|job| covered(job.order)),
        };
        self.silence_siblings(id, request, |_| true);
        self.abort_all(id, request, &doomed, env);
    }

    /// Aborts these tasks, and answers when nothing works for them any more.
    pub(super) fn abort_all(&mut self, id: WireId, request: &TaskManagement, doomed: &[u64], env: &mut Env) {
        let barrier = self.open_barrier(Behind::TaskManagement(id, *request));
        for key in doomed {
            env.note(|| format!("command {} is aborted", self.jobs[key].request.user));
            self.abort(*key, Some(barrier));
        }
        self.pass(barrier, env);
    }

    /// Tasks of other connections that wait for data only to be answered are not answered after a request that covers them.
    fn silence_siblings(&mut self, id: WireId, request: &TaskManagement, concerned: impl Fn(&Connection) -> bool) {
        let Some(before) = request.before else { return };
        let lun = match request.function {
            Function::ABORT_TASK => return,
            Function::TARGET_WARM_RESET | Function::TARGET_COLD_RESET => None,
            _ => Some(request.lun),
        };
        let Some(session) = self.session_of(id) else { return };
        for other in self.sessions.members(session.tsih).filter(|other| *other != id) {
            if let Some(conn) = self.connections.get_mut(&other).filter(|conn| concerned(&conn.protocol)) {
                conn.protocol.silence(lun, before);
            }
        }
    }

    // Barriers.

    pub(super) fn open_barrier(&mut self, behind: Behind) -> u64 {
        self.last_barrier += 1;
        self.barriers.insert(self.last_barrier, (1, behind));
        self.last_barrier
    }

    /// The barrier waits for a job that nobody else waits for.
    pub(super) fn hold_up(&mut self, barrier: u64, job: u64) {
        if let (Some((count, _)), Some(job)) = (self.barriers.get_mut(&barrier), self.jobs.get_mut(&job)) {
            *count += 1;
            job.barriers.push(barrier);
        }
    }

    /// One thing less that holds it up.
    pub(super) fn pass(&mut self, barrier: u64, env: &mut Env) {
        let Some((count, behind)) = self.barriers.get_mut(&barrier) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        let behind = *behind;
        self.barriers.remove(&barrier);
        match behind {
            Behind::TaskManagement(id, request) => self.answer_behind_fence(id, request),
            Behind::Logout(id) => self.answer_logout(id, LogoutResponseCode::CLOSED),
            Behind::Login(id) => self.finish_login(id, env),
        }
    }

    // Fences.

    fn answer_behind_fence(&mut self, wire: WireId, request: TaskManagement) {
        let mut behind = Vec::new();
        for other in self.siblings(wire) {
            let Some(conn) = self.connections.get_mut(&other) else { continue };
            if let Some(stat_sn) = conn.protocol.ask_acknowledgement() {
                behind.push((other, stat_sn));
                conn.touched = true;
            }
        }
        self.fences.push(Fence { wire, request, behind });
    }

    /// Gives the answers that nothing holds up any more. A connection that is gone holds up nothing.
    pub(crate) fn pass_fences(&mut self, net: &mut Network, env: &mut Env) -> bool {
        let connections = &self.connections;
        let is_passed = |fence: &mut Fence| {
            let behind = &mut fence.behind;
            behind.retain(|(id, stat_sn)| {
                connections.get(id).is_some_and(|conn| !conn.protocol.has_acknowledged(*stat_sn))
            });
            behind.is_empty()
        };
        let passed: Vec<Fence> = self.fences.extract_if(.., is_passed).collect();
        let any = !passed.is_empty();
        for Fence { wire, request, .. } in passed {
            // What was sent on a connection that was lost meanwhile is not acknowledged, and could be taken over.
            self.silence_siblings(wire, &request, Connection::is_suspended);
            self.let_go_of_empty(wire, net, env);
            if let Some(conn) = self.connections.get_mut(&wire) {
                conn.protocol.task_management_done(request.itt, request.done());
                conn.touched = true;
            }
        }
        any
    }
}
