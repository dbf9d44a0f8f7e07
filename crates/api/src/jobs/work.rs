//! Jobs with their work.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::job::{Job, JobOrder, Outcome, Progress};
use super::registry::{Refused, Registry};
use crate::problem::Problem;
use crate::server::{Event, Events};

/// Begins the work of a job, and does not wait for its end. It runs on a thread that has ordered, cancelled or ended a
/// job.
type Begin = Box<dyn FnOnce(JobRun) + Send>;

/// The jobs of a server. A change of the state of a job is an event. Their lock is held for no longer than a copy of
/// references takes, so event loops may report.
#[derive(Debug, Clone, Default)]
pub struct Jobs(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    events: Events,
}

#[derive(Default)]
struct State {
    registry: Registry,
    /// The work of the jobs that wait.
    waiting: BTreeMap<u64, Begin>,
    /// Whether a call of [`Jobs::begin_next`] goes on.
    is_beginning: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("registry", &self.registry).finish_non_exhaustive()
    }
}

impl Jobs {
    /// No jobs. Each new one, and each change of the state of one, is told to `events`.
    pub fn new(events: Events) -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), events }))
    }

    /// Takes a job, whose work `begin` starts as soon as there is a place for it.
    ///
    /// # Errors
    ///
    /// When the same action on the same object has not ended, or there are too many jobs.
    pub fn order(&self, order: JobOrder, begin: impl FnOnce(JobRun) + Send + 'static) -> Result<Arc<Job>, Problem> {
        let now = now();
        let job = {
            let mut state = self.lock();
            let id = state.registry.add(order, now).map_err(|refused| match refused {
                Refused::Twice(_) => Problem::conflict(refused.to_string()),
                Refused::Full => Problem::unavailable(refused.to_string()),
            })?;
            state.waiting.insert(id, Box::new(begin));
            state.registry.find(id, now)
        };
        self.begin_next();
        // As it is now: its work may have ended within the call.
        job.and_then(|job| self.find(job.id).or(Some(job))).ok_or_else(|| Problem::internal("the job is gone already"))
    }

    /// All jobs that are kept, in the order of their numbers.
    pub fn list(&self) -> Vec<Arc<Job>> {
        self.lock().registry.list(now())
    }

    /// The job with this number.
    pub fn find(&self, id: u64) -> Option<Arc<Job>> {
        self.lock().registry.find(id, now())
    }

    /// Asks for the end of a job, and gives the job as it is since. One that runs ends at the next step of its work.
    pub fn cancel(&self, id: u64) -> Option<Arc<Job>> {
        let (changed, _begin) = {
            let mut state = self.lock();
            let changed = state.registry.change(id, |job| job.cancel(now()))?;
            let ended = changed.0.state.is_end();
            (changed, ended.then(|| state.waiting.remove(&id)))
        };
        let job = self.tell(changed);
        self.begin_next();
        Some(job)
    }

    /// Begins the work of jobs that wait, as long as there are places. Work that ends within the call to it leaves the
    /// next job to the loop, so the stack does not grow with the number of jobs.
    fn begin_next(&self) {
        if std::mem::replace(&mut self.lock().is_beginning, true) {
            return;
        }
        while let Some((begin, job)) = self.take_next() {
            let run = JobRun { jobs: self.clone(), id: job.id, has_ended: false };
            self.tell((job, true));
            // Without the lock: the work may end within the call. A panic drops the run, which fails the job.
            let _ = catch_unwind(AssertUnwindSafe(|| begin(run)));
        }
    }

    /// The next job that may begin. When there is none, the call of [`begin_next`](Self::begin_next) is over.
    fn take_next(&self) -> Option<(Begin, Arc<Job>)> {
        let mut state = self.lock();
        while let Some(id) = state.registry.start_next(now()) {
            if let Some(next) = state.waiting.remove(&id).zip(state.registry.find(id, now())) {
                return Some(next);
            }
        }
        state.is_beginning = false;
        None
    }

    fn end(&self, id: u64, outcome: Outcome) {
        let changed = self.lock().registry.change(id, |job| job.end(outcome, now()));
        if let Some(changed) = changed {
            self.tell(changed);
        }
        self.begin_next();
    }

    /// Tells the events of a state that has changed.
    fn tell(&self, (job, has_changed): (Arc<Job>, bool)) -> Arc<Job> {
        if has_changed {
            tracing::info!("{job}");
            let (text, target) = (job.to_string(), job.target.clone());
            self.0.events.send(Event { kind: "job".into(), text, target, initiator: None });
        }
        job
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The work of a job, as its owner reports it. Dropped before its end, the job has failed.
#[derive(Debug)]
pub struct JobRun {
    jobs: Jobs,
    id: u64,
    has_ended: bool,
}

impl JobRun {
    /// Tells how far the work has come, and whether it goes on. It breaks when a client wants its end.
    pub fn report(&self, done_bytes: u64, total_bytes: u64) -> ControlFlow<()> {
        let progress = Progress { done_bytes, total_bytes };
        match self.jobs.lock().registry.change(self.id, |job| job.report(progress)) {
            Some((job, _)) if !job.cancelling => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    /// Ends the job.
    pub fn end(mut self, outcome: Outcome) {
        self.has_ended = true;
        self.jobs.end(self.id, outcome);
    }
}

impl Drop for JobRun {
    fn drop(&mut self) {
        if !self.has_ended {
            let message = "the server has given it up; it is stopping, or its log says why".into();
            self.jobs.end(self.id, Outcome::Failed { message, result: Value::Null });
        }
    }
}

/// The present time, in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
