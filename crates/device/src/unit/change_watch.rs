//! Watches on extents, which record whether a byte may have changed.
//!
//! A change vulnerable point in time copy (SPC-5 5.18.6.2) lives until one of its blocks is written. Its ROD token
//! watches them: every request that changes bytes announces it *before* the store gets the request, and while it holds
//! its range ([`crate::unit::range_locks`]). A watcher that begins to watch, and then claims the range exclusively for
//! a moment, has therefore waited for all earlier writes and sees all later ones.
//!
//! A watch expires when it was not used for its timeout. Otherwise the tokens of copies that ended long ago would cost
//! every write.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::environment::{Clock, millis};
use crate::extent::Extent;

/// Watched extents of one logical unit. The watch lasts as long as it is referenced and used within its timeout.
#[derive(Debug)]
pub(crate) struct ChangeWatch {
    extents: Vec<Extent>,
    changed: AtomicBool,
    timeout: Duration,
    last_used_ms: AtomicU64,
}

impl ChangeWatch {
    /// Whether the watch was last used longer ago than its timeout.
    pub(crate) fn is_expired(&self, now: Duration) -> bool {
        now.saturating_sub(Duration::from_millis(self.last_used_ms.load(Ordering::Relaxed))) > self.timeout
    }

    /// Restarts the timeout.
    pub(crate) fn use_at(&self, now: Duration) {
        self.last_used_ms.store(millis(now), Ordering::Relaxed);
    }

    /// How long the watch lasts without being used, and when it was used last.
    pub(crate) fn times(&self) -> (Duration, Duration) {
        (self.timeout, Duration::from_millis(self.last_used_ms.load(Ordering::Relaxed)))
    }

    /// The watched extents.
    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Whether a watched byte may have changed.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }
}

/// All watches on a logical unit.
pub(crate) struct ChangeWatches {
    clock: Clock,
    /// Whether a watch exists. Writes read nothing else while none does.
    any: AtomicBool,
    list: Mutex<Vec<Weak<ChangeWatch>>>,
}

impl ChangeWatches {
    /// Nothing is watched yet.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, any: AtomicBool::new(false), list: Mutex::default() }
    }

    /// Watches `extents` from now on, until the watch is not used for longer than `timeout`.
    pub(crate) fn begin(&self, extents: Vec<Extent>, timeout: Duration) -> Arc<ChangeWatch> {
        let (changed, last_used_ms) = (AtomicBool::new(false), AtomicU64::new(millis((self.clock)())));
        let watch = Arc::new(ChangeWatch { extents, changed, timeout, last_used_ms });
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|known| known.strong_count() > 0);
        list.push(Arc::downgrade(&watch));
        self.any.store(true, Ordering::Release);
        watch
    }

    /// Watches `extents` from now on for a watch that a predecessor had, in the state in which that was.
    pub(crate) fn resume(
        &self,
        extents: Vec<Extent>,
        timeout: Duration,
        last_used: Duration,
        changed: bool,
    ) -> Arc<ChangeWatch> {
        let watch = self.begin(extents, timeout);
        watch.use_at(last_used);
        watch.changed.fetch_or(changed, Ordering::AcqRel);
        watch
    }

    /// Marks the watches on `extent` as changed, before its bytes change. Changed and expired watches are removed; an
    /// expired watch counts as changed, since it sees no further event.
    pub(crate) fn change(&self, extent: Extent) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let now = (self.clock)();
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|known| {
            let Some(watch) = known.upgrade() else { return false };
            let ends = watch.is_expired(now) || watch.extents.iter().any(|watched| watched.overlaps(extent));
            if ends {
                watch.changed.store(true, Ordering::Release);
            }
            !ends
        });
        self.any.store(!list.is_empty(), Ordering::Release);
    }

    /// Every byte may have changed.
    pub(crate) fn change_all(&self) {
        self.change(Extent { offset: 0, len: u64::MAX });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_mins(1);

    fn extent(offset: u64, len: u64) -> Extent {
        Extent { offset, len }
    }

    /// Watches with a clock that shows this number of seconds.
    fn watches() -> (ChangeWatches, Arc<AtomicU64>) {
        let seconds = Arc::new(AtomicU64::new(1000));
        let clock = Arc::clone(&seconds);
        (ChangeWatches::new(Arc::new(move || Duration::from_secs(clock.load(Ordering::Relaxed)))), seconds)
    }

    #[test]
    fn a_change_marks_only_the_watches_on_its_bytes() {
        let (watches, _) = watches();
        let first = watches.begin(vec![extent(0, 10), extent(100, 10)], TIMEOUT);
        let second = watches.begin(vec![extent(50, 10)], TIMEOUT);
        watches.change(extent(10, 40));
        assert!(!first.has_changed() && !second.has_changed());
        watches.change(extent(109, 1));
        assert!(first.has_changed() && !second.has_changed());
        watches.change_all();
        assert!(second.has_changed());
        assert!(!watches.any.load(Ordering::Relaxed), "nothing is left to look for");
    }

    #[test]
    fn a_dropped_watch_is_removed() {
        let (watches, _) = watches();
        drop(watches.begin(vec![extent(0, 10)], TIMEOUT));
        watches.change(extent(20, 1));
        assert!(!watches.any.load(Ordering::Relaxed));
    }

    #[test]
    fn an_expired_watch_is_removed() {
        let (watches, seconds) = watches();
        let (used, unused) = (watches.begin(vec![extent(0, 10)], TIMEOUT), watches.begin(vec![extent(0, 10)], TIMEOUT));
        seconds.store(1050, Ordering::Relaxed);
        used.use_at(Duration::from_secs(1050));
        seconds.store(1061, Ordering::Relaxed);
        watches.change(extent(20, 1));
        assert!(!used.has_changed() && unused.has_changed());
        seconds.store(1111, Ordering::Relaxed);
        watches.change(extent(20, 1));
        assert!(used.has_changed() && !watches.any.load(Ordering::Relaxed));
    }
}
