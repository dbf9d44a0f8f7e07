//! Tasks, from command to response, on a device that takes its time.

use std::sync::Arc;

use lunette_buffer::{Buffer, Run};
use lunette_session::iscsi_target::{Command, CommandOrder, Response, TaskTag};
use lunette_session::limits::COMMAND_WINDOW;

use super::Server;
use crate::env::{Env, Happening};
use crate::request::Request;
use crate::wire::WireId;

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 0x02;
const BUSY: u8 = 0x08;

/// Fixed format, ILLEGAL REQUEST.
pub(crate) const SENSE: [u8; 18] = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0, 0, 0];

pub(super) struct Job {
    pub(super) wire: WireId,
    pub(super) tag: TaskTag,
    pub(super) order: CommandOrder,
    pub(super) request: Request,
    data: Option<Buffer>,
    /// For what it reads.
    pub(super) answer: Option<Buffer>,
    /// Its data is on its way.
    pub(super) collects: bool,
    /// The store has it: it cannot be called back.
    begun: bool,
    /// Nobody wants the outcome any more.
    pub(super) orphaned: bool,
    pub(super) barriers: Vec<u64>,
}

impl Server {
    pub(super) fn start(&mut self, id: WireId, command: &Command, env: &mut Env) {
        let Some(request) = Request::parse(command) else {
            return env.fail(format!("a command came that was not sent: {command:?}"));
        };
        env.note(|| format!("wire {id}: command {} ({})", request.user, command.order.cmd_sn));
        self.check_order(id, command, env);
        let delivered = env.oracle.delivered(request.user, request.kind, request.extent);
        env.check(delivered);
        let len = request.extent.blocks * env.scenario.load.block_len;
        let expected_out = if request.kind.writes() { len } else { 0 };
        if command.data_out_len as usize != expected_out || (command.data_in_len > 0) != request.kind.reads() {
            env.fail(format!("command {} came with other lengths", request.user));
        }
        if env.dice.one_in(40) {
            let status = env.dice.pick(&[CHECK_CONDITION, BUSY]);
            return self.refuse(id, command.task, request, status, env);
        }
        self.last_job += 1;
        let job = Job {
            wire: id,
            tag: command.task,
            order: command.order,
            request,
            data: None,
            answer: None,
            collects: false,
            begun: false,
            orphaned: false,
            barriers: Vec::new(),
        };
        self.jobs.insert(self.last_job, job);
        if !self.supply(self.last_job, env) {
            env.tally.happening("wait for buffers");
            self.starving.push_back(self.last_job);
        }
    }

    /// RFC 7143 section 4.2.2.1: commands reach the device in the order of their numbers, and no more at a time than the
    /// window has.
    fn check_order(&mut self, id: WireId, command: &Command, env: &mut Env) {
        let Some(session) = self.session_of(id) else { return };
        let cmd_sn = command.order.cmd_sn;
        if let Some(last) = self.delivered.insert(session.tsih.0, cmd_sn).filter(|last| !last.is_before(cmd_sn)) {
            env.fail(format!("CmdSN {cmd_sn} was delivered after {last}"));
        }
        if self.jobs.values().filter(|job| !job.orphaned).count() > COMMAND_WINDOW as usize {
            env.fail("more commands than the window has room for");
        }
    }

    pub(super) fn refuse(&mut self, id: WireId, tag: TaskTag, request: Request, status: u8, env: &mut Env) {
        let noted = env.oracle.refused(request.user, status);
        env.check(noted);
        let sense = if status == CHECK_CONDITION { SENSE.to_vec() } else { Vec::new() };
        self.complete(id, tag, Response { status, sense, ..Response::default() });
    }

    /// The device works on it from now on.
    pub(super) fn begin(&mut self, key: u64, env: &mut Env) {
        let at = env.now + env.dice.micros(0, env.scenario.load.work_us);
        env.enter(at, Happening::Done(key));
        if let Some(job) = self.jobs.get_mut(&key) {
            job.begun = env.dice.coin();
        }
    }

    pub(super) fn data_arrived(&mut self, id: WireId, tag: TaskTag, buffer: Buffer, env: &mut Env) {
        let Some(key) = self.find(id, tag) else {
            return env.fail("data came for a task that the device does not have");
        };
        if let Some(job) = self.jobs.get_mut(&key) {
            (job.data, job.collects) = (Some(buffer), false);
            self.begin(key, env);
        }
    }

