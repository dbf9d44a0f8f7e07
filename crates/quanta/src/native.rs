//! The native placement: a unit whose block is the EDU.
//!
//! The first two blocks are the copies of the header, filled up with zeroes; the block behind them is quantum 0. A
//! volume with parity groups has the parity EDUs behind its last quantum.

use crate::header::{Group, HEADER_COPIES, HEADER_LEN, Header, is_whole};
use crate::limits::MAX_QUANTA;
use crate::size::QuantumSize;
use crate::slot::{Condition, check};

/// Where EDUs lie in a native unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Native {
    quanta: u64,
    group: Option<Group>,
}

/// The unit is too small for what its header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the volume needs {needed} blocks, and the unit has {blocks}: it was cut, or is not the one that was formatted"
)]
pub struct UnitTooSmall {
    /// Blocks that the volume needs.
    pub needed: u64,
    /// Blocks of the unit.
    pub blocks: u64,
}

impl Native {
    /// The largest volume that fits a unit of `blocks` blocks; `None` where not even one quantum does.
    pub fn largest(blocks: u64, group: Option<Group>) -> Option<Self> {
        let room = blocks.checked_sub(HEADER_COPIES)?;
        let quanta = match group {
            None => room,
            Some(Group { data, parity }) => {
                let (data, parity) = (u64::from(data), u64::from(parity));
                let whole = room / (data + parity);
                whole * data + (room % (data + parity)).saturating_sub(parity)
            }
        };
        (quanta > 0).then_some(Self { quanta: quanta.min(MAX_QUANTA), group })
    }

    /// The volume that a header describes, on a unit of `blocks` blocks.
    ///
    /// # Errors
    ///
    /// [`UnitTooSmall`].
    pub fn of(header: &Header, blocks: u64) -> Result<Self, UnitTooSmall> {
        let native = Self { quanta: header.quanta, group: header.group };
        let needed = native.blocks();
        if needed <= blocks { Ok(native) } else { Err(UnitTooSmall { needed, blocks }) }
    }

    /// Quanta of the volume.
    pub fn quanta(self) -> u64 {
        self.quanta
    }

    /// Blocks that the volume takes of its unit.
    pub fn blocks(self) -> u64 {
        HEADER_COPIES + self.quanta + self.groups() * self.group.map_or(0, |group| group.parity.into())
    }

    /// The block of a quantum of the volume. Adjacent quanta are in adjacent blocks.
    pub fn lba(self, position: u64) -> u64 {
        position + HEADER_COPIES
    }

    /// The quantum in a block, if there is one.
    pub fn position(self, lba: u64) -> Option<u64> {
        lba.checked_sub(HEADER_COPIES).filter(|position| *position < self.quanta)
    }

    /// Groups of the volume, the last of which may have fewer quanta than the others.
    pub fn groups(self) -> u64 {
        self.group.map_or(0, |group| self.quanta.div_ceil(group.data.into()))
    }

    /// The first block of the parity EDUs of a group.
    pub fn parity_lba(self, group: u64) -> Option<u64> {
        let sizes = self.group.filter(|_| group < self.groups())?;
        Some(HEADER_COPIES + self.quanta + group * u64::from(sizes.parity))
    }

    /// The size of the quanta of a unit with this block length, if native volumes have one.
    pub fn size_of_block_len(block_len: u32) -> Option<QuantumSize> {
        QuantumSize::of_edu_len(block_len.into())
    }
}

/// Checks block `lba` of a native unit without a key: a copy of the header, or an EDU, whose position follows from the
/// block. Zeroes are a header that was never written, or a hole.
///
/// # Panics
///
/// When `block` has not the length of an EDU of this size: a mistake of the caller.
pub fn check_block(size: QuantumSize, lba: u64, block: &[u8]) -> Condition {
    assert_eq!(block.len(), size.edu_len(), "a block of a native unit is an EDU long");
    if let Some(position) = lba.checked_sub(HEADER_COPIES) {
        let (data, slot) = block.split_last_chunk().expect("an EDU is longer than its slot");
        return check(position, data, slot);
    }
    let (header, rest) = block.split_first_chunk::<HEADER_LEN>().expect("an EDU is longer than a header");
    if rest.iter().any(|byte| *byte != 0) {
        return Condition::Damaged;
    }
    // A later version of the header is not this target's business.
    match header {
        header if is_whole(header) => Condition::Intact,
        header if header.iter().all(|byte| *byte == 0) => Condition::NeverWritten,
        _ => Condition::Damaged,
    }
}

