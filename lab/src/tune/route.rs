//! The paths between initiator and target.

use std::ops::RangeInclusive;
use std::time::Duration;

use lunette_tuning::Path;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use serde::Serialize;

const RATES_MBIT: RangeInclusive<f64> = 20.0..=1_000.0;
const ROUND_TRIPS_MS: RangeInclusive<f64> = 1.0..=80.0;
const LOSSES_PERCENT: RangeInclusive<f64> = 0.0..=0.2;

/// A path, in the steps that `lunette-lab link` is told of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Route {
    pub(super) rate_mbit: u32,
    pub(super) round_trip_ms: u32,
    /// Thousandths of a percent.
    pub(super) loss_millipercent: u32,
    /// The seed of the lost packets.
    pub(super) seed: u64,
}

impl Route {
    /// The path that every campaign has.
    pub(super) const FIXED: Self = Self { rate_mbit: 1_000, round_trip_ms: 20, loss_millipercent: 50, seed: 1 };

    /// Draws paths: rates and round trips from a logarithmic scale, so that short and long ones are equally often.
    pub(super) fn drawn(seed: u64, number: usize) -> impl Iterator<Item = Self> {
        let mut random = Pcg64::new(u128::from(seed), 0);
        std::iter::repeat_with(move || {
            let rate = on_a_logarithmic_scale(&RATES_MBIT, share(&mut random));
            let round_trip = on_a_logarithmic_scale(&ROUND_TRIPS_MS, share(&mut random));
            let loss = LOSSES_PERCENT.end() * share(&mut random);
            Self {
                rate_mbit: whole(rate),
                round_trip_ms: whole(round_trip),
                loss_millipercent: whole(loss * 1e3),
                seed: random.next_u64() >> 32,
            }
        })
        .take(number)
    }

    /// The path as the model has it.
    pub(super) fn path(&self) -> Path {
        Path {
            rate: f64::from(self.rate_mbit) * 1e6 / 8.0,
            round_trip: Duration::from_millis(self.round_trip_ms.into()),
            loss: f64::from(self.loss_millipercent) / 1e5,
            ..Path::default()
        }
    }

    /// The options of `lunette-lab link`.
    pub(super) fn link(&self) -> Vec<String> {
        let Self { rate_mbit, round_trip_ms, loss_millipercent, seed } = self;
        let mut options = vec!["--rate".into(), format!("{rate_mbit}M"), "--rtt".into(), format!("{round_trip_ms}ms")];
        if *loss_millipercent > 0 {
            options.extend(["--loss".into(), format!("{}%", f64::from(*loss_millipercent) / 1e3)]);
            options.extend(["--seed".into(), seed.to_string()]);
        }
        options.extend(["--sysctl".into(), "net.ipv4.tcp_congestion_control=cubic".into()]);
        options
    }
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let loss = f64::from(self.loss_millipercent) / 1e3;
        write!(f, "{} Mb/s, {} ms, {loss}%", self.rate_mbit, self.round_trip_ms)
    }
}

/// From 0 to 1.
fn share(random: &mut Pcg64) -> f64 {
    f64::from((random.next_u64() >> 32) as u32) / f64::from(u32::MAX)
}

fn on_a_logarithmic_scale(range: &RangeInclusive<f64>, share: f64) -> f64 {
    range.start() * (range.end() / range.start()).powf(share)
}

#[expect(clippy::cast_sign_loss, reason = "no quantity of a path is negative")]
fn whole(value: f64) -> u32 {
    value.round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_paths_within_the_ranges() {
        let drawn = |seed| Route::drawn(seed, 50).collect::<Vec<_>>();
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        for route in drawn(1) {
            assert!(RATES_MBIT.contains(&route.rate_mbit.into()), "{route}");
            assert!(ROUND_TRIPS_MS.contains(&route.round_trip_ms.into()), "{route}");
            assert!(LOSSES_PERCENT.contains(&(f64::from(route.loss_millipercent) / 1e3)), "{route}");
        }
        let short = drawn(1).iter().filter(|route| route.round_trip_ms < 9).count();
        assert!((15..=35).contains(&short), "{short} of 50 round trips are short");
    }
}
