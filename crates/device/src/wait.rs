//! Conditions that a task waits for and that other tasks bring about.

use lunette_store::{Completion, Outcome};

/// A condition that other tasks bring about.
pub trait Waitable: Send + Sync {
    /// Completes `done`, with success and without a buffer, when the condition holds: during this call, or later on the
    /// thread of another task.
    ///
    /// When the waiting task is dropped first, `done` may be dropped unused.
    fn wait(&self, done: Completion);
}

/// Tells a waiter that its condition holds. The waiter may run on at once, so the caller holds no lock.
pub(crate) fn wake(waiter: Completion) {
    waiter.complete(Outcome::new(Ok(()), None));
}
