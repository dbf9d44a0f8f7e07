//! The order of requests, and the content of blocks.

/// A small, fast and reproducible generator, splitmix64. Nothing here needs to be hard to guess.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`, which is not zero. The bias of 2^64 modulo `limit` does not matter here.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The content of a chunk: its number, the count of writes to it, and words derived from both. No two chunks, and no
/// two versions of one, have a word in common, so any mix-up shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) seed: u64,
    pub(super) chunk: u64,
    pub(super) version: u32,
}

impl Stamp {
    fn words(self) -> impl Iterator<Item = u64> {
        let base = mix(self.seed ^ mix(self.chunk) ^ u64::from(self.version).rotate_left(32));
        (0_u64..).map(move |index| base.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Fills a chunk, whose length is a multiple of eight.
    pub(super) fn fill(self, chunk: &mut [u8]) {
        for (place, word) in chunk.as_chunks_mut::<8>().0.iter_mut().zip(self.words()) {
            *place = word.to_le_bytes();
        }
    }

    /// The first byte that differs from [`fill`](Self::fill)'s.
    pub(super) fn first_difference(self, chunk: &[u8]) -> Option<usize> {
        let words = chunk.as_chunks::<8>().0.iter().zip(self.words());
        words.enumerate().find(|(_, (found, word))| **found != word.to_le_bytes()).map(|(index, _)| index * 8)
    }
}

/// The offsets of a run of requests, in chunks of the request size.
pub(super) enum Order {
    /// One after the other; the start follows the end.
    Sequential { next: u64 },
    /// Offsets are uniformly random.
    Random,
}

impl Order {
    pub(super) fn next(&mut self, random: &mut Random, chunks: u64) -> u64 {
        match self {
            Self::Sequential { next } => {
                let chunk = *next;
                *next = (chunk + 1) % chunks;
                chunk
            }
            Self::Random => random.below(chunks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_known_from_all_others() {
        let stamp = Stamp { seed: 1, chunk: 2, version: 3 };
        let mut chunk = [0; 4096];
        stamp.fill(&mut chunk);
        assert_eq!(stamp.first_difference(&chunk), None);
        for other in [Stamp { seed: 0, ..stamp }, Stamp { chunk: 3, ..stamp }, Stamp { version: 2, ..stamp }] {
            assert_eq!(other.first_difference(&chunk), Some(0));
        }
        chunk[4000] ^= 1;
        assert_eq!(stamp.first_difference(&chunk), Some(4000));
    }

    #[test]
    fn random_offsets_reach_every_chunk_and_no_other() {
        let mut random = Random::new(7);
        let mut seen = [0_u32; 10];
        for _ in 0..1000 {
            seen[Order::Random.next(&mut random, 10) as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    }

    #[test]
    fn sequential_offsets_begin_again() {
        let mut order = Order::Sequential { next: 0 };
        let mut random = Random::new(0);
        assert_eq!((0..5).map(|_| order.next(&mut random, 3)).collect::<Vec<_>>(), [0, 1, 2, 0, 1]);
    }
}
