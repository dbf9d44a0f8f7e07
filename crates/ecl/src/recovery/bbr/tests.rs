use proptest::prelude::*;

use super::*;

const LEN: usize = 1400;
const RTT: Duration = Duration::from_millis(20);

/// One acknowledgement each round trip: `rate` bytes per second arrive.
struct Rounds {
    bbr: Bbr,
    now: Time,
    delivered: u64,
}

impl Rounds {
    fn pass(&mut self, count: u32, rate: u64, is_limited: bool) {
        for _ in 0..count {
            self.now = self.now + RTT;
            let bytes = rate / 50;
            let delivered_before = self.delivered;
            self.delivered += bytes;
            let sample =
                Sample { bytes_per_second: Some(rate), is_limited, delivered_before, delivered: self.delivered, bytes };
            self.bbr.on_acknowledged(&sample, RTT, bytes, self.now);
        }
    }
}

fn full(rate: u64) -> Rounds {
    let mut rounds = Rounds { bbr: Bbr::new(LEN, 0), now: Time::default(), delivered: 0 };
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
            bbr.on_acknowledged(&sample, Duration::from_nanos(latest), in_flight, Time::new(Duration::from_nanos(at)));
            prop_assert!((4 * LEN as u64..=MAX_WINDOW_BYTES).contains(&bbr.window()));
            let Rate { bytes_per_second, burst } = bbr.rate();
            prop_assert!(bytes_per_second.is_finite() && bytes_per_second >= 1.0 && burst >= 2 * LEN as u64);
        }
    }
}
