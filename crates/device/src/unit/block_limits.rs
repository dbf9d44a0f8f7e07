//! The block limits of a logical unit, which follow from its store and its block size.

use super::{LogicalUnit, space};
use crate::limits::{MAX_ATOMIC_BYTES, MAX_TRANSFER_BYTES, MAX_WRITE_SAME_BLOCKS};

impl LogicalUnit {
    /// THRESHOLD EXPONENT; zero on a unit that cannot free space.
    pub(crate) fn threshold_exponent(&self) -> u8 {
        if self.capabilities().unmap { space::threshold_exponent(self.block_size()) } else { 0 }
    }

    /// Whether blocks can be anchored: unmapped, but with their space set aside (`ANC_SUP`).
    pub(crate) fn anchors(&self) -> bool {
        let capabilities = self.capabilities();
        capabilities.unmap && capabilities.unmap_zeroes && capabilities.anchors
    }

    /// Blocks that one WRITE SAME may write, if that is limited; otherwise zero blocks mean all blocks to the end (WSNZ
    /// is zero).
    ///
    /// It is limited where space can be freed: some initiators unmap "to the end" with a non-zero block and expect
    /// zeroes, but every block would be written instead.
    pub(crate) fn max_write_same_blocks(&self) -> Option<u64> {
        self.capabilities().unmap.then_some(u64::from(MAX_WRITE_SAME_BLOCKS))
    }

    /// Blocks that one command may transfer.
    pub(crate) fn max_transfer_blocks(&self) -> u32 {
        MAX_TRANSFER_BYTES as u32 / self.config.block_size
    }

    /// Blocks that one WRITE ATOMIC may write.
    pub(crate) fn max_atomic_blocks(&self) -> u32 {
        MAX_ATOMIC_BYTES as u32 / self.config.block_size
    }

    /// ATOMIC ALIGNMENT and ATOMIC TRANSFER LENGTH GRANULARITY: the physical block of the medium. A write of part of it
    /// needs a read first, and so is not atomic. Blocks that do not divide a physical block are never aligned with the
    /// medium.
    pub(crate) fn atomic_unit_blocks(&self) -> u32 {
        1 << self.physical_exponent()
    }

    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT: a physical block has 2 to this power logical blocks.
    pub(crate) fn physical_exponent(&self) -> u8 {
        const MAX_EXPONENT: u32 = 15;
        let physical_bytes = self.config.store.geometry().physical_bytes;
        let blocks = physical_bytes / self.config.block_size;
        let whole = blocks * self.config.block_size == physical_bytes;
        blocks.checked_ilog2().filter(|_| whole).unwrap_or(0).min(MAX_EXPONENT) as u8
    }
}
