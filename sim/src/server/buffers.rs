//! Buffers of a pool that may be short. A task gets all that it needs at once, so none that has some waits for more.

use super::Server;
use super::tasks::Job;
use crate::env::Env;
use crate::wire::WireId;

pub(super) const TASK_SET_FULL: u8 = 0x28;

impl Server {
    /// Gives a job its buffers, and lets it go on. False when the pool does not have them.
    pub(super) fn supply(&mut self, key: u64, env: &mut Env) -> bool {
        let Some(job) = self.jobs.get_mut(&key) else { return true };
        let (wire, tag, kind) = (job.wire, job.tag, job.request.kind);
        let len = job.request.extent.blocks * env.scenario.load.block_len;
        // Without memory, so that it may be lent.
        let data_in = if kind.reads() { self.pool.reserve(len) } else { None };
        let data_out = if kind.writes() { self.pool.take(len) } else { None };
        if kind.reads() != data_in.is_some() || kind.writes() != data_out.is_some() {
            return false;
        }
        job.answer = data_in;
        let Some(data_out) = data_out else {
            self.begin(key, env);
            return true;
        };
        job.collects = true;
        if let Some(conn) = self.connections.get_mut(&wire) {
            conn.protocol.want_data(tag, data_out);
            conn.touched = true;
        }
        true
    }

    /// Gives buffers to jobs that wait for them, and has connections give back what they keep. True when any goes on.
    pub(crate) fn feed(&mut self, env: &mut Env) -> bool {
        let mut moved = false;
        for _ in 0..self.starving.len() {
            let Some(key) = self.starving.pop_front() else { break };
            if self.supply(key, env) {
                moved = true;
            } else if self.holds_up_its_data(key) {
                env.tally.happening("TASK SET FULL");
                self.give_up(key, env);
                moved = true;
            } else {
                self.starving.push_back(key);
            }
        }
        if !self.starving.is_empty() {
            for conn in self.connections.values_mut() {
                if conn.protocol.make_room(env.now) {
                    conn.touched = true;
                    moved = true;
                }
            }
        }
        moved
    }

    /// Whether a job without a buffer keeps the data of others from being read, for its own stands before it in the stream.
    fn holds_up_its_data(&self, key: u64) -> bool {
        let Some(Job { wire, tag, .. }) = self.jobs.get(&key) else { return false };
        let stops = self.connections.get(wire).is_some_and(|conn| conn.protocol.stopped_by() == Some(*tag));
        stops
            && (self.keeps_data_waiting(*wire)
                || self.siblings(*wire).into_iter().any(|id| self.keeps_data_waiting(id)))
    }

    /// Whether a connection is not read from while jobs of it wait for data.
    fn keeps_data_waiting(&self, id: WireId) -> bool {
        let is_read = self.connections.get(&id).is_none_or(|conn| conn.protocol.wants_input());
        !is_read && self.jobs.values().any(|job| job.wire == id && job.collects && !job.orphaned)
    }

    fn give_up(&mut self, key: u64, env: &mut Env) {
        let Some(job) = self.jobs.remove(&key) else { return };
        self.refuse(job.wire, job.tag, job.request, TASK_SET_FULL, env);
    }
}
