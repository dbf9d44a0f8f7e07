//! The milestones of a sanitize operation, for the tasks that wait for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_scsi::SenseData;
use lunette_store::Completion;

use crate::wait::{Waitable, wake};

/// How far a sanitize operation has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Milestone {
    /// The operation is not saved yet.
    #[default]
    Starting,
    /// The operation is saved: a restart would resume it.
    Begun,
    /// The operation has ended, with success or not.
    Ended,
}

/// A running sanitize operation, shared by its background work and the command that waits for it.
#[derive(Default)]
pub(crate) struct SanitizeOperation(Mutex<State>);

#[derive(Default)]
struct State {
    milestone: Milestone,
    failure: Option<SenseData>,
    waiters: Vec<(Milestone, Completion)>,
}

/// A milestone of an operation, as a condition to wait for.
struct MilestoneWait {
    operation: Arc<SanitizeOperation>,
    milestone: Milestone,
}

impl SanitizeOperation {
    /// A condition that holds once the operation has reached `milestone`.
    pub(crate) fn reached(self: &Arc<Self>, milestone: Milestone) -> Arc<dyn Waitable> {
        Arc::new(MilestoneWait { operation: Arc::clone(self), milestone })
    }

    /// The result of the operation so far.
    ///
    /// # Errors
    ///
    /// Sense data for the requesting command, when the operation has failed.
    pub(crate) fn result(&self) -> Result<(), SenseData> {
        self.state().failure.map_or(Ok(()), Err)
    }

    /// Records that the operation has reached `milestone`, and wakes the tasks that wait for it.
    pub(crate) fn advance(&self, milestone: Milestone, failure: Option<SenseData>) {
        let ready: Vec<_> = {
            let mut state = self.state();
            (state.milestone, state.failure) = (milestone, failure);
            state.waiters.extract_if(.., |(wanted, _)| *wanted <= milestone).collect()
        };
        // Without the lock, because a waiter may run on at once.
        for (_, done) in ready {
            wake(done);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waitable for MilestoneWait {
    fn wait(&self, done: Completion) {
        {
            let mut state = self.operation.state();
            if state.milestone < self.milestone {
                state.waiters.push((self.milestone, done));
                return;
            }
        }
        wake(done);
    }
}
