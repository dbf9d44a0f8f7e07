//! Task management functions, and the answers that wait for stores that still work.

use std::collections::BTreeMap;

use lunette_pdu::{
    LogoutResponseCode, SerialNumber, TaskManagementFunction as Function, TaskManagementResponseCode as Answer,
};
use lunette_session::iscsi_target::{Connection, Session, TaskManagement};
use lunette_session::keys::TaskReporting;

use super::Server;
use crate::env::Env;
use crate::request::lun;
use crate::scenario::UNITS;
use crate::wire::{Network, WireId};

/// What happens when no store works any more for what was aborted.
pub(super) enum Behind {
    /// Connections are told of tasks that the first one has ended.
    News(WireId, BTreeMap<(WireId, usize), SerialNumber>),
    TaskManagement(WireId, TaskManagement),
    Logout(WireId),
    Login(WireId),
}

/// What QUERY ASYNCHRONOUS EVENT finds, when it finds something.
pub(crate) const EVENT: [u8; 3] = [0x06, 0x29, 0x00];

impl Server {
    pub(super) fn manage_tasks(&mut self, id: WireId, request: &TaskManagement, net: &mut Network, env: &mut Env) {
        env.note(|| format!("wire {id}: {}", request.function));
        match (request.function, request.referenced) {
            (Function::TASK_REASSIGN, _) => self.reassign(id, request, net, env),
            (Function::ABORT_TASK, None) => self.abort_elsewhere(id, request, net, env),
            (Function::QUERY_TASK, _) => self.query_elsewhere(id, request, net, env),
            (function, _) if is_of_unit(function) && !(0..UNITS).any(|unit| lun(unit) == request.lun) => {
                self.answer(id, request, Answer::LUN_DOES_NOT_EXIST);
            }
            (Function::QUERY_TASK_SET | Function::QUERY_ASYNCHRONOUS_EVENT, _) => self.answer_query(id, request, env),
            _ => self.abort_covered(id, request, env),
        }
    }

    /// Aborts what the request covers.
    fn abort_covered(&mut self, id: WireId, request: &TaskManagement, env: &mut Env) {
        let covered = |order: lunette_session::iscsi_target::CommandOrder| {
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
        let affected = if request.function == Function::ABORT_TASK {
            BTreeMap::new()
        } else {
            self.affected_by(&doomed, id, request)
        };
        // Who is told that a task has ended may do its work anew.
        let news = self.open_barrier(Behind::News(id, affected));
        for key in &doomed {
            self.note_abort(*key, env);
            self.abort(*key, Some(news));
        }
        self.abort_all(id, request, &doomed, env);
        self.pass(news, env);
    }

    /// Where these jobs are, with their logical units and the number that theirs are smaller than.
    fn affected_by(
        &self,
        doomed: &[u64],
        issuing: WireId,
        request: &TaskManagement,
    ) -> BTreeMap<(WireId, usize), SerialNumber> {
        let Some(session) = self.session_of(issuing) else { return BTreeMap::new() };
        let before = request.before.unwrap_or_else(|| session.exp_cmd_sn());
        let jobs = doomed.iter().filter_map(|key| self.jobs.get(key)).filter(|job| !job.orphaned);
        jobs.map(|job| ((job.wire, job.request.extent.unit), before)).collect()
    }

    /// RFC 7143 section 4.2.3.4: with FastAbort no more data comes on the issuing connection, and the others are told.
    fn tell_of_aborts(&mut self, issuing: WireId, affected: &BTreeMap<(WireId, usize), SerialNumber>) {
        for ((id, unit), before) in affected {
            let Some(conn) = self.connections.get_mut(id) else { continue };
            if *id != issuing {
                conn.protocol.tasks_terminated(lun(*unit), *before);
            } else if conn.session.as_ref().is_some_and(|session| is_fast(session)) {
                conn.protocol.forget_data(Some(lun(*unit)));
            }
            conn.touched = true;
        }
    }

    fn answer_query(&mut self, id: WireId, request: &TaskManagement, env: &mut Env) {
        let Some(session) = self.session_of(id) else { return };
        let has_tasks = |id| self.connections.get(&id).is_some_and(|conn| conn.protocol.has_tasks(request.lun));
        let found = match request.function {
            Function::QUERY_TASK_SET => self.sessions.members(session.tsih).any(has_tasks).then_some([0; 3]),
            _ => env.dice.coin().then_some(EVENT),
        };
        match found {
            Some(information) => self.succeed(id, request, information),
            None => self.answer(id, request, Answer::FUNCTION_COMPLETE),
        }
    }

    /// TARGET COLD RESET ends all sessions, after its answer.
    pub(super) fn drop_all(&mut self, asked: WireId, net: &mut Network, env: &mut Env) {
        for id in self.ids() {
            if id == asked && !self.is_parked(id) {
                self.end_session_part(id, env);
                self.close_after_send(id);
            } else if let Some(conn) = self.connections.get_mut(&id).filter(|conn| !conn.protocol.is_suspended()) {
                conn.protocol.drop_session();
                conn.touched = true;
            } else {
                self.cut(id, net, env);
            }
        }
    }

    /// Aborts these tasks, and answers when nothing works for them any more.
    pub(super) fn abort_all(&mut self, id: WireId, request: &TaskManagement, doomed: &[u64], env: &mut Env) {
        let barrier = self.open_barrier(Behind::TaskManagement(id, *request));
        for key in doomed {
            self.note_abort(*key, env);
            self.abort(*key, Some(barrier));
        }
        self.pass(barrier, env);
    }

    fn note_abort(&self, key: u64, env: &mut Env) {
        if let Some(job) = self.jobs.get(&key).filter(|job| !job.orphaned) {
            env.note(|| format!("command {} is aborted", job.request.user));
        }
    }

    /// Tasks of other connections that wait for data only to be answered are not answered after a request that covers them.
    pub(super) fn silence_siblings(
        &mut self,
        id: WireId,
        request: &TaskManagement,
        concerned: impl Fn(&Connection) -> bool,
    ) {
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
        let Some((count, _)) = self.barriers.get_mut(&barrier) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        let Some((_, behind)) = self.barriers.remove(&barrier) else { return };
        match behind {
            Behind::TaskManagement(id, request) => self.answer_behind_fence(id, request, env),
            Behind::News(id, affected) => self.tell_of_aborts(id, &affected),
            Behind::Logout(id) => self.answer_logout(id, LogoutResponseCode::CLOSED),
            Behind::Login(id) => self.finish_login(id, env),
        }
    }
}

pub(super) fn is_fast(session: &Session) -> bool {
    session.parameters.task_reporting == TaskReporting::FastAbort
}

fn is_of_unit(function: Function) -> bool {
    let of_all = [Function::TARGET_WARM_RESET, Function::TARGET_COLD_RESET];
    function != Function::ABORT_TASK && !of_all.contains(&function)
}