/// The first block of `blocks`, adjacent blocks of a native unit from `first_lba` on, that is damaged. What follows the
/// last whole block does not count.
pub fn first_damaged(size: QuantumSize, first_lba: u64, blocks: &[u8]) -> Option<u64> {
    let damaged = |(lba, block): &(u64, &[u8])| check_block(size, *lba, block) == Condition::Damaged;
    (first_lba..).zip(blocks.chunks_exact(size.edu_len())).find(damaged).map(|(lba, _)| lba)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Placement;
    use crate::{Cipher, Codec, DataKey, Holes, KeyRing, Sealing, Seed, VolumeId};

    #[test]
    fn the_largest_volume_fits_and_one_quantum_more_does_not() {
        let groups = [None, Some(Group { data: 4, parity: 2 }), Some(Group { data: 1, parity: 1 })];
        for group in groups {
            for blocks in 0..200 {
                let quanta = Native::largest(blocks, group).map_or(0, Native::quanta);
                let more = Native { quanta: quanta + 1, group };
                assert!(more.blocks() > blocks, "{quanta} quanta are not the most for {blocks} blocks, {group:?}");
                assert!(quanta == 0 || Native { quanta, group }.blocks() <= blocks);
            }
        }
    }

    #[test]
    fn blocks_are_headers_then_quanta_then_parity() {
        let native = Native { quanta: 10, group: Some(Group { data: 4, parity: 2 }) };
        assert_eq!((native.groups(), native.blocks()), (3, 2 + 10 + 6));
        assert_eq!((0..14).filter_map(|lba| native.position(lba)).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert!((0..10).all(|position| native.position(native.lba(position)) == Some(position)));
        assert_eq!([0, 1, 2, 3].map(|group| native.parity_lba(group)), [Some(12), Some(14), Some(16), None]);
    }

    #[test]
    fn headers_edus_and_zeroes_are_told_from_damage_by_their_blocks() {
        let size = QuantumSize::B512;
        let ring = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([7; 32])).unwrap();
        let header = Header {
            volume: VolumeId([1; 16]),
            cipher: Cipher::Aegis256,
            size,
            placement: Placement::Native,
            quanta: 3,
            holes: Holes::Allowed,
            first_epoch: 1,
            newest_epoch: 1,
            group: None,
            generation: 1,
        };
        let mut blocks = vec![0; 5 * 576];
        blocks[576..][..HEADER_LEN].copy_from_slice(&header.seal(&ring, &Seed::new([3; 32])).unwrap());
        let codec = Codec::new(header.volume, size, Holes::Allowed, ring);
        codec.seal(
            Sealing { position: 1, version: 1, seed: Seed::new([2; 32]) },
            &[0x5a; 1024],
            &mut blocks[3 * 576..],
        );
        let conditions: Vec<_> =
            (0..).zip(blocks.chunks_exact(576)).map(|(lba, block)| check_block(size, lba, block)).collect();
        let (written, never) = (Condition::Intact, Condition::NeverWritten);
        assert_eq!(conditions, [never, written, never, written, written]);
        assert_eq!(first_damaged(size, 0, &blocks), None);
        let mut later = blocks.clone();
        let (header, _) = later[576..].split_first_chunk_mut::<HEADER_LEN>().unwrap();
        header[8] += 1;
        let crc = lunette_crc32c::crc32c(&header[..HEADER_LEN - 4]);
        header[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        assert!(Header::decode(header).is_err());
        assert_eq!(first_damaged(size, 0, &later), None, "a header of a later version");
        assert_eq!(first_damaged(size, 3, &blocks[2 * 576..]), Some(4), "each EDU is one block too early");
        for byte in 0..blocks.len() {
            let mut damaged = blocks.clone();
            damaged[byte] ^= 0x10;
            assert_eq!(first_damaged(size, 0, &damaged), Some(byte as u64 / 576), "byte {byte}");
        }
    }
}
