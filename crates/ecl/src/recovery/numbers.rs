//! The numbers of the packets that are sent.

use super::ranges::Span;

/// At least this many packets are between two numbers that are skipped, and at most [`SKIP_RANDOM`] more.
const SKIP_LEAST: u64 = 256;
const SKIP_RANDOM: u64 = 4096;

/// Skipped numbers that are remembered.
const REMEMBERED: usize = 8;

/// Gives each packet its number, and none twice.
///
/// Now and then it skips one, where the peer cannot foresee it. A peer that acknowledges what it did not receive, to be
/// sent more than the path carries, acknowledges such a number sooner or later and is found out (RFC 9000 section
/// 21.4).
#[derive(Debug)]
pub struct Numbers {
    next: u64,
    next_skip: u64,
    skipped: [Option<u64>; REMEMBERED],
    skips: usize,
    random: u64,
}

impl Numbers {
    /// Begins with 0. `seed` must be a secret of this side.
    pub fn new(seed: u64) -> Self {
        let mut numbers = Self { next: 0, next_skip: 0, skipped: [None; REMEMBERED], skips: 0, random: seed };
        numbers.next_skip = numbers.distance();
        numbers
    }

    /// The number of the next packet, and never again.
    pub fn take(&mut self) -> u64 {
        if self.next == self.next_skip {
            self.skipped[self.skips % REMEMBERED] = Some(self.next);
            self.skips = self.skips.wrapping_add(1);
            self.next += 1;
            self.next_skip = self.next + self.distance();
        }
        let number = self.next;
        // At 10⁹ packets each second this ends after 584 years.
        self.next += 1;
        number
    }

    /// No packet had this number or a larger one yet.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// A number of `span` that no packet had, as far as skipped ones are remembered.
    pub fn never_sent(&self, span: Span) -> Option<u64> {
        if span.last >= self.next {
            return Some(span.last);
        }
        self.skipped.iter().flatten().copied().find(|skipped| span.contains(*skipped))
    }

    /// SplitMix64: the numbers need not be good, only not foreseen.
    fn distance(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        SKIP_LEAST + (mixed ^ (mixed >> 31)) % SKIP_RANDOM
    }
}
