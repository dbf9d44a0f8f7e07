//! An operation, as those see it who wait for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_scsi::SenseData;
use lunette_store::Completion;

use crate::wait::{Waitable, wake};

/// How far an operation has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Milestone {
    /// Not recorded yet.
    #[default]
    Starting,
    /// A restart would go on with it.
    Begun,
    /// It has ended, one way or the other.
    Ended,
}

/// One sanitize operation.
#[derive(Default)]
pub(crate) struct SanitizeOperation(Mutex<State>);

#[derive(Default)]
struct State {
    milestone: Milestone,
    failure: Option<SenseData>,
    waiters: Vec<(Milestone, Completion)>,
}

/// A phase of an operation, as something to wait for.
struct MilestoneWait {
    operation: Arc<SanitizeOperation>,
    milestone: Milestone,
}

impl SanitizeOperation {
    /// The phase, or a later one.
    pub(crate) fn reached(self: &Arc<Self>, milestone: Milestone) -> Arc<dyn Waitable> {
        Arc::new(MilestoneWait { operation: Arc::clone(self), milestone })
    }

    /// How it stands.
    ///
    /// # Errors
    ///
    /// Sense data for the command that has asked for it, when it has failed.
    pub(crate) fn result(&self) -> Result<(), SenseData> {
        self.state().failure.map_or(Ok(()), Err)
    }

    /// It has come as far as `phase`.
    pub(crate) fn advance(&self, milestone: Milestone, failure: Option<SenseData>) {
        let ready: Vec<_> = {
            let mut state = self.state();
            (state.milestone, state.failure) = (milestone, failure);
            state.waiters.extract_if(.., |(wanted, _)| *wanted <= milestone).collect()
        };
        // Without the lock: a waiter may go on at once.
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