    pub(super) fn find(&self, id: WireId, tag: TaskTag) -> Option<u64> {
        let mut alive = self.jobs.iter().filter(|(_, job)| !job.orphaned);
        alive.find(|(_, job)| job.wire == id && job.tag == tag).map(|(key, _)| *key)
    }

    /// The device is done with a command, unless it was called back.
    pub(crate) fn done(&mut self, key: u64, env: &mut Env) {
        let Some(mut job) = self.jobs.remove(&key) else { return };
        let response = execute(&mut job, env);
        if job.orphaned {
            for barrier in job.barriers {
                self.pass(barrier, env);
            }
        } else {
            self.complete(job.wire, job.tag, response);
        }
    }

    fn complete(&mut self, id: WireId, tag: TaskTag, response: Response) {
        if let Some(conn) = self.connections.get_mut(&id) {
            conn.protocol.complete(tag, response);
            conn.touched = true;
        }
    }

    // Abortion.

    /// Ends a task without a response. What its store has begun goes on; the barrier learns when it is done.
    pub(super) fn abort(&mut self, key: u64, barrier: Option<u64>) {
        let Some(job) = self.jobs.get_mut(&key) else { return };
        if !job.orphaned
            && let Some(conn) = self.connections.get_mut(&job.wire)
        {
            conn.protocol.abort(job.tag);
            conn.touched = true;
        }
        if !job.begun {
            self.jobs.remove(&key);
            return;
        }
        job.orphaned = true;
        if let Some(barrier) = barrier {
            self.hold_up(barrier, key);
        }
    }

    /// The protocol has answered the task itself.
    pub(super) fn forget(&mut self, id: WireId, tag: TaskTag, env: &mut Env) {
        match self.find(id, tag) {
            Some(key) => self.abort(key, None),
            None => env.fail("a task was aborted that the device does not have"),
        }
    }

    /// The connection is gone: so are its tasks.
    pub(super) fn abandon(&mut self, id: WireId, barrier: Option<u64>, env: &mut Env) {
        for key in self.jobs_where(|job| job.wire == id && !job.orphaned) {
            env.note(|| format!("command {} ends with its connection", self.jobs[&key].request.user));
            self.abort(key, barrier);
        }
    }

    pub(super) fn jobs_where(&self, concerned: impl Fn(&Job) -> bool) -> Vec<u64> {
        self.jobs.iter().filter(|(_, job)| concerned(job)).map(|(key, _)| *key).collect()
    }

    /// Tasks that nobody waits for and that still run.
    pub(super) fn orphans(&self) -> Vec<u64> {
        self.jobs_where(|job| job.orphaned)
    }
}

/// The bytes in pieces, as a store in memory might have them.
fn runs(bytes: &[u8], env: &mut Env) -> impl Iterator<Item = Run> {
    let len = env.dice.between(1, bytes.len().max(1) as u64) as usize;
    bytes.chunks(len).map(|run| Run { memory: Arc::new(run.to_vec()), range: 0..run.len() })
}

fn execute(job: &mut Job, env: &mut Env) -> Response {
    let Request { user, kind, extent, .. } = job.request;
    env.note(|| format!("command {user} runs"));
    let len = extent.blocks * env.scenario.load.block_len;
    if job.data.as_ref().is_some_and(|data| data.len() != len) {
        env.fail(format!("command {user} has a buffer of another length"));
    }
    let outcome = env.oracle.execute(user, job.data.as_deref());
    let found = env.check(outcome).unwrap_or_default();
    let mut response = Response { status: GOOD, ..Response::default() };
    if kind.writes() {
        response.data_out_transfer_len = len as u64;
    }
    if !env.has_failed()
        && let Some(mut buffer) = job.answer.take()
    {
        let mut bytes = vec![0; len];
        env.oracle.medium.fill(extent.unit, extent.first, &found, &mut bytes);
        if env.dice.coin() || !buffer.lend(runs(&bytes, env)) {
            buffer.copy_from_slice(&bytes);
        }
        response.data_in = Some(buffer.into());
    }
    response
}
