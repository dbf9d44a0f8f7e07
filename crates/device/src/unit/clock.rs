//! The device clock (SPC-5 5.2), which REPORT TIMESTAMP reads and SET TIMESTAMP sets.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::environment::{Clock, millis};

/// The device clock of a logical unit (SPC-5 5.2): the time of day, until SET TIMESTAMP sets it to something else.
pub(crate) struct DeviceClock {
    clock: Clock,
    /// When the unit was created.
    created_ms: AtomicU64,
    /// Milliseconds between the clock and what an initiator has set.
    offset_ms: AtomicI64,
    origin: AtomicU8,
}

/// TIMESTAMP ORIGIN: set by SET TIMESTAMP.
const ORIGIN_SET: u8 = 0b010;
/// TIMESTAMP ORIGIN: set by other means.
const ORIGIN_OTHER: u8 = 0b011;

impl DeviceClock {
    pub(crate) fn new(clock: Clock) -> Self {
        let created_ms = AtomicU64::new(millis(clock()));
        Self { clock, created_ms, offset_ms: AtomicI64::new(0), origin: AtomicU8::new(ORIGIN_OTHER) }
    }

    /// Time since the unit was created. It is zero when the clock was set back.
    pub(crate) fn uptime(&self) -> Duration {
        (self.clock)().saturating_sub(Duration::from_millis(self.created_ms()))
    }

    /// TIMESTAMP, in milliseconds since 1970 and 48 bits, and TIMESTAMP ORIGIN.
    pub(crate) fn timestamp(&self) -> (u64, u8) {
        let now = self.now_ms().wrapping_add_signed(self.offset_ms.load(Ordering::Acquire));
        (now & MAX_TIMESTAMP, self.origin.load(Ordering::Acquire))
    }

    /// Sets the time to the low 48 bits of `timestamp`, in milliseconds.
    pub(crate) fn set(&self, timestamp: u64) {
        let offset = (timestamp & MAX_TIMESTAMP).wrapping_sub(self.now_ms()).cast_signed();
        self.offset_ms.store(offset, Ordering::Release);
        self.origin.store(ORIGIN_SET, Ordering::Release);
    }

    /// When the unit was created, in milliseconds since 1970.
    pub(crate) fn created_ms(&self) -> u64 {
        self.created_ms.load(Ordering::Relaxed)
    }

    /// Milliseconds that the clock is ahead of the time of day, where SET TIMESTAMP has set it.
    pub(crate) fn offset_ms(&self) -> Option<i64> {
        let is_set = self.origin.load(Ordering::Acquire) == ORIGIN_SET;
        is_set.then(|| self.offset_ms.load(Ordering::Acquire))
    }

    /// Goes on as the clock of a predecessor, whose unit was created at `created_ms`; 0 when that is not known.
    pub(crate) fn inherit(&self, created_ms: u64, offset_ms: Option<i64>) {
        if created_ms > 0 {
            self.created_ms.store(created_ms, Ordering::Relaxed);
        }
        if let Some(offset) = offset_ms {
            self.offset_ms.store(offset, Ordering::Release);
            self.origin.store(ORIGIN_SET, Ordering::Release);
        }
    }

    fn now_ms(&self) -> u64 {
        millis((self.clock)())
    }
}

/// The largest timestamp, which has six bytes.
const MAX_TIMESTAMP: u64 = (1 << 48) - 1;
