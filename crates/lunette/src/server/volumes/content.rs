//! Work on the content of volumes that takes long: jobs on threads of their own.

use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use lunette_api::jobs::{Job, JobKind, JobOrder, JobRun, Outcome};
use lunette_api::volumes::Labels;
use lunette_api::{Caller, Problem};
use lunette_device::Readiness;
use lunette_pools::{Name, PoolError, Volume};
use serde_json::{Value, json};

use super::fill::refuse_writer;
use super::quota::Claim;
use super::{At, FREEZE_LIMIT, ServedVolumes, mark, problem, units_of};
use crate::disks::volume::is_unfinished;

impl ServedVolumes {
    pub(super) fn begin_rollback(
        &self,
        at: At,
        snapshot: Name,
        caller: &Caller,
        claim: Option<Claim>,
    ) -> Result<Arc<Job>, Problem> {
        let pool = self.pool(at.pool.as_str())?;
        // Before anything is begun: a name that is not there is the caller's mistake.
        let snapshots = pool.snapshots(&at.volume).map_err(|error| problem(&error))?;
        if !snapshots.iter().any(|known| known.name == snapshot) {
            return Err(problem(&PoolError::NoSnapshot { volume: at.volume, snapshot }));
        }
        let leaving = self.leave(&at)?;
        let (volumes, object, held) = (self.clone(), format!("volumes/{at}"), (leaving, claim));
        self.begin(JobKind::Rollback, object, caller, held, move |run| volumes.roll_back_now(&at, &snapshot, run))
    }

    pub(super) fn begin_flatten(&self, at: At, caller: &Caller) -> Result<Arc<Job>, Problem> {
        let pool = self.pool(at.pool.as_str())?;
        self.check_finished(&at)?;
        let leaving = self.leave(&at)?;
        let object = format!("volumes/{at}");
        self.begin(JobKind::Flatten, object, caller, leaving, move |run| {
            let flattened = pool.flatten(&at.volume, &mut |done, all| run.report(done, all));
            flattened.map(|()| (format!("{at} depends on no other volume"), Value::Null)).map_err(Ended::of)
        })
    }

    /// Takes a job whose work has a thread of its own. `held` is dropped when the work has ended.
    fn begin(
        &self,
        kind: JobKind,
        object: String,
        caller: &Caller,
        held: impl Send + 'static,
        work: impl FnOnce(&JobRun) -> Result<(String, Value), Ended> + Send + 'static,
    ) -> Result<Arc<Job>, Problem> {
        let order = JobOrder { kind, object, target: None, started_by: caller.name.clone(), total_bytes: 0 };
        self.jobs.order(order, move |run| {
            let work = move || {
                let outcome = match work(&run) {
                    Ok((message, result)) => Outcome::Succeeded { message, result },
                    Err(Ended::Stopped) => Outcome::Cancelled { result: Value::Null },
                    Err(Ended::Failed(message)) => Outcome::Failed { message, result: Value::Null },
                };
                drop(held);
                run.end(outcome);
            };
            // Without a thread the run is dropped, which fails the job.
            let _ = thread::Builder::new().name("lunette-volumes".into()).spawn(work);
        })
    }

    /// Gives a volume the content of a snapshot, while its disks stand still.
    fn roll_back_now(&self, at: &At, snapshot: &Name, run: &JobRun) -> Result<(String, Value), Ended> {
        let failed = |problem: Problem| Ended::Failed(problem.detail);
        let pool = self.pool(at.pool.as_str()).map_err(failed)?;
        let look = self.look();
        if let Some(disk) = look.units(at).into_iter().find(|disk| disk.entry.disk.keys.is_some()) {
            let why = "it keeps checksums of its content in memory; remove it from its target first";
            return Err(Ended::Failed(format!("{}: LUN {}: {why}", disk.entry.disk, disk.entry.number)));
        }
        let volume = pool.volume(&at.volume).map_err(Ended::of)?;
        let before = if is_unfinished(&volume.labels) {
            // Nothing of its content is worth a name.
            refuse_writer(&*pool, at).map_err(failed)?;
            None
        } else {
            Some(self.take_before(at).map_err(failed)?)
        };
        let mut is_being_taken = false;
        let rolled_back = self.held(|look| {
            let disks = look.units(at);
            let frozen = self.control.freeze(&units_of(&disks), FREEZE_LIMIT);
            let _frozen = frozen.map_err(|error| Ended::Failed(error.to_string()))?;
            let changeable = disks.iter().try_for_each(|disk| disk.unit.may_change_medium());
            changeable.map_err(|error| Ended::Failed(error.to_string()))?;
            let rolled_back = pool.roll_back(&at.volume, snapshot, &mut |done, all| run.report(done, all));
            let readiness = match &rolled_back {
                Ok(()) => Readiness::Ready,
                // The pool makes it again, and takes away what is written until then.
                Err(PoolError::Unfinished { .. }) => Readiness::NotReady,
                Err(error) => {
                    is_being_taken = matches!(error, PoolError::BeingTaken(_));
                    return rolled_back.map_err(Ended::of);
                }
            };
            for disk in &disks {
                disk.unit.set_readiness(readiness);
                disk.unit.medium_changed();
            }
            rolled_back.map_err(|error| Ended::Failed(unfinished(at, &error)))?;
            let Volume { len_bytes, labels, .. } = pool.volume(&at.volume).map_err(Ended::of)?;
            if is_unfinished(&labels) {
                pool.set_labels(&at.volume, &mark::without(labels)).map_err(Ended::of)?;
            }
            self.serve_len(&look, at, len_bytes).map_err(failed)
        });
        if let (true, Some(before)) = (is_being_taken, &before) {
            // The content of before is that of now.
            pool.remove_snapshot(&at.volume, before).map_err(Ended::of)?;
        }
        rolled_back?;
        let message = match &before {
            Some(before) => format!("{at} has the content of {snapshot}; its content of before is {before}"),
            None => format!("{at} has the content of {snapshot}; what was received since is gone"),
        };
        Ok((message, json!({ "before": before.as_ref().map(Name::as_str) })))
    }

    /// Takes a snapshot of the content that a roll back replaces.
    pub(super) fn take_before(&self, at: &At) -> Result<Name, Problem> {
        let before = name_of_before();
        self.take(std::slice::from_ref(at), &before, &Labels::new()).map(|_| before)
    }
}

/// Why work has ended before it was done.
enum Ended {
    Stopped,
    Failed(String),
}

impl Ended {
    fn of(error: PoolError) -> Self {
        match error {
            PoolError::Stopped => Self::Stopped,
            error => Self::Failed(error.to_string()),
        }
    }
}

fn unfinished(at: &At, error: &PoolError) -> String {
    format!("{error}; the disks of {at} are not ready until a roll back of it has succeeded")
}

/// The name of the snapshot of the content that a roll back replaces: the moment in milliseconds since 1970.
fn name_of_before() -> Name {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    format!("before-rollback-{now}").parse().expect("letters, digits and dashes")
}
