//! The schedule by which a pool frees idle memory.

use std::time::{Duration, Instant};

use crate::Pool;

/// A [trimmed](Pool::trimmed) pool frees memory that it did not need for this long.
pub const TRIM_INTERVAL: Duration = Duration::from_secs(5);

/// A timer that trims a pool, for event loops, which know the time. While the pool has no surplus nothing is due, so
/// that an idle loop sleeps.
#[derive(Debug)]
pub struct Trimmer {
    pool: Pool,
    due: Option<Instant>,
}

impl Trimmer {
    /// A trimmer for `pool`. A pool needs only one.
    pub fn new(pool: Pool) -> Self {
        Self { pool, due: None }
    }

    /// When [`time_has_come`](Self::time_has_come) wants to be called. To be asked before each wait.
    pub fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        if self.due.is_none() && self.pool.has_surplus() {
            self.due = Some(now + TRIM_INTERVAL);
        }
        self.due
    }

    /// Trims the pool if it is due.
    pub fn time_has_come(&mut self, now: Instant) {
        if self.due.take_if(|due| *due <= now).is_some() {
            self.pool.trim();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_not_needed_in_an_interval_goes_back() {
        let pool = Pool::trimmed(1 << 30);
        let (mut trimmer, mut now) = (Trimmer::new(pool.clone()), Instant::now());
        assert_eq!(trimmer.next_timeout(now), None);
        drop((0..3).map(|_| pool.take(16 << 20).unwrap()).collect::<Vec<_>>());
        // The first interval saw them in use, so only the second finds them idle throughout.
        for _ in 0..2 {
            let due = trimmer.next_timeout(now).unwrap();
            trimmer.time_has_come(due.checked_sub(Duration::from_nanos(1)).unwrap());
            assert_eq!(trimmer.next_timeout(now), Some(due));
            now = due;
            trimmer.time_has_come(due);
        }
        assert_eq!(trimmer.next_timeout(now), None);
    }
}
