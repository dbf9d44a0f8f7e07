//! Locks on ranges of a logical unit, which order the commands that overlap.
//!
//! A command that reads or writes claims its range *shared*: reads and plain writes may overlap in any order, as SBC-4
//! allows. A command that must be atomic on its blocks, such as COMPARE AND WRITE, claims them *exclusively*. Two
//! overlapping claims exclude each other when at least one is exclusive.
//!
//! Claims are granted in order of arrival: a claim waits for every earlier claim that excludes it, granted or not. So
//! no claim starves, and a stream of reads cannot keep a COMPARE AND WRITE out.
//!
//! A command whose store answers within the call needs no claim: it *passes* while nothing is claimed exclusively, and
//! an exclusive claim waits for those that are passing. That costs two atomic operations in place of two locks.
//!
//! Two rules prevent deadlock. A command holds one claim at a time; where it needs two, on two logical units, all
//! commands claim on those units in the same order. And a command has its buffers and its Data-Out before it claims:
//! between claim and end it waits for its store only, and for the end of a [freeze](crate::unit::freeze).

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_store::Completion;

use crate::extent::Extent;
use crate::wait::{Waitable, wake};

/// How a range is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimMode {
    /// Together with other shared claims.
    Shared,
    /// Without any other claim.
    Exclusive,
}

/// The claims on one logical unit.
///
/// As long as no command claims exclusively, which is the common case, claim and release are a few instructions each
/// under the mutex, whatever the number of claims.
#[derive(Default)]
pub(crate) struct RangeLocks {
    /// Commands that pass. Sequentially consistent with `exclusive`: either the one that passes sees the exclusive
    /// claim, or the claim sees the one that passes.
    passing: AtomicUsize,
    /// Exclusive claims, granted or not. Changed under the lock of the state only.
    exclusive: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    records: Vec<Option<ClaimRecord>>,
    vacant: Vec<usize>,
    /// Number of claims so far.
    arrivals: u64,
    /// Claims that are not granted.
    waiting: usize,
}

struct ClaimRecord {
    arrival: u64,
    extent: Extent,
    mode: ClaimMode,
    /// Number of earlier claims that exclude this one, and one for those that were passing. The claim is granted when
    /// it is zero.
    blockers: usize,
    /// One of the blockers is whatever was passing when the claim was made.
    waits_for_passing: bool,
    /// Completed when the claim is granted.
    waiter: Option<Completion>,
}

impl ClaimRecord {
    fn excludes(&self, extent: Extent, mode: ClaimMode) -> bool {
        (self.mode == ClaimMode::Exclusive || mode == ClaimMode::Exclusive) && self.extent.overlaps(extent)
    }
}

/// A claim, granted or not. Dropping it lets later claims in.
pub(crate) struct Claim {
    locks: Arc<RangeLocks>,
    place: usize,
    arrival: u64,
    /// Whether the claim was not granted at once.
    had_to_wait: bool,
}

/// The grant of a claim, as a condition to wait for.
struct GrantWait {
    locks: Arc<RangeLocks>,
    place: usize,
    arrival: u64,
}

/// A command on its way to the store and back, within one call. An exclusive claim waits for its end.
pub(crate) struct Passage<'a>(&'a RangeLocks);

impl RangeLocks {
    /// Lets a command read or write within the call, unless something is claimed exclusively.
    #[inline]
    pub(crate) fn pass(&self) -> Option<Passage<'_>> {
        self.passing.fetch_add(1, Ordering::SeqCst);
        let passage = Passage(self);
        (self.exclusive.load(Ordering::SeqCst) == 0).then_some(passage)
    }

    /// Notes that a passage has ended without another one under way; the last of several comes here.
    #[cold]
    fn passed(&self) {
        let granted = {
            let mut state = self.lock();
            if self.passing.load(Ordering::SeqCst) > 0 {
                return;
            }
            state.end_waits_for_passing()
        };
        granted.into_iter().for_each(wake);
    }

    /// Claims `extent`. The claim excludes later ones from now on, but must not be used before it is granted.
    pub(crate) fn claim(self: &Arc<Self>, extent: Extent, mode: ClaimMode) -> Claim {
        let mut state = self.lock();
        let mut blockers = state.count_excluding(extent, mode, self.exclusive.load(Ordering::SeqCst) > 0);
        let mut waits_for_passing = false;
        if mode == ClaimMode::Exclusive {
            self.exclusive.fetch_add(1, Ordering::SeqCst);
            waits_for_passing = self.passing.load(Ordering::SeqCst) > 0;
            blockers += usize::from(waits_for_passing);
        }
        let arrival = state.arrivals;
        state.arrivals += 1;
        state.waiting += usize::from(blockers > 0);
        let place = state.put(ClaimRecord { arrival, extent, mode, blockers, waits_for_passing, waiter: None });
        Claim { locks: Arc::clone(self), place, arrival, had_to_wait: blockers > 0 }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Passage<'_> {
    #[inline]
    fn drop(&mut self) {
        let Self(locks) = self;
        if locks.passing.fetch_sub(1, Ordering::SeqCst) == 1 && locks.exclusive.load(Ordering::SeqCst) > 0 {
            locks.passed();
        }
    }
}

impl State {
    /// `exclusive`: there are exclusive claims.
    fn count_excluding(&self, extent: Extent, mode: ClaimMode, exclusive: bool) -> usize {
        if !exclusive && mode == ClaimMode::Shared {
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

    /// Nothing passes any more: gives the waiters that are granted by that.
    fn end_waits_for_passing(&mut self) -> Vec<Completion> {
        let mut granted = Vec::new();
        for record in self.records.iter_mut().flatten().filter(|record| record.waits_for_passing) {
            record.waits_for_passing = false;
            record.blockers -= 1;
            if record.blockers == 0 {
                self.waiting -= 1;
                granted.extend(record.waiter.take());
            }
        }
        granted
    }

    /// Ends a claim and returns the waiters that are granted by its end.
    fn take(&mut self, place: usize, exclusive: &AtomicUsize) -> Vec<Completion> {
        let mut granted = Vec::new();
        let Some(gone) = self.records.get_mut(place).and_then(Option::take) else { return granted };
        self.vacant.push(place);
        if gone.mode == ClaimMode::Exclusive {
            exclusive.fetch_sub(1, Ordering::SeqCst);
        }
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
    /// The condition to wait for before the claim may be used, if it was not granted at once.
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
        let granted = self.locks.lock().take(self.place, &self.locks.exclusive);
        // Without the lock, because a waiter may run on at once and claim again.
        granted.into_iter().for_each(wake);
    }
}

impl Waitable for GrantWait {
    fn wait(&self, done: Completion) {
        {
            let mut state = self.locks.lock();
            // A claim that has ended has nothing to wait for.
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
