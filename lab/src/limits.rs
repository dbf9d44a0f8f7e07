//! Bounds on what options may ask for.

use std::ops::RangeInclusive;

/// The slowest and the fastest line, in bits per second. A slower line would be measured for minutes.
pub(crate) const RATES: RangeInclusive<f64> = 64e3..=1e12;
/// The longest delay, jitter or queue, in seconds.
pub(crate) const MAX_SECONDS: f64 = 60.0;
/// The longest queue in bytes: 1 GiB.
pub(crate) const MAX_QUEUE_BYTES: f64 = 1_073_741_824.0;
/// The memory for packets on their way in one direction.
pub(crate) const MAX_BYTES_ON_THE_WAY: usize = 1 << 30;
/// The shortest MTU: every system takes packets of this length.
pub(crate) const MIN_MTU: i64 = 576;
