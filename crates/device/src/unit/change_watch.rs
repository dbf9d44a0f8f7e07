//! Blocks that somebody relies on not to change.
//!
//! A point in time copy that is change vulnerable (SPC-5 5.18.6.2) lives until one of its blocks is written. Its token
//! watches them: every request that changes bytes says so *before* the store gets it, and while it holds its range
//! ([`crate::unit::range_locks`]). So who begins to watch, and then was alone on the range for a moment, has seen the end of all
//! earlier writes and hears of all later ones.
//!
//! A watch ends when nobody has used it for its timeout; else the tokens of a copy that is long over would cost every write.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::environment::{Clock, millis};
use crate::extent::Extent;

/// Extents of one logical unit. It lasts as long as somebody keeps it and uses it now and then.
#[derive(Debug)]
pub(crate) struct ChangeWatch {
    extents: Vec<Extent>,
    changed: AtomicBool,
    timeout: Duration,
    last_used_ms: AtomicU64,
}

impl ChangeWatch {
    /// Whether it was last used longer ago than its timeout.
    pub(crate) fn is_expired(&self, now: Duration) -> bool {
        now.saturating_sub(Duration::from_millis(self.last_used_ms.load(Ordering::Relaxed))) > self.timeout
    }

    /// Its timeout begins again.
    pub(crate) fn use_at(&self, now: Duration) {
        self.last_used_ms.store(millis(now), Ordering::Relaxed);
    }

    /// What is watched.
    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Whether a byte of it may have changed.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }
}

/// Everything that is watched of a logical unit.
pub(crate) struct ChangeWatches {
    clock: Clock,
    /// Whether there is anything. All that a write reads while there is nothing.
    any: AtomicBool,
    list: Mutex<Vec<Weak<ChangeWatch>>>,
}

impl ChangeWatches {
    /// Nothing is watched yet.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, any: AtomicBool::new(false), list: Mutex::default() }
    }

    /// ChangeWatches `extents` from now on, until nobody has used the watch for longer than `timeout`.
    pub(crate) fn begin(&self, extents: Vec<Extent>, timeout: Duration) -> Arc<ChangeWatch> {
        let (changed, last_used_ms) = (AtomicBool::new(false), AtomicU64::new(millis((self.clock)())));
        let watch = Arc::new(ChangeWatch { extents, changed, timeout, last_used_ms });
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|known| known.strong_count() > 0);
        list.push(Arc::downgrade(&watch));
        self.any.store(true, Ordering::Release);
        watch
    }

    /// The bytes of `extent` are about to change. What has changed needs no watch any more, nor does what has expired: as
    /// nobody hears of it any more, it counts as changed.
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

    /// With a clock that shows as many seconds.
    fn watches() -> (ChangeWatches, Arc<AtomicU64>) {
        let seconds = Arc::new(AtomicU64::new(1000));
        let clock = Arc::clone(&seconds);
        (ChangeWatches::new(Arc::new(move || Duration::from_secs(clock.load(Ordering::Relaxed)))), seconds)
    }

    #[test]
    fn a_change_is_told_to_those_whom_it_concerns() {
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
    fn what_nobody_keeps_is_forgotten() {
        let (watches, _) = watches();
        drop(watches.begin(vec![extent(0, 10)], TIMEOUT));
        watches.change(extent(20, 1));
        assert!(!watches.any.load(Ordering::Relaxed));
    }

    #[test]
    fn what_nobody_uses_any_more_costs_nothing() {
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
