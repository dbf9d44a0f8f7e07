//! How long commands take.

use std::cell::Cell;
use std::time::Instant;

/// The clock that commands are timed with.
pub(in crate::core) struct Stopwatch {
    /// Whether time stands still within a batch, as where a caller steps the cores.
    stands_still: bool,
    latest: Cell<Instant>,
}

impl Stopwatch {
    pub(super) fn new(now: Instant, stands_still: bool) -> Self {
        Self { stands_still, latest: Cell::new(now) }
    }

    /// The time of the batch.
    #[inline]
    pub(in crate::core) fn begin(&self, now: Instant) {
        if self.stands_still {
            self.latest.set(now);
        }
    }

    /// The time by now.
    #[inline]
    pub(in crate::core) fn read(&self) -> Instant {
        if !self.stands_still {
            self.latest.set(Instant::now());
        }
        self.latest.get()
    }

    /// The time of the last reading, which costs nothing.
    pub(super) fn latest(&self) -> Instant {
        self.latest.get()
    }
}
