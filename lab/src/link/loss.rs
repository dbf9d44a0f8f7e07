//! Packets that the line loses: the model of Gilbert and Elliott, with a seed.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// A probability, from 0 to 1.
pub(crate) type Share = f64;

/// A line with a good and a bad state, each of which loses a share of the packets.
///
/// Random loss is the line that is always good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LossModel {
    /// The probability that a packet finds the line turned from good to bad.
    pub(crate) good_to_bad: Share,
    /// The probability that a packet finds it turned back.
    pub(crate) bad_to_good: Share,
    pub(crate) lost_in_bad: Share,
    pub(crate) lost_in_good: Share,
}

impl LossModel {
    /// Each packet is lost with the same probability.
    pub(crate) fn random(share: Share) -> Self {
        Self { good_to_bad: 0.0, bad_to_good: 1.0, lost_in_bad: 1.0, lost_in_good: share }
    }

    /// A loss of that share of all packets, in bursts of that many packets on average.
    ///
    /// Gilbert's model: the bad state loses all packets and the good state none. `None` if there is no such
    /// model, because a burst is shorter than a packet or the gaps between bursts would be.
    pub(crate) fn bursts(share: Share, mean_packets: f64) -> Option<Self> {
        if share == 0.0 {
            return Some(Self::random(0.0));
        }
        let bad_to_good = 1.0 / mean_packets;
        let good_to_bad = bad_to_good * share / (1.0 - share);
        let possible = mean_packets >= 1.0 && share < 1.0 && good_to_bad <= 1.0;
        possible.then_some(Self { good_to_bad, bad_to_good, lost_in_bad: 1.0, lost_in_good: 0.0 })
    }

    /// The share of packets that is lost in the long run.
    pub(crate) fn mean(&self) -> Share {
        let turns = self.good_to_bad + self.bad_to_good;
        let bad = if self.good_to_bad == 0.0 { 0.0 } else { self.good_to_bad / turns };
        bad * self.lost_in_bad + (1.0 - bad) * self.lost_in_good
    }

    /// The standard deviation of the share lost among that many packets, which are more alike the longer the bursts.
    #[expect(clippy::cast_precision_loss, reason = "fewer packets than 2^52")]
    pub(crate) fn deviation(&self, packets: u64) -> f64 {
        let mean = self.mean();
        let turns = self.good_to_bad + self.bad_to_good;
        let alike = if self.good_to_bad == 0.0 { 0.0 } else { (1.0 - turns).max(0.0) };
        (mean * (1.0 - mean) * (1.0 + alike) / (1.0 - alike) / packets.max(1) as f64).sqrt()
    }
}

/// The losses of one direction.
pub(crate) struct Loss {
    model: LossModel,
    bad: bool,
    random: Pcg64,
}

impl Loss {
    pub(crate) fn new(model: LossModel, random: Pcg64) -> Self {
        Self { model, bad: false, random }
    }

    /// Decides about the next packet.
    pub(crate) fn takes_next(&mut self) -> bool {
        let turn = if self.bad { self.model.bad_to_good } else { self.model.good_to_bad };
        if happens(turn, &mut self.random) {
            self.bad = !self.bad;
        }
        let lost = if self.bad { self.model.lost_in_bad } else { self.model.lost_in_good };
        happens(lost, &mut self.random)
    }
}

/// True with that probability. It takes one number whatever the probability is, so that models with the same seed can
/// be compared.
pub(crate) fn happens(probability: Share, random: &mut Pcg64) -> bool {
    const NUMBERS: f64 = 4_294_967_296.0;
    f64::from((random.next_u64() >> 32) as u32) < probability * NUMBERS
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "millions of packets at most")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decisions(model: LossModel, seed: u64, packets: usize) -> Vec<bool> {
        let mut loss = Loss::new(model, Pcg64::new(u128::from(seed), 0));
        (0..packets).map(|_| loss.takes_next()).collect()
    }

    fn share(decisions: &[bool]) -> f64 {
        decisions.iter().filter(|lost| **lost).count() as f64 / decisions.len() as f64
    }

    /// The mean length of runs of lost packets.
    fn mean_burst(decisions: &[bool]) -> f64 {
        let bursts = decisions.windows(2).filter(|pair| !pair[0] && pair[1]).count() + usize::from(decisions[0]);
        decisions.iter().filter(|lost| **lost).count() as f64 / bursts as f64
    }

    #[test]
    fn the_ends_of_the_scale_are_exact() {
        assert!(decisions(LossModel::random(0.0), 1, 100_000).iter().all(|lost| !lost));
        assert!(decisions(LossModel::random(1.0), 1, 100_000).iter().all(|lost| *lost));
    }

    #[test]
    fn a_seed_repeats_its_losses_and_another_has_others() {
        let model = LossModel::random(0.1);
        assert_eq!(decisions(model, 5, 10_000), decisions(model, 5, 10_000));
        assert_ne!(decisions(model, 5, 10_000), decisions(model, 6, 10_000));
    }

    /// The sequence of a seed stays the same from version to version, so that experiments can be repeated.
    #[test]
    fn the_losses_of_a_seed_never_change() {
        let lost: Vec<usize> = decisions(LossModel::random(0.05), 1, 100)
            .iter()
            .enumerate()
            .filter(|(_, lost)| **lost)
            .map(|(at, _)| at)
            .collect();
        assert_eq!(lost, LOSSES_OF_SEED_1);
    }

    const LOSSES_OF_SEED_1: [usize; 9] = [0, 8, 11, 39, 58, 75, 81, 91, 93];

    #[test]
    fn bursts_have_the_share_and_the_length_asked_for() {
        for (asked, length) in [(0.01, 1.0), (0.01, 4.0), (0.1, 10.0), (0.3, 3.0)] {
            let model = LossModel::bursts(asked, length).expect("a possible model");
            assert!((model.mean() - asked).abs() < 1e-12);
            let seen = decisions(model, 9, 2_000_000);
            assert!((share(&seen) - asked).abs() < 5.0 * model.deviation(2_000_000), "{asked}: {}", share(&seen));
            assert!((mean_burst(&seen) / length - 1.0).abs() < 0.05, "{length}: {}", mean_burst(&seen));
        }
    }

    #[test]
    fn models_that_cannot_be_are_refused() {
        assert_eq!(LossModel::bursts(0.1, 0.5), None);
        assert_eq!(LossModel::bursts(1.0, 4.0), None);
        assert_eq!(LossModel::bursts(0.9, 2.0), None, "gaps shorter than a packet");
        assert_eq!(LossModel::bursts(0.0, 4.0), Some(LossModel::random(0.0)));
    }

    #[test]
    fn both_states_lose_their_share() {
        let model = LossModel { good_to_bad: 0.02, bad_to_good: 0.08, lost_in_bad: 0.5, lost_in_good: 0.01 };
        assert!((model.mean() - (0.2 * 0.5 + 0.8 * 0.01)).abs() < 1e-12);
        let seen = share(&decisions(model, 3, 2_000_000));
        assert!((seen - model.mean()).abs() < 5.0 * model.deviation(2_000_000), "{seen}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn random_loss_has_the_frequency_asked_for(asked in 0.0..1.0_f64, seed: u64) {
            let model = LossModel::random(asked);
            let seen = share(&decisions(model, seed, 20_000));
            // Beyond six deviations once in five hundred million runs.
            prop_assert!((seen - asked).abs() <= 6.0 * model.deviation(20_000) + 1e-3, "{} {}", asked, seen);
        }
    }
}
