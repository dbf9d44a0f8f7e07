//! The record of failed flushes.
//!
//! Linux reports a write-back error once per open file. The first `fdatasync`, or write with `RWF_DSYNC`, consumes the
//! report; a later one succeeds, although the lost data stays lost. Two that run at the same time race for the report,
//! and the loser reports a false success.
//!
//! So a durable operation that succeeded is acknowledged only when all that ran concurrently have ended too, and the
//! first failure is remembered: it fails the operations held back, and every later one.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Completion, Outcome, StoreError};

/// Tracks the durable operations of a store, and decides when each is acknowledged.
#[derive(Debug, Default)]
pub(crate) struct DurabilityTracker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next_ticket: u64,
    running: BTreeSet<u64>,
    held: Vec<HeldCompletion>,
    failed: Option<Arc<io::Error>>,
}

/// An operation that succeeded according to the system, held back until its result is certain.
#[derive(Debug)]
struct HeldCompletion {
    /// Operations with smaller tickets ran concurrently.
    before: u64,
    outcome: Outcome,
    done: Completion,
}

impl State {
    fn result(&self) -> Result<(), StoreError> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(StoreError::FlushFailed(Arc::clone(error))))
    }
}

impl DurabilityTracker {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an operation has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock().failed.is_some()
    }

    /// Forgets a failure: what was lost is known, and later operations count by themselves.
    pub(crate) fn forget_failure(&self) {
        self.lock().failed = None;
    }

    /// Registers a durable operation before it starts. Fails when an earlier one has failed.
    pub(crate) fn start(self: &Arc<Self>) -> Result<DurableOp, StoreError> {
        let mut state = self.lock();
        state.result()?;
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.running.insert(ticket);
        Ok(DurableOp { tracker: Arc::clone(self), ticket })
    }
}

/// A durable operation in progress.
#[derive(Debug)]
pub(crate) struct DurableOp {
    tracker: Arc<DurabilityTracker>,
    ticket: u64,
}

impl DurableOp {
    /// Ends the operation with the result of the system, now or when that result is certain.
    pub(crate) fn finish(self, outcome: Outcome, done: Completion) {
        let mut ready = Vec::new();
        {
            let mut state = self.tracker.lock();
            state.running.remove(&self.ticket);
            if let Err(StoreError::FlushFailed(error)) = &outcome.result {
                state.failed.get_or_insert_with(|| Arc::clone(error));
            }
            let before = state.next_ticket;
            state.held.push(HeldCompletion { before, outcome, done });
            let oldest =
                if state.failed.is_some() { u64::MAX } else { state.running.first().copied().unwrap_or(u64::MAX) };
            ready.extend(state.held.extract_if(.., |held| held.before <= oldest || held.outcome.result.is_err()));
            for held in &mut ready {
                if held.outcome.result.is_ok() {
                    held.outcome.result = state.result();
                }
            }
        }
        for held in ready {
            held.done.complete(held.outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn watched() -> (Completion, Receiver<Result<(), StoreError>>) {
        let (tx, rx) = channel();
        (Completion::call(move |outcome| drop(tx.send(outcome.result))), rx)
    }

    fn ok() -> Outcome {
        Outcome::new(Ok(()), None)
    }

    fn failed() -> Outcome {
        Outcome::new(Err(StoreError::FlushFailed(Arc::new(io::ErrorKind::Other.into()))), None)
    }

    #[test]
    fn an_operation_alone_ends_at_once() {
        let durable = Arc::new(DurabilityTracker::default());
        let (done, rx) = watched();
        durable.start().unwrap().finish(ok(), done);
        assert!(rx.try_recv().unwrap().is_ok());
    }

    #[test]
    fn a_success_waits_for_those_beside_it_and_not_for_later_ones() {
        let durable = Arc::new(DurabilityTracker::default());
        let (first, second) = (durable.start().unwrap(), durable.start().unwrap());
        let (done, rx) = watched();
        second.finish(ok(), done);
        let later = durable.start().unwrap();
        assert!(rx.try_recv().is_err(), "the first may still turn out to have failed");
        first.finish(ok(), watched().0);
        assert!(rx.try_recv().unwrap().is_ok());
        later.finish(ok(), watched().0);
    }

    #[test]
    fn a_failure_fails_those_beside_it_and_all_later_ones() {
        let durable = Arc::new(DurabilityTracker::default());
        let (first, second, third) = (durable.start().unwrap(), durable.start().unwrap(), durable.start().unwrap());
        let (held, held_rx) = watched();
        first.finish(ok(), held);
        second.finish(failed(), watched().0);
        assert!(matches!(held_rx.try_recv().unwrap(), Err(StoreError::FlushFailed(_))));
        let (late, late_rx) = watched();
        third.finish(ok(), late);
        assert!(late_rx.try_recv().unwrap().is_err());
        assert!(durable.start().is_err());
    }

    #[test]
    fn other_failures_do_not_affect_concurrent_operations() {
        let durable = Arc::new(DurabilityTracker::default());
        let beside = durable.start().unwrap();
        let (done, rx) = watched();
        durable.start().unwrap().finish(Outcome::new(Err(StoreError::NoSpace), None), done);
        assert!(matches!(rx.try_recv().unwrap(), Err(StoreError::NoSpace)));
        let (done, rx) = watched();
        beside.finish(ok(), done);
        assert!(rx.try_recv().unwrap().is_ok());
    }
}
