//! Time as the driver tells it.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment, counted from an epoch of the driver's choice. Virtual clocks and real ones look the same from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time(Duration);

impl Time {
    /// The moment that lies `since_epoch` after the driver's epoch.
    pub const fn new(since_epoch: Duration) -> Self {
        Self(since_epoch)
    }

    /// How long after the driver's epoch this is.
    pub const fn since_epoch(self) -> Duration {
        self.0
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// The span from `rhs` to `self`; zero when `rhs` is later.
    fn sub(self, rhs: Self) -> Duration {
        self.0.saturating_sub(rhs.0)
    }
}
