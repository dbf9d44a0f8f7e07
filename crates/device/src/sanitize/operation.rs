//! An operation, as those see it who wait for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_scsi::SenseData;
use lunette_store::Completion;

use crate::wait::{Waitable, wake};

/// How far an operation has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
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
pub(crate) struct Operation(Mutex<State>);

#[derive(Default)]
struct State {
    phase: Phase,
    failure: Option<SenseData>,
    waiters: Vec<(Phase, Completion)>,
}

/// A phase of an operation, as something to wait for.
struct Reached {
    operation: Arc<Operation>,
    phase: Phase,
}

impl Operation {
    /// The phase, or a later one.
    pub(crate) fn reached(self: &Arc<Self>, phase: Phase) -> Arc<dyn Waitable> {
        Arc::new(Reached { operation: Arc::clone(self), phase })
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
    pub(crate) fn advance(&self, phase: Phase, failure: Option<SenseData>) {
        let ready: Vec<_> = {
            let mut state = self.state();
            (state.phase, state.failure) = (phase, failure);
            state.waiters.extract_if(.., |(wanted, _)| *wanted <= phase).collect()
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

impl Waitable for Reached {
    fn wait(&self, done: Completion) {
        {
            let mut state = self.operation.state();
            if state.phase < self.phase {
                state.waiters.push((self.phase, done));
                return;
            }
        }
        wake(done);
    }
}
