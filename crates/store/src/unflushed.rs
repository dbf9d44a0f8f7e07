//! The account of writes that a volatile cache may lose, for stores that reach their medium over a network.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Writes that were acknowledged and are not flushed yet.
///
/// A cache has *lives*: a number that grows whenever the cache may have been lost, such as a count of power-ons or of
/// connections. Each write is represented by the life in which it was acknowledged. A flush that succeeds in a later
/// life brings none of the writes of an earlier one to the medium.
///
/// ```
/// use lunette_store::Unflushed;
///
/// let unflushed = Unflushed::new();
/// unflushed.add(1);
/// let flush = unflushed.begin();
/// assert!(!unflushed.end(flush, 2), "the cache was lost before the flush");
/// ```
#[derive(Debug)]
pub struct Unflushed {
    /// The lowest life of the writes that no flush covers yet.
    written: AtomicU64,
    flushing: Mutex<Flushing>,
}

/// The writes that flushes under way cover.
#[derive(Debug, Default)]
struct Flushing {
    /// The number of the last one.
    last: u64,
    /// For each flush, the lowest life of the writes that it was the first to cover. Later flushes cover them, too,
    /// until one has succeeded.
    written: Vec<(u64, u64)>,
}

impl Unflushed {
    const NONE: u64 = u64::MAX;

    /// An account without writes.
    pub fn new() -> Self {
        Self { written: AtomicU64::new(Self::NONE), flushing: Mutex::default() }
    }

    /// Adds a write that was acknowledged in `life`.
    pub fn add(&self, life: u64) {
        if self.written.load(Ordering::Acquire) > life {
            self.written.fetch_min(life, Ordering::AcqRel);
        }
    }

    /// Begins a flush, which covers all writes added before. Gives its number.
    pub fn begin(&self) -> u64 {
        let mut flushing = self.flushing();
        flushing.last += 1;
        let flush = flushing.last;
        let written = self.written.swap(Self::NONE, Ordering::AcqRel);
        if written != Self::NONE {
            flushing.written.push((flush, written));
        }
        flush
    }

    /// Ends a flush that has succeeded in `life`. False if the cache had lost a write that it covers.
    #[must_use]
    pub fn end(&self, flush: u64, life: u64) -> bool {
        let mut flushing = self.flushing();
        if flushing.written.iter().any(|(of, written)| *of <= flush && *written != life) {
            return false;
        }
        flushing.written.retain(|(of, _)| *of > flush);
        true
    }

    fn flushing(&self) -> MutexGuard<'_, Flushing> {
        self.flushing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Unflushed {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_answerable_for_all_writes_before_it() {
        let unflushed = Unflushed::new();
        assert!(unflushed.end(unflushed.begin(), 1), "nothing was written");
        unflushed.add(1);
        assert!(!unflushed.end(unflushed.begin(), 2), "the cache was lost");
        let unflushed = Unflushed::new();
        unflushed.add(2);
        assert!(unflushed.end(unflushed.begin(), 2));
        assert!(unflushed.end(unflushed.begin(), 3), "it was flushed before");
    }

    #[test]
    fn a_flush_beside_another_one_is_answerable_for_the_same_writes() {
        let unflushed = Unflushed::new();
        unflushed.add(1);
        let (first, second) = (unflushed.begin(), unflushed.begin());
        assert!(!unflushed.end(second, 2));
        assert!(!unflushed.end(first, 2));
    }

    #[test]
    fn what_one_flush_has_brought_to_the_medium_no_other_one_answers_for() {
        let unflushed = Unflushed::new();
        unflushed.add(1);
        let (first, second) = (unflushed.begin(), unflushed.begin());
        assert!(unflushed.end(first, 1));
        assert!(unflushed.end(second, 2));
        unflushed.add(2);
        let third = unflushed.begin();
        unflushed.add(2);
        let fourth = unflushed.begin();
        assert!(unflushed.end(third, 2), "what came after it is not its own");
        assert!(!unflushed.end(fourth, 3));
    }
}
