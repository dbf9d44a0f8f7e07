//! Who may touch which bytes of a logical unit, and in which order.
//!
//! A command that reads or writes claims its range *shared*: reads and plain writes may overlap each other in any order, as
//! SBC-4 has it. A command that must be alone on its blocks, such as COMPARE AND WRITE, claims them *exclusively*. Only
//! claims of which at least one is exclusive, and whose ranges overlap, exclude each other.
//!
//! Claims are granted in the order of their arrival: one waits for every earlier claim that excludes it, whether that is
//! granted already or waits itself. So nobody starves, and a chain of reads cannot keep a COMPARE AND WRITE out.
//!
//! Two rules keep commands from waiting for each other in a circle. A command has one claim at a time; where it needs two,
//! on two logical units, all commands claim on these units in the same order. And it has its buffers and its Data-Out
//! before it claims: between claim and end it waits for nothing but its store.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_store::Completion;

use crate::extent::Extent;
use crate::wait::{Waitable, wake};

/// How a range is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimMode {
    /// With others that share.
    Shared,
    /// Alone.
    Exclusive,
}

/// The claims on one logical unit.
///
/// As long as no command claims exclusively, which is the rule, claim and release are a few instructions under the mutex
/// each, whatever the number of claims.
#[derive(Default)]
pub(crate) struct RangeLocks(Mutex<State>);

#[derive(Default)]
struct State {
    records: Vec<Option<ClaimRecord>>,
    vacant: Vec<usize>,
    /// Claims so far.
    arrivals: u64,
    /// Exclusive claims, granted or not.
    exclusive: usize,
    /// Claims that are not granted.
    waiting: usize,
}

struct ClaimRecord {
    arrival: u64,
    extent: Extent,
    mode: ClaimMode,
    /// Earlier claims that exclude this one. It is granted when there are none left.
    blockers: usize,
    /// To be told of the grant.
    waiter: Option<Completion>,
}

impl ClaimRecord {
    fn excludes(&self, extent: Extent, mode: ClaimMode) -> bool {
        (self.mode == ClaimMode::Exclusive || mode == ClaimMode::Exclusive) && self.extent.overlaps(extent)
    }
}

/// A place in the order of claims, granted or not. Dropping it lets the next ones in.
pub(crate) struct Claim {
    locks: Arc<RangeLocks>,
    place: usize,
    arrival: u64,
    /// It was not granted when it was made.
    had_to_wait: bool,
}

/// The grant of a claim, as something to wait for.
struct GrantWait {
    locks: Arc<RangeLocks>,
    place: usize,
    arrival: u64,
}

impl RangeLocks {
    /// Claims `extent`. The claim counts from now on, but must not be used before it is granted.
    pub(crate) fn claim(self: &Arc<Self>, extent: Extent, mode: ClaimMode) -> Claim {
        let mut state = self.lock();
        let blockers = state.count_excluding(extent, mode);
        let arrival = state.arrivals;
        state.arrivals += 1;
        state.exclusive += usize::from(mode == ClaimMode::Exclusive);
        state.waiting += usize::from(blockers > 0);
        let place = state.put(ClaimRecord { arrival, extent, mode, blockers, waiter: None });
        Claim { locks: Arc::clone(self), place, arrival, had_to_wait: blockers > 0 }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count_excluding(&self, extent: Extent, mode: ClaimMode) -> usize {
        if self.exclusive == 0 && mode == ClaimMode::Shared {
            return 0;
        }
        self.records.iter().flatten().filter(|record| record.excludes(extent, mode)).count()
    }

    fn put(&mut self, record: ClaimRecord) -> usize {
        let Some(place) = self.vacant.pop() else {
            self.records.push(Some(record));
            return self.records.len() - 1;
        };
        self.records[place] = Some(record);
        place
    }

    /// Ends a claim and gives the waiters whose last obstacle it was.
    fn take(&mut self, place: usize) -> Vec<Completion> {
        let mut granted = Vec::new();
        let Some(gone) = self.records.get_mut(place).and_then(Option::take) else { return granted };
        self.vacant.push(place);
        self.exclusive -= usize::from(gone.mode == ClaimMode::Exclusive);
        self.waiting -= usize::from(gone.blockers > 0);
        if self.waiting == 0 {
            return granted;
        }
        for record in self.records.iter_mut().flatten() {
            if record.arrival > gone.arrival && gone.excludes(record.extent, record.mode) {
                record.blockers -= 1;
                if record.blockers == 0 {
                    self.waiting -= 1;
                    granted.extend(record.waiter.take());
                }
            }
        }
        granted
    }

    fn is_granted(&self, place: usize) -> bool {
        matches!(self.records.get(place), Some(Some(ClaimRecord { blockers: 0, .. })))
    }
}

impl Claim {
    /// What to wait for before the claim may be used, if it has to wait.
    pub(crate) fn pending_grant(&self) -> Option<Arc<dyn Waitable>> {
        let Self { locks, place, arrival, had_to_wait } = self;
        had_to_wait.then(|| Arc::new(GrantWait { locks: Arc::clone(locks), place: *place, arrival: *arrival }) as _)
    }

    pub(crate) fn is_granted(&self) -> bool {
        self.locks.lock().is_granted(self.place)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let granted = self.locks.lock().take(self.place);
        // Without the lock: a waiter may go on at once and claim again.
        granted.into_iter().for_each(wake);
    }
}

impl Waitable for GrantWait {
    fn wait(&self, done: Completion) {
        {
            let mut state = self.locks.lock();
            // A claim that is gone meanwhile has nothing to wait for.
            if let Some(Some(record)) = state.records.get_mut(self.place)
                && record.arrival == self.arrival
                && record.blockers > 0
            {
                record.waiter = Some(done);
                return;
            }
        }
        wake(done);
    }
}
