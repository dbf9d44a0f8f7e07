//! Bytes and numbers that are the same in every run.

use crate::BLOCK_LEN;

/// Bytes that differ from place to place.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n ^ n >> 8 ^ 0x35) as u8).collect()
}

/// Blocks that differ from those of another `seed` and of other places.
pub fn blocks(count: usize, seed: u8) -> Vec<u8> {
    (0..count * BLOCK_LEN).map(|at| (at / BLOCK_LEN) as u8 ^ (at as u8).wrapping_mul(7) ^ seed).collect()
}

/// Pseudorandom numbers (xorshift64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// `seed` is not zero.
    pub fn new(seed: u64) -> Self {
        assert_ne!(seed, 0, "xorshift stays at zero");
        Self(seed)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}
