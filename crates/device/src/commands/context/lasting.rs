//! Parts of a command that run to their end even when the command is aborted: background work whose result the command
//! waits for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_scsi::SenseData;
use lunette_store::Completion;

use super::{Cx, INTERNAL_FAILURE};
use crate::coroutine::BackgroundTask;
use crate::coroutine::background::BackgroundCx;
use crate::wait::{Waitable, wake};

/// The result of background work, as a condition to wait for: it holds when there is one.
struct Outcome<T>(Mutex<State<T>>);

struct State<T> {
    has_ended: bool,
    result: Option<T>,
    /// The command, while it waits.
    waiter: Option<Completion>,
}

impl Cx {
    /// Runs a part of the command that goes on to its end even when the command is aborted.
    pub(crate) async fn run_to_end<T, F>(&self, part: impl FnOnce(BackgroundCx) -> F) -> Result<T, SenseData>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let outcome = Arc::new(Outcome(Mutex::new(State { has_ended: false, result: None, waiter: None })));
        let told = Arc::clone(&outcome);
        let task = BackgroundTask::new(|cx| {
            let running = part(cx);
            async move { told.end(running.await) }
        });
        self.start_background(task).await?;
        self.wait(Arc::clone(&outcome) as Arc<dyn Waitable>).await?;
        outcome.state().result.take().ok_or(INTERNAL_FAILURE)
    }
}

impl<T> Outcome<T> {
    fn end(&self, result: T) {
        let waiter = {
            let mut state = self.state();
            (state.has_ended, state.result) = (true, Some(result));
            state.waiter.take()
        };
        if let Some(waiter) = waiter {
            wake(waiter);
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> Waitable for Outcome<T> {
    fn wait(&self, done: Completion) {
        {
            let mut state = self.state();
            if !state.has_ended {
                state.waiter = Some(done);
                return;
            }
        }
        wake(done);
    }
}
