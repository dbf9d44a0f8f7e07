//! All jobs that are kept, in the order of their numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::job::{Job, JobOrder, JobState};
use crate::limits::{JOB_AGE, MAX_JOBS, MAX_RUNNING_JOBS, MAX_STOPPING_JOBS};

/// The jobs. Readers share them, so no reader copies while the registry is locked.
#[derive(Debug, Default)]
pub(super) struct Registry {
    jobs: BTreeMap<u64, Arc<Job>>,
    last_id: u64,
}

/// Why a job is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// The action on the object has not ended yet.
    #[error("job {0} does that already; wait for its end, or cancel it")]
    Twice(u64),
    /// All places are taken by jobs that have not ended.
    #[error("{MAX_JOBS} jobs have not ended yet; wait for one of them, or cancel it")]
    Full,
}

impl Registry {
    /// Adds a job that waits. The oldest one that has ended makes room for it.
    pub(super) fn add(&mut self, order: JobOrder, now: u64) -> Result<u64, Refused> {
        self.forget_old(now);
        let is_same = |job: &&Arc<Job>| !job.state.is_end() && (job.kind, &job.object) == (order.kind, &order.object);
        if let Some(job) = self.jobs.values().find(is_same) {
            return Err(Refused::Twice(job.id));
        }
        if self.jobs.len() >= MAX_JOBS {
            let ended = self.jobs.values().filter(|job| job.state.is_end());
            let oldest = ended.min_by_key(|job| (job.ended, job.id)).ok_or(Refused::Full)?.id;
            self.jobs.remove(&oldest);
        }
        self.last_id += 1;
        self.jobs.insert(self.last_id, Arc::new(Job::new(self.last_id, order, now)));
        Ok(self.last_id)
    }

    /// Begins the job that has waited longest, unless as many run as may. A cancelled job leaves its place before its
    /// work has stopped: work that hangs would keep it for ever.
    pub(super) fn start_next(&mut self, now: u64) -> Option<u64> {
        let running = self.jobs.values().filter(|job| job.state == JobState::Running);
        let (stopping, working): (Vec<_>, Vec<_>) = running.partition(|job| job.cancelling);
        if working.len() + stopping.len().saturating_sub(MAX_STOPPING_JOBS) >= MAX_RUNNING_JOBS {
            return None;
        }
        let next = self.jobs.values().find(|job| job.state == JobState::Queued)?.id;
        self.change(next, |job| job.start(now));
        Some(next)
    }

    /// Applies an event to a job. Gives the job as it is since, and whether its state has changed.
    pub(super) fn change(&mut self, id: u64, event: impl FnOnce(&mut Job)) -> Option<(Arc<Job>, bool)> {
        let job = self.jobs.get_mut(&id)?;
        let before = job.state;
        event(Arc::make_mut(job));
        Some((Arc::clone(job), job.state != before))
    }

    pub(super) fn find(&mut self, id: u64, now: u64) -> Option<Arc<Job>> {
        self.forget_old(now);
        self.jobs.get(&id).cloned()
    }

    pub(super) fn list(&mut self, now: u64) -> Vec<Arc<Job>> {
        self.forget_old(now);
        self.jobs.values().cloned().collect()
    }

    /// Forgets the jobs whose end is long ago.
    fn forget_old(&mut self, now: u64) {
        let is_old = |ended: u64| now.saturating_sub(ended) >= JOB_AGE.as_secs();
        self.jobs.retain(|_, job| !job.ended.is_some_and(is_old));
    }
}

#[cfg(test)]
mod tests;
