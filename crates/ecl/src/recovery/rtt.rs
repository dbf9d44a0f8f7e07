//! The round-trip time (RFC 9002 section 5).

use std::time::Duration;

use lunette_session::Time;

use super::received::ACK_DELAY;

/// The round trip of a path that was not measured (RFC 9002 section 6.2.2).
pub const INITIAL_RTT: Duration = Duration::from_millis(333);

/// The resolution of timers (RFC 9002 section 6.1.2).
pub const GRANULARITY: Duration = Duration::from_millis(1);

/// An estimate of the round-trip time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rtt {
    latest: Duration,
    adjusted: Duration,
    smoothed: Duration,
    variance: Duration,
    min: Duration,
    first_sample_at: Option<Time>,
}

impl Default for Rtt {
    fn default() -> Self {
        Self {
            latest: INITIAL_RTT,
            adjusted: INITIAL_RTT,
            smoothed: INITIAL_RTT,
            variance: INITIAL_RTT / 2,
            min: INITIAL_RTT,
            first_sample_at: None,
        }
    }
}

impl Rtt {
    /// Takes a sample: from the sending of a packet to the arrival of its acknowledgement, which the peer has delayed
    /// by `ack_delay`.
    pub fn sample(&mut self, latest: Duration, ack_delay: Duration, now: Time) {
        self.latest = latest;
        self.adjusted = latest;
        if self.first_sample_at.is_none() {
            self.first_sample_at = Some(now);
            self.min = latest;
            self.smoothed = latest;
            self.variance = latest / 2;
            return;
        }
        self.min = self.min.min(latest);
        // Section 5.3: the peer's word counts up to the delay that it may take, and only where the path is not faster
        // than ever.
        let ack_delay = ack_delay.min(ACK_DELAY);
        let adjusted = latest.checked_sub(ack_delay).filter(|adjusted| *adjusted >= self.min).unwrap_or(latest);
        self.adjusted = adjusted;
        self.variance = self.variance * 3 / 4 + self.smoothed.abs_diff(adjusted) / 4;
        self.smoothed = self.smoothed * 7 / 8 + adjusted / 8;
    }

    /// The last sample.
    pub const fn latest(&self) -> Duration {
        self.latest
    }

    /// The last sample without the delay that the peer has told.
    pub const fn adjusted(&self) -> Duration {
        self.adjusted
    }

    /// The smoothed round trip.
    pub const fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// The mean deviation.
    pub const fn variance(&self) -> Duration {
        self.variance
    }

    /// The shortest one.
    pub const fn min(&self) -> Duration {
        self.min
    }

    /// When the path was measured first.
    pub const fn first_sample_at(&self) -> Option<Time> {
        self.first_sample_at
    }

    /// Without an acknowledgement after this long, the sender asks for one (section 6.2.1).
    pub fn probe_timeout(&self) -> Duration {
        self.smoothed + (self.variance * 4).max(GRANULARITY) + ACK_DELAY
    }
}

#[cfg(test)]
mod tests;
