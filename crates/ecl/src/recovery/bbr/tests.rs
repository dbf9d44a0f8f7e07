use proptest::prelude::*;

use super::*;

const LEN: usize = 1400;
const RTT: Duration = Duration::from_millis(20);

/// One acknowledgement each round trip: `rate` bytes per second arrive.
struct Rounds {
    bbr: Bbr,
    round_trip: Duration,
    now: Time,
    delivered: u64,
}

impl Rounds {
    fn pass(&mut self, count: u32, rate: u64, is_limited: bool) {
        for _ in 0..count {
            self.now = self.now + self.round_trip;
            let bytes = rate / 50;
            let delivered_before = self.delivered;
            self.delivered += bytes;
            let sample =
                Sample { bytes_per_second: Some(rate), is_limited, delivered_before, delivered: self.delivered, bytes };
            self.bbr.on_acknowledged(&sample, self.round_trip, bytes, self.now);
        }
    }
}

fn full(rate: u64) -> Rounds {
    let mut rounds = Rounds { bbr: Bbr::new(LEN, 0), round_trip: RTT, now: Time::default(), delivered: 0 };
    rounds.pass(40, rate, false);
    assert!(rounds.bbr.is_full());
    rounds
}

#[test]
fn rounds_with_little_to_send_do_not_make_the_path_slower() {
    let mut rounds = full(10_000_000);
    rounds.pass(100, 10_000, true);
    assert_eq!(rounds.bbr.rates.iter().max(), Some(&10_000_000));
    // With enough to send it forgets the higher rate in ten round trips.
    rounds.pass(10, 1_000_000, false);
    assert_eq!(rounds.bbr.rates.iter().max(), Some(&1_000_000));
}

#[test]
fn measuring_the_round_trip_does_not_make_the_path_slower() {
    let mut rounds = full(10_000_000);
    // A queue makes each round trip longer, until it is measured without one.
    rounds.round_trip = RTT * 2;
    while !matches!(rounds.bbr.state, State::ProbeRoundTrip { .. }) {
        rounds.pass(1, 10_000_000, false);
        assert!(rounds.now < Time::new(Duration::from_mins(1)));
    }
    // Four packets in flight for more than ten round trips.
    rounds.pass(15, 50 * LEAST_PACKETS * LEN as u64, false);
    assert!(!matches!(rounds.bbr.state, State::ProbeRoundTrip { .. }));
    assert_eq!(rounds.bbr.rates.iter().max(), Some(&10_000_000));
}

#[test]
fn losses_bound_the_window_above_2_percent() {
    let mut rounds = full(10_000_000);
    let before = rounds.bbr.window();
    // 200,000 bytes are in flight.
    rounds.bbr.on_lost(4000, rounds.now);
    rounds.pass(1, 10_000_000, false);
    assert_eq!(rounds.bbr.window(), before);
    rounds.bbr.on_lost(4001, rounds.now);
    rounds.pass(1, 10_000_000, false);
    assert!((200_000..before * 2 / 3).contains(&rounds.bbr.window()), "{} of {before}", rounds.bbr.window());
}

#[test]
fn losses_of_the_path_before_change_nothing() {
    let mut rounds = full(10_000_000);
    let before = rounds.bbr.window();
    rounds.bbr.ignore_losses_before(rounds.now);
    rounds.bbr.on_lost(100_000, Time::default());
    rounds.pass(1, 10_000_000, false);
    assert_eq!(rounds.bbr.window(), before);
}

proptest! {
    #[test]
    fn no_sample_brings_it_out_of_its_bounds(
        samples in prop::collection::vec(
            (prop::option::of(any::<u64>()), any::<bool>(), 0..1_u64 << 40, 0..1_u64 << 33, 0..u64::MAX / 2, 0..u64::MAX / 2),
            1..50,
        ),
        seed in any::<u64>(),
    ) {
        let (mut bbr, mut delivered) = (Bbr::new(LEN, seed), 0);
        for (bytes_per_second, is_limited, bytes, in_flight, latest, at) in samples {
            let delivered_before = delivered;
            delivered += bytes;
            let sample = Sample { bytes_per_second, is_limited, delivered_before, delivered, bytes };
            bbr.on_lost(bytes / 8, Time::default());
            bbr.on_acknowledged(&sample, Duration::from_nanos(latest), in_flight, Time::new(Duration::from_nanos(at)));
            prop_assert!((4 * LEN as u64..=MAX_WINDOW_BYTES).contains(&bbr.window()));
            let Rate { bytes_per_second, burst } = bbr.rate();
            prop_assert!(bytes_per_second.is_finite() && bytes_per_second >= 1.0 && burst >= 2 * LEN as u64);
        }
    }
}
