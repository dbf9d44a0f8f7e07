//! The generator that walks draw from: small, seeded, the same on every machine.

/// A pseudorandom generator (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Dice {
    state: u64,
    /// Whether mishaps are off: a walk that keeps to the rules gets further, to states where single violations matter.
    pub(crate) is_polite: bool,
}

impl Dice {
    /// A generator whose draws have nothing in common with those of neighbouring seeds.
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Self { state: seed ^ 0x6c75_6e65_7474_6521, is_polite: false };
        dice.state = dice.next();
        dice
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True once in `times` on average.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// True once in `times` on average, but never when polite.
    pub(crate) fn mishap(&mut self, times: usize) -> bool {
        self.one_in(times) && !self.is_polite
    }

    /// One of the `choices`, which are not empty.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// An index, as often as its weight says. At least one weight is not zero.
    pub(crate) fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}
