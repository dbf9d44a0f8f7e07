//! Failures of a unit's store: counted by kind, logged at intervals, told to the embedding program.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lunette_store::StoreError;

use crate::environment::millis;

/// The shortest time between two lines of the log on failures of one store.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The kinds of failure, by their names in metrics.
pub const STORE_FAILURES: [&str; 8] =
    ["out_of_range", "read_only", "no_space", "flush_failed", "refused", "shut_out", "gone", "io"];

/// The place of a kind in [`STORE_FAILURES`].
fn index(error: &StoreError) -> usize {
    match error {
        StoreError::OutOfRange { .. } => 0,
        StoreError::ReadOnly => 1,
        StoreError::NoSpace => 2,
        StoreError::FlushFailed(_) => 3,
        StoreError::Refused { .. } => 4,
        StoreError::ShutOut(_) => 5,
        StoreError::Gone(_) => 6,
        StoreError::Unreadable { .. } | StoreError::Io(_) => 7,
    }
}

/// Called with each failure.
type OnFailure = Box<dyn Fn(&StoreError) + Send + Sync>;

/// The failures of one store.
#[derive(Default)]
pub(crate) struct StoreFailures {
    counts: [AtomicU64; STORE_FAILURES.len()],
    /// When a failure was logged last; 0 before the first.
    logged_ms: AtomicU64,
    /// Failures since then.
    unlogged: AtomicU64,
    told: OnceLock<OnFailure>,
}

impl StoreFailures {
    /// Counts a failure. When a line of the log is due, the number of failures since the last one.
    ///
    /// The time of day may jump: a line is due, too, when the last one was logged later than now.
    pub(crate) fn note(&self, error: &StoreError, now: Duration) -> Option<u64> {
        self.counts[index(error)].fetch_add(1, Ordering::Relaxed);
        if let Some(told) = self.told.get() {
            told(error);
        }
        let (now, last) = (millis(now), self.logged_ms.load(Ordering::Relaxed));
        let is_due = last == 0 || now.abs_diff(last) >= millis(LOG_INTERVAL);
        // Of failures on several threads one is logged.
        let takes = || self.logged_ms.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_due && takes() {
            return Some(self.unlogged.swap(0, Ordering::Relaxed));
        }
        self.unlogged.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// How often each of [`STORE_FAILURES`] has happened.
    pub(crate) fn counts(&self) -> [u64; STORE_FAILURES.len()] {
        std::array::from_fn(|index| self.counts[index].load(Ordering::Relaxed))
    }

    /// Goes on from the counts of a predecessor.
    pub(crate) fn inherit(&self, counts: [u64; STORE_FAILURES.len()]) {
        for (count, before) in self.counts.iter().zip(counts) {
            count.fetch_add(before, Ordering::Relaxed);
        }
    }

    /// Calls `told` with each failure from now on. False, and without effect, when something is called already.
    pub(crate) fn tell(&self, told: OnFailure) -> bool {
        self.told.set(told).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn many_failures_are_counted_and_few_are_logged() {
        let failures = StoreFailures::default();
        let at = |seconds| failures.note(&StoreError::NoSpace, 1000 * SECOND + seconds * SECOND);
        assert_eq!([at(0), at(1), at(9), at(10), at(11)], [Some(0), None, None, Some(2), None]);
        assert_eq!(failures.counts()[2], 5);
        assert_eq!(STORE_FAILURES[2], "no_space");
        assert_eq!(failures.counts().iter().sum::<u64>(), 5);
    }

    #[test]
    fn a_clock_that_jumps_silences_nothing() {
        let failures = StoreFailures::default();
        let at = |seconds| failures.note(&StoreError::ReadOnly, seconds * SECOND).is_some();
        assert!(at(1_000_000) && at(100), "back");
        assert!(!at(101) && at(2_000_000), "and forth");
    }

    #[test]
    fn each_failure_is_told_to_one() {
        let (failures, told): (_, Arc<Mutex<Vec<String>>>) = (StoreFailures::default(), Arc::default());
        let list = Arc::clone(&told);
        assert!(failures.tell(Box::new(move |error| list.lock().unwrap().push(error.to_string()))));
        assert!(!failures.tell(Box::new(|_| ())));
        failures.note(&StoreError::NoSpace, SECOND);
        failures.note(&StoreError::NoSpace, SECOND);
        assert_eq!(told.lock().unwrap().len(), 2);
    }
}
