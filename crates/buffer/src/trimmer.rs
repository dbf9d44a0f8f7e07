//! When a pool gives back what is needed no longer.

use std::time::{Duration, Instant};

use crate::Pool;

/// Memory that a [trimmed](Pool::trimmed) pool did not need for so long goes back to the system.
pub const TRIM_INTERVAL: Duration = Duration::from_secs(5);

/// Says when a pool is to be trimmed, and does it: for event loops, which know the time. While there is no surplus nothing is due,
/// so that an idle loop sleeps.
#[derive(Debug)]
pub struct Trimmer {
    pool: Pool,
    due: Option<Instant>,
}

impl Trimmer {
    /// One for this pool, which needs no other.
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

    /// Trims the pool, if it is time.
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
        // They were needed in the first.
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
