//! Digests of blocks of a native unit, made without reading the ciphertexts.

use lunette_crc32c::{Combiner, combine, crc32c, zeroes};

use crate::header::HEADER_COPIES;
use crate::size::QuantumSize;

/// The CRC32C of adjacent blocks of a native unit, as it is when all of them are intact.
///
/// The CRC in the slot of an EDU makes the CRC32C of the whole EDU a constant of its position
/// ([`intact_digest`](crate::intact_digest)), so nothing of an EDU is read here but the beginning of its slot, which
/// tells a hole from a sealed quantum. The copies of the header are read. When a block is damaged, the digest is not
/// that of its bytes, and who compares the two finds that out.
///
/// ```
/// use lunette_quanta::{QuantumSize, StoredDigest};
///
/// let holes = [0; 2 * 576];
/// let mut digest = StoredDigest::new(QuantumSize::B512, 7);
/// digest.update(&holes[..1000]);
/// digest.update(&holes[1000..]);
/// assert_eq!(digest.finish(), lunette_crc32c::crc32c(&holes));
/// ```
#[derive(Debug, Clone)]
pub struct StoredDigest {
    size: QuantumSize,
    /// The block that the next byte belongs to, and how many of its bytes have been.
    lba: u64,
    at: usize,
    /// Whether a byte of the block's slot was not zero.
    sealed: bool,
    /// The CRC32C of the blocks before.
    crc: u32,
}

/// By the size of the quantum, in the order of [`QuantumSize::ALL`].
static COMBINERS: [Combiner; 4] = [
    Combiner::new(QuantumSize::B512.edu_len() as u32),
    Combiner::new(QuantumSize::B1024.edu_len() as u32),
    Combiner::new(QuantumSize::B2048.edu_len() as u32),
    Combiner::new(QuantumSize::B4096.edu_len() as u32),
];

/// The sums for the digests of holes.
const HOLES: [u32; 4] = [
    zeroes(QuantumSize::B512.edu_len() as u64),
    zeroes(QuantumSize::B1024.edu_len() as u64),
    zeroes(QuantumSize::B2048.edu_len() as u64),
    zeroes(QuantumSize::B4096.edu_len() as u64),
];

/// The CRC32C of a message and its own CRC.
const CHECKED: u32 = zeroes(4);

impl StoredDigest {
    /// A digest of no bytes, before those of block `first_lba`.
    pub const fn new(size: QuantumSize, first_lba: u64) -> Self {
        Self { size, lba: first_lba, at: 0, sealed: false, crc: 0 }
    }

    /// Takes the next bytes, which may begin and end anywhere in a block.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(self.size.edu_len() - self.at));
            if self.lba < HEADER_COPIES {
                self.crc = combine(self.crc, crc32c(part), part.len() as u64);
            } else {
                let slot = &part[self.size.bytes().saturating_sub(self.at).min(part.len())..];
                self.sealed |= slot.iter().any(|byte| *byte != 0);
            }
            self.at += part.len();
            if self.at == self.size.edu_len() {
                self.end_block();
            }
            bytes = rest;
        }
    }

    #[inline]
    fn end_block(&mut self) {
        if let Some(position) = self.lba.checked_sub(HEADER_COPIES) {
            let combiner = &COMBINERS[self.size as usize];
            self.crc = if self.sealed {
                // The digest of the EDU is that of its position, carried over the EDU, and a constant: one carry does
                // for both.
                combiner.combine(self.crc ^ crc32c(&position.to_le_bytes()), CHECKED)
            } else {
                combiner.combine(self.crc, HOLES[self.size as usize])
            };
        }
        (self.lba, self.at, self.sealed) = (self.lba + 1, 0, false);
    }

    /// The CRC32C of all whole blocks so far.
    pub const fn finish(&self) -> u32 {
        self.crc
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Cipher, Codec, DataKey, Holes, KeyRing, Sealing, Seed, VolumeId};

    /// Blocks of a unit from `first_lba` on: sealed where `sealed` says so, otherwise holes; headers of any bytes.
    fn blocks(size: QuantumSize, first_lba: u64, sealed: &[bool], seed: u8) -> Vec<u8> {
        let ring = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([7; 32])).unwrap();
        let codec = Codec::new(VolumeId([1; 16]), size, Holes::Allowed, ring);
        let mut blocks = vec![0; sealed.len() * size.edu_len()];
        for ((lba, sealed), block) in (first_lba..).zip(sealed).zip(blocks.chunks_exact_mut(size.edu_len())) {
            match lba.checked_sub(HEADER_COPIES).filter(|_| *sealed) {
                Some(position) => {
                    let sealing = Sealing { position, version: 1, seed: Seed::new([seed ^ lba as u8; 32]) };
                    codec.seal(sealing, &vec![seed; size.bytes()], block);
                }
                None if lba < HEADER_COPIES => block.fill(seed ^ lba as u8),
                None => {}
            }
        }
        blocks
    }

    proptest! {
        #[test]
        fn it_is_the_digest_of_the_bytes_of_intact_blocks_however_they_are_cut(
            size in 0..4_usize,
            first_lba in prop_oneof![0..4_u64, Just(1 << 40)],
            sealed in prop::collection::vec(any::<bool>(), 1..9),
            seed: u8,
            cut in 1..9000_usize,
        ) {
            let size = QuantumSize::ALL[size];
            let blocks = blocks(size, first_lba, &sealed, seed);
            let mut digest = StoredDigest::new(size, first_lba);
            blocks.chunks(cut).for_each(|run| digest.update(run));
            prop_assert_eq!(digest.finish(), crc32c(&blocks));
        }

        #[test]
        fn it_is_not_that_of_a_damaged_one(
            sealed in prop::collection::vec(any::<bool>(), 1..4),
            byte: prop::sample::Index,
            bit in 0..8_u8,
        ) {
            let mut blocks = blocks(QuantumSize::B512, 2, &sealed, 1);
            blocks[byte.index(sealed.len() * 576)] ^= 1 << bit;
            let mut digest = StoredDigest::new(QuantumSize::B512, 2);
            digest.update(&blocks);
            prop_assert_ne!(digest.finish(), crc32c(&blocks));
        }
    }
}
