//! The services of the embedding program: the time of day and random bytes. Tests supply their own.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A source of the time since 1970-01-01 00:00 UTC.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The clock of the operating system.
pub fn system_clock() -> Clock {
    // A system clock that shows a time before 1970 has not been set; it reads as 1970.
    Arc::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A source of unpredictable bytes, which fills the whole slice or fails.
pub type Entropy = Arc<dyn Fn(&mut [u8]) -> io::Result<()> + Send + Sync>;

/// The random number generator of the operating system.
pub fn system_entropy() -> Entropy {
    Arc::new(|bytes| getrandom::fill(bytes).map_err(io::Error::other))
}

/// Whole milliseconds of `time`.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
