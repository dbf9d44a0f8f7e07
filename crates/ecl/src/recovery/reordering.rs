//! How far a path changes the order of packets.

use std::time::Duration;

/// A packet is lost when one sent three later has come (RFC 9002 section 6.1.1).
const PACKETS: u64 = 3;

/// However much a path reorders, this many later ones are proof of a loss.
const MAX_PACKETS: u64 = 1024;

/// A packet is lost when one sent later has come and 9/8 of a round trip have gone (RFC 9002 section 6.1.2).
const EIGHTHS: u32 = 9;

/// Two round trips are proof of a loss.
const MAX_EIGHTHS: u32 = 16;

/// After this many events of loss without a late packet the thresholds are what they were (RFC 8985 section 6.2).
const FORGOTTEN_AFTER: u32 = 16;

/// The thresholds of loss, which rise when packets that were taken for lost were only late (as RFC 8985's reordering
/// window does).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reordering {
    packets: u64,
    eighths: u32,
    late: u64,
    /// Events of loss since the last late packet.
    decreases: u32,
}

impl Default for Reordering {
    fn default() -> Self {
        Self { packets: PACKETS, eighths: EIGHTHS, late: 0, decreases: 0 }
    }
}

impl Reordering {
    /// A packet that was taken for lost has come, `distance` numbers behind the largest one that had come before it.
    /// `by_time` says which threshold was too small.
    pub fn on_late(&mut self, distance: u64, by_time: bool) {
        self.late = self.late.saturating_add(1);
        self.decreases = 0;
        if by_time {
            self.eighths = (self.eighths + 1).min(MAX_EIGHTHS);
        } else {
            self.packets = self.packets.max(distance.saturating_add(1)).min(MAX_PACKETS);
        }
    }

    /// Packets were lost, as far as is known: an event that made the window smaller.
    pub fn on_decrease(&mut self) {
        self.decreases = self.decreases.saturating_add(1);
        if self.decreases == FORGOTTEN_AFTER {
            *self = Self { late: self.late, ..Self::default() };
        }
    }

    /// The distance in numbers before an acknowledged packet at which a packet is lost.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// The time after which a packet is lost, when a later one was acknowledged.
    pub fn delay(&self, round_trip: Duration) -> Duration {
        (round_trip * self.eighths / 8).max(super::rtt::GRANULARITY)
    }

    /// Packets that were taken for lost and were only late.
    pub const fn late(&self) -> u64 {
        self.late
    }
}
