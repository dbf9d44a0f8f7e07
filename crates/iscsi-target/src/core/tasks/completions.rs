//! The reports of stores, on their way from any thread to the reactor's.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use lunette_reactor::Waker;
use lunette_store::{CompletionSink, Outcome};

/// Outcomes that the reactor has not seen yet.
pub(super) struct CompletionQueue {
    outcomes: Mutex<Vec<(u64, Outcome)>>,
    waker: Waker,
    /// The thread that empties the queue at the end of each batch; it needs no wake-up.
    reader: ThreadId,
}

impl CompletionQueue {
    /// A queue that is read on the thread that makes it.
    pub(super) fn new(waker: Waker) -> Self {
        Self { outcomes: Mutex::default(), waker, reader: thread::current().id() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Moves all outcomes to the end of `into`.
    pub(super) fn drain_to(&self, into: &mut Vec<(u64, Outcome)>) {
        into.append(&mut self.outcomes.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl CompletionSink for CompletionQueue {
    fn complete(&self, tag: u64, outcome: Outcome) {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((tag, outcome));
        if thread::current().id() != self.reader {
            self.waker.wake();
        }
    }
}
