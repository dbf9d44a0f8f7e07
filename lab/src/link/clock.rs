//! The clock of the line: when the last bit of a packet leaves the sender.

use super::Nanos;

/// Puts packets on the line one after another, at a fixed rate.
///
/// The fraction of a nanosecond that a packet ends after the count is carried to the next one, so a busy line is
/// exact to one nanosecond over any number of packets.
pub(crate) struct LineClock {
    /// `None` is a line that takes no time.
    bits_per_second: Option<u64>,
    free_at: Nanos,
    /// In nanoseconds divided by the rate.
    fraction: u64,
}

impl LineClock {
    /// A line that is free. A rate of 0 is one without a limit.
    pub(crate) fn new(bits_per_second: Option<u64>) -> Self {
        Self { bits_per_second: bits_per_second.filter(|rate| *rate > 0), free_at: 0, fraction: 0 }
    }

    /// The bytes that wait for the line or are on their way into it, rounded up.
    pub(crate) fn backlog_bytes(&self, now: Nanos) -> u64 {
        let Some(rate) = self.bits_per_second else { return 0 };
        let wait = u128::from(self.free_at.saturating_sub(now));
        (wait * u128::from(rate)).div_ceil(8_000_000_000) as u64
    }

    /// Sends a packet behind those that wait, and returns when its last bit has left.
    pub(crate) fn send(&mut self, now: Nanos, bytes: u32) -> Nanos {
        let Some(rate) = self.bits_per_second else { return now };
        if now > self.free_at {
            self.free_at = now;
            self.fraction = 0;
        }
        let work = u64::from(bytes) * 8_000_000_000 + self.fraction;
        self.free_at += work / rate;
        self.fraction = work % rate;
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_packet_takes_its_bits_divided_by_the_rate() {
        let mut clock = LineClock::new(Some(10_000_000));
        assert_eq!(clock.send(0, 1500), 1_200_000);
        assert_eq!(clock.send(0, 1500), 2_400_000);
        assert_eq!(clock.send(5_000_000, 1500), 6_200_000);
    }

    #[test]
    fn a_line_without_a_rate_takes_no_time() {
        for mut clock in [LineClock::new(None), LineClock::new(Some(0))] {
            assert_eq!(clock.send(7, 65_535), 7);
            assert_eq!(clock.backlog_bytes(0), 0);
        }
    }

    #[test]
    fn a_rate_that_divides_nothing_stays_exact() {
        // 12,917 packets of 1,500 bytes at 155 Mb/s take 1.00002580645... s.
        let mut clock = LineClock::new(Some(155_000_000));
        let last = (0..12_917).map(|_| clock.send(0, 1500)).last();
        assert_eq!(last, Some(1_000_025_806));
    }

    #[test]
    fn the_backlog_drains_at_the_rate() {
        let mut clock = LineClock::new(Some(8_000_000));
        clock.send(0, 1000);
        assert_eq!(clock.backlog_bytes(0), 1000);
        assert_eq!(clock.backlog_bytes(400_000), 600);
        assert_eq!(clock.backlog_bytes(400_001), 600, "rounded up");
        assert_eq!(clock.backlog_bytes(1_000_000), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn a_busy_line_is_exact_over_any_packets(
            rate in 1_000_u64..1_000_000_000_000,
            packets in prop::collection::vec(1_u32..=65_535, 1..200),
        ) {
            let mut clock = LineClock::new(Some(rate));
            let mut bits = 0_u128;
            for bytes in packets {
                bits += u128::from(bytes) * 8;
                let exact = bits * 1_000_000_000 / u128::from(rate);
                prop_assert_eq!(u128::from(clock.send(0, bytes)), exact);
            }
        }

        #[test]
        fn no_packet_leaves_before_it_could(
            rate in 1_000_u64..1_000_000_000_000,
            packets in prop::collection::vec((0_u64..1_000_000, 1_u32..=65_535), 1..100),
        ) {
            let mut clock = LineClock::new(Some(rate));
            let (mut now, mut free) = (0, 0);
            for (gap, bytes) in packets {
                now += gap;
                let least = free.max(now) + u64::from(bytes) * 8_000_000_000 / rate;
                let left = clock.send(now, bytes);
                prop_assert!(left == least || left == least + 1, "{} {}", left, least);
                free = left;
            }
        }
    }
}
