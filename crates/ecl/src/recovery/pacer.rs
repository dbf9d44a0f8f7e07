//! When packets may leave, so that a window does not leave as one burst (RFC 9002 section 7.7).

#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

use std::time::Duration;

use lunette_session::Time;

use super::rtt::GRANULARITY;

/// The longest burst: the longest batch that the kernel takes in one call (`UDP_SEGMENT`).
pub const MAX_BURST_BYTES: u64 = 1 << 16;

/// A bucket of bytes that fills at the rate of the path.
///
/// Timers are no finer than 1 ms, so a packet that is less than that too early leaves at once. A window per round trip
/// of less than 1 ms therefore leaves unpaced.
#[derive(Debug, Clone, Copy)]
pub struct Pacer {
    /// Negative after packets that left early.
    tokens: f64,
    filled_at: Time,
}

/// Bytes per second and at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Bytes at once.
    pub burst: u64,
}

impl Rate {
    /// `gain` windows per round trip, a quarter of a window at once, and at least `least_burst`.
    pub fn new(window: u64, round_trip: Duration, gain: f64, least_burst: u64) -> Self {
        let seconds = round_trip.max(Duration::from_micros(1)).as_secs_f64();
        Self {
            bytes_per_second: (window as f64 * gain / seconds).max(1.0),
            burst: (window / 4).min(MAX_BURST_BYTES).max(least_burst),
        }
    }
}

impl Pacer {
    /// A full bucket.
    pub const fn new(burst: u64, now: Time) -> Self {
        Self { tokens: burst as f64, filled_at: now }
    }

    /// The share of `wanted` bytes that may leave now, at least `least` of them; or the time at which they may.
    ///
    /// # Errors
    ///
    /// The time at which `wanted` bytes, or a burst, may leave.
    pub fn allow(&mut self, least: u64, wanted: u64, rate: Rate, now: Time) -> Result<u64, Time> {
        self.fill(rate, now);
        let early = rate.bytes_per_second * GRANULARITY.as_secs_f64();
        // No more than a burst is ever in the bucket.
        let least = least.min(rate.burst);
        if self.tokens + early >= least as f64 {
            return Ok(wanted.min((self.tokens + early) as u64).max(least));
        }
        let missing = wanted.min(rate.burst) as f64 - self.tokens;
        Err(now + Duration::from_secs_f64(missing / rate.bytes_per_second))
    }

    /// Bytes have left.
    pub fn on_sent(&mut self, bytes: u64) {
        self.tokens -= bytes as f64;
    }

    fn fill(&mut self, rate: Rate, now: Time) {
        let added = (now - self.filled_at).as_secs_f64() * rate.bytes_per_second;
        self.filled_at = self.filled_at.max(now);
        self.tokens = (self.tokens + added).min(rate.burst as f64);
    }
}

#[cfg(test)]
mod tests;
