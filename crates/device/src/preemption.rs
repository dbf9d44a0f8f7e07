//! The end of tasks that another server of a shared unit has preempted (PREEMPT AND ABORT).
//!
//! The other server answers its command when all servers know the new registrations. By then no task of a preempted
//! nexus may go on here, so the gateway is told that they are known when the tasks have ended. That is background work
//! of the unit, for there is no command here that could wait for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lunette_scsi::AdditionalSense;
use lunette_store::{Completion, StoreError};

use crate::coroutine::BackgroundTask;
use crate::coroutine::background::BackgroundCx;
use crate::nexus::ItNexus;
use crate::unit::LogicalUnit;
use crate::wait::{Waitable, wake};

/// The function to call when tasks have ended. Dropped instead when the server ends first.
pub(crate) type Ended = Box<dyn FnOnce() + Send>;

/// The preemptions that wait for the background work of a unit.
#[derive(Default)]
pub(crate) struct Preemptions(Mutex<State>);

#[derive(Default)]
struct State {
    has_begun: bool,
    due: VecDeque<Preemption>,
    /// The background work, while nothing is due.
    waiter: Option<Completion>,
}

struct Preemption {
    nexuses: Vec<Arc<ItNexus>>,
    ended: Ended,
}

impl Preemptions {
    /// Ends the tasks of these nexuses, and then calls `ended`.
    pub(crate) fn add(&self, nexuses: Vec<Arc<ItNexus>>, ended: Ended) {
        let waiter = {
            let mut state = self.state();
            state.due.push_back(Preemption { nexuses, ended });
            state.waiter.take()
        };
        if let Some(waiter) = waiter {
            wake(waiter);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds when a preemption is due.
impl Waitable for Preemptions {
    fn wait(&self, done: Completion) {
        {
            let mut state = self.state();
            if state.due.is_empty() {
                state.waiter = Some(done);
                return;
            }
        }
        wake(done);
    }
}

/// The work of a shared unit, when it was not begun before.
pub(crate) fn begin(unit: &Arc<LogicalUnit>) -> Option<BackgroundTask> {
    let preemptions = Arc::clone(unit.preemptions());
    if !unit.config().shared || std::mem::replace(&mut preemptions.state().has_begun, true) {
        return None;
    }
    let unit = Arc::downgrade(unit);
    Some(BackgroundTask::new(move |cx| async move {
        // The driver has broken its contract: only the log can be told.
        if let Err(error) = run(&cx, &unit, &preemptions).await {
            tracing::error!(%error, "preempted tasks are not ended any more");
        }
    }))
}

async fn run(cx: &BackgroundCx, unit: &Weak<LogicalUnit>, preemptions: &Arc<Preemptions>) -> Result<(), StoreError> {
    loop {
        cx.wait(Arc::clone(preemptions) as Arc<dyn Waitable>).await?;
        let Some(unit) = unit.upgrade() else { return Ok(()) };
        let due = preemptions.state().due.pop_front();
        if let Some(Preemption { nexuses, ended }) = due {
            abort(cx, &unit, &nexuses).await?;
            ended();
        }
    }
}

/// Ends the tasks of these nexuses on `unit`.
pub(crate) async fn abort(
    cx: &BackgroundCx,
    unit: &Arc<LogicalUnit>,
    nexuses: &[Arc<ItNexus>],
) -> Result<(), StoreError> {
    let mut attached = unit.nexuses().attached();
    attached.retain(|itl| nexuses.contains(&itl.it_nexus));
    let lost = cx.abort(attached.iter().map(|itl| (itl.nexus, itl.lun)).collect(), unit).await?;
    for itl in attached.iter().filter(|itl| lost.contains(&itl.nexus)) {
        itl.unit_attentions.raise(AdditionalSense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR);
    }
    Ok(())
}
