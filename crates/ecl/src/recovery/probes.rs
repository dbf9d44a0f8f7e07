//! When a peer that does not answer is asked, and when it is given up (RFC 9002 section 6.2).

use std::time::Duration;

use lunette_session::Time;

use crate::limits::{FAREWELL_PROBES, LEAST_FAREWELL, MAX_SILENCE};

/// Probes are no further apart than this, unless the first one waits longer.
pub const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// Probes since the last answer.
#[derive(Debug, Clone, Copy)]
pub struct Probes {
    count: u32,
    last_at: Time,
    /// Since when packets have been in flight without an answer.
    silent_since: Time,
}

impl Probes {
    /// A counter without probes yet.
    pub const fn new(now: Time) -> Self {
        Self { count: 0, last_at: now, silent_since: now }
    }

    /// A packet leaves, and it is the only one in flight.
    pub const fn on_first_in_flight(&mut self, now: Time) {
        self.silent_since = now;
    }

    /// The peer has acknowledged a packet that was in flight.
    pub const fn on_answer(&mut self, now: Time) {
        self.count = 0;
        self.silent_since = now;
    }

    /// The caller was asked for a probe.
    pub const fn on_probe(&mut self, now: Time) {
        self.count = self.count.saturating_add(1);
        self.last_at = now;
    }

    /// When the next one is due: after the last packet in flight was sent, `timeout` and twice as long after each
    /// probe.
    pub fn next_at(&self, last_sent_at: Time, timeout: Duration) -> Time {
        let doubled = timeout.saturating_mul(1_u32.checked_shl(self.count).unwrap_or(u32::MAX));
        last_sent_at.max(self.last_at) + doubled.min(MAX_PROBE_INTERVAL.max(timeout))
    }

    /// Whether a peer that is to be left at once, if it cannot be heard, is given up: several probes and some time have
    /// passed without an answer.
    pub fn is_unheard(&self, now: Time) -> bool {
        self.count > FAREWELL_PROBES && now - self.silent_since >= LEAST_FAREWELL
    }

    /// When the peer is given up.
    pub fn give_up_at(&self) -> Time {
        self.silent_since + MAX_SILENCE
    }
}
