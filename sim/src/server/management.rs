//! Task management functions, and the answers that wait: for stores that still work, and for other connections.

use lunette_pdu::{LogoutResponseCode, SerialNumber, TaskManagementFunction as Function};
use lunette_session::target::TaskManagement;

use super::Server;
use crate::env::Env;
use crate::request::lun;
use crate::wire::WireId;

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
    pub(super) fn manage_tasks(&mut self, id: WireId, request: &TaskManagement, env: &mut Env) {
        env.note(|| format!("wire {id}: {}", request.function));
        let covered = |order: lunette_session::target::CommandOrder| {
            request.before.is_none_or(|before| order.is_covered_by(before))
        };
        let doomed = match request.function {
            Function::ABORT_TASK if request.referenced.is_none() => self.orphans(),
            Function::ABORT_TASK => {
                self.jobs_where(|job| job.wire == id && Some(job.tag) == request.referenced && !job.orphaned)
            }
            Function::ABORT_TASK_SET | Function::CLEAR_TASK_SET | Function::LOGICAL_UNIT_RESET => {
                self.jobs_where(|job| lun(job.request.extent.unit) == request.lun && covered(job.order))
            }
            _ => self.jobs_where(|job| covered(job.order)),
        };
        self.silence_siblings(id, request);
        let barrier = self.open_barrier(Behind::TaskManagement(id, *request));
        for key in doomed {
            env.note(|| format!("command {} is aborted", self.jobs[&key].request.user));
            self.abort(key, Some(barrier));
        }
        self.pass(barrier, env);
    }

    /// Tasks of other connections that wait for data only to be answered are not answered after a request that covers them.
    fn silence_siblings(&mut self, id: WireId, request: &TaskManagement) {
        let Some(before) = request.before else { return };
        let lun = match request.function {
            Function::ABORT_TASK => return,
            Function::TARGET_WARM_RESET | Function::TARGET_COLD_RESET => None,
            _ => Some(request.lun),
        };
        for other in self.siblings(id) {
            if let Some(conn) = self.connections.get_mut(&other) {
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
    pub(crate) fn pass_fences(&mut self) -> bool {
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
            if let Some(conn) = self.connections.get_mut(&wire) {
                conn.protocol.task_management_done(request.itt, request.done());
                conn.touched = true;
            }
        }
        any
    }
}
