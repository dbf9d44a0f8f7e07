//! The generator from which a walk draws: small, seeded, the same on every machine.

/// Draws that follow from a seed (splitmix64).
#[derive(Debug, Clone)]
pub(super) struct Dice {
    state: u64,
    /// No mishaps: a walk that keeps to the rules gets further, to where several things are allowed one by one.
    pub(super) is_polite: bool,
}

impl Dice {
    /// Neighbouring seeds have nothing in common.
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Self { state: seed ^ 0x6c75_6e65_7474_6521, is_polite: false };
        dice.state = dice.next();
        dice
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// Less than `bound`, which is not zero.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True once in `times`.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// True once in `times`, but never when polite.
    pub(super) fn mishap(&mut self, times: usize) -> bool {
        self.one_in(times) && !self.is_polite
    }

    /// One of the `choices`, of which there is one at least.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// An index, as often as its weight says. Some weight is not zero.
    pub(super) fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }

    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}
