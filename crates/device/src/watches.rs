//! Blocks that somebody relies on not to change.
//!
//! A point in time copy that is change vulnerable (SPC-5 5.18.6.2) lives until one of its blocks is written. Its token
//! watches them: every request that changes bytes says so *before* the store gets it, and while it holds its range
//! ([`crate::range_locks`]). So who begins to watch, and then was alone on the range for a moment, has seen the end of all
//! earlier writes and hears of all later ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::context::Extent;

/// Extents of one logical unit. It lasts as long as somebody keeps it.
#[derive(Debug)]
pub(crate) struct Watch {
    extents: Vec<Extent>,
    changed: AtomicBool,
}

impl Watch {
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
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Whether there is anything. All that a write reads while there is nothing.
    any: AtomicBool,
    list: Mutex<Vec<Weak<Watch>>>,
}

impl Watches {
    /// Watches `extents` from now on.
    pub(crate) fn begin(&self, extents: Vec<Extent>) -> Arc<Watch> {
        let watch = Arc::new(Watch { extents, changed: AtomicBool::new(false) });
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|known| known.strong_count() > 0);
        list.push(Arc::downgrade(&watch));
        self.any.store(true, Ordering::Release);
        watch
    }

    /// The bytes of `extent` are about to change. What has changed needs no watch any more.
    pub(crate) fn change(&self, extent: Extent) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|known| {
            let Some(watch) = known.upgrade() else { return false };
            let concerned = watch.extents.iter().any(|watched| watched.overlaps(extent));
            if concerned {
                watch.changed.store(true, Ordering::Release);
            }
            !concerned
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

    fn extent(offset: u64, len: u64) -> Extent {
        Extent { offset, len }
    }

    #[test]
    fn a_change_is_told_to_those_whom_it_concerns() {
        let watches = Watches::default();
        let first = watches.begin(vec![extent(0, 10), extent(100, 10)]);
        let second = watches.begin(vec![extent(50, 10)]);
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
        let watches = Watches::default();
        drop(watches.begin(vec![extent(0, 10)]));
        watches.change(extent(20, 1));
        assert!(!watches.any.load(Ordering::Relaxed));
    }
}
