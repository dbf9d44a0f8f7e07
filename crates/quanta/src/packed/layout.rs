//! Where the parts of a packed volume lie.

use crate::header::{HEADER_COPIES, Header, Placement};
use crate::limits::{MAX_QUANTA, MIN_JOURNAL_LEN};
use crate::size::QuantumSize;
use crate::slot::SLOT_LEN;

/// Bytes of the largest block. Every part of the volume begins at a multiple of it, so that a volume can move to a unit
/// with larger blocks.
pub const MAX_BLOCK_LEN: u32 = 4096;

const ALIGN: u64 = MAX_BLOCK_LEN as u64;
const DEFAULT_JOURNAL_LEN: u64 = 64 << 20;

/// The parts of a packed volume: two headers, the journal, the slots, the ciphertexts. Offsets are in bytes from the
/// beginning of the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub(crate) size: QuantumSize,
    pub(crate) block_len: u32,
    pub(crate) journal_len: u64,
    quanta: u64,
}

/// A packed volume that a header describes cannot be on this unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The header is that of a native volume.
    #[error("the volume is not packed: its header describes a unit whose block is the EDU")]
    NotPacked,
    /// The unit is too short.
    #[error(
        "the volume needs {needed} bytes, and the unit has {unit_len}: it was cut, or is not the one that was formatted"
    )]
    UnitTooSmall {
        /// Bytes that the volume needs.
        needed: u64,
        /// Bytes of the unit.
        unit_len: u64,
    },
}

impl Layout {
    /// The journal for a unit of `unit_len` bytes: 1/64 of it, within bounds.
    pub fn default_journal_len(unit_len: u64) -> u64 {
        (unit_len / 64).clamp(MIN_JOURNAL_LEN, DEFAULT_JOURNAL_LEN) / ALIGN * ALIGN
    }

    /// The largest volume that fits a unit of `unit_len` bytes; `None` where not even one quantum does, or blocks are
    /// longer than quanta.
    pub fn largest(unit_len: u64, size: QuantumSize, block_len: u32, journal_len: u64) -> Option<Self> {
        if block_len as usize > size.bytes() {
            return None;
        }
        let mut layout = Self { size, block_len, journal_len, quanta: 0 };
        let room = unit_len.checked_sub(layout.slots_offset())?;
        // One that is right without the rounding of the slots, and then at most a block of slots fewer.
        layout.quanta = (room / size.edu_len() as u64).min(MAX_QUANTA);
        while layout.quanta > 0 && layout.len_bytes() > unit_len {
            layout.quanta -= 1;
        }
        (layout.quanta > 0).then_some(layout)
    }

    /// The volume that a header describes, on a unit of `unit_len` bytes.
    ///
    /// # Errors
    ///
    /// [`LayoutError`].
    pub fn of(header: &Header, unit_len: u64) -> Result<Self, LayoutError> {
        let Placement::Packed { block_len, journal_len } = header.placement else { return Err(LayoutError::NotPacked) };
        let layout = Self { size: header.size, block_len, journal_len, quanta: header.quanta };
        let needed = layout.len_bytes();
        if needed <= unit_len { Ok(layout) } else { Err(LayoutError::UnitTooSmall { needed, unit_len }) }
    }

    /// Quanta of the volume.
    pub fn quanta(&self) -> u64 {
        self.quanta
    }

    /// The placement as the header has it.
    pub fn placement(&self) -> Placement {
        Placement::Packed { block_len: self.block_len, journal_len: self.journal_len }
    }

    /// Where a copy of the header is.
    pub fn header_offset(copy: u64) -> u64 {
        copy * ALIGN
    }

    /// Where the journal begins.
    pub fn journal_offset(&self) -> u64 {
        HEADER_COPIES * ALIGN
    }

    /// Bytes of the journal.
    pub fn journal_len(&self) -> u64 {
        self.journal_len
    }

    fn slots_offset(&self) -> u64 {
        self.journal_offset() + self.journal_len
    }

    fn data_offset(&self) -> u64 {
        self.slots_offset() + (self.quanta * SLOT_LEN as u64).next_multiple_of(ALIGN)
    }

    /// Where the ciphertext of a quantum is. Those of adjacent quanta are adjacent.
    pub fn data(&self, position: u64) -> u64 {
        self.data_offset() + position * self.size.bytes() as u64
    }

    /// Where the slot of a quantum is. Those of adjacent quanta are adjacent, and none crosses a block.
    pub fn slot(&self, position: u64) -> u64 {
        self.slots_offset() + position * SLOT_LEN as u64
    }

    /// The block that holds the slot of a quantum: to write the slot, read the block and change 64 bytes of it.
    pub fn slot_block(&self, position: u64) -> u64 {
        let offset = self.slot(position);
        offset - offset % u64::from(self.block_len)
    }

    /// Bytes of the volume, from the beginning of its unit.
    pub fn len_bytes(&self) -> u64 {
        self.data(self.quanta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_volume_fits_and_one_quantum_more_does_not() {
        for size in QuantumSize::ALL {
            for unit_len in (0..2 << 20).step_by(512 * 7) {
                let Some(layout) = Layout::largest(unit_len, size, 512, MIN_JOURNAL_LEN) else { continue };
                assert!(layout.len_bytes() <= unit_len);
                let more = Layout { quanta: layout.quanta + 1, ..layout };
                assert!(more.len_bytes() > unit_len, "{} is not the most for {unit_len}", layout.quanta);
            }
        }
        assert_eq!(Layout::largest(1 << 20, QuantumSize::B512, 4096, MIN_JOURNAL_LEN), None);
    }

    #[test]
    fn parts_do_not_overlap_and_begin_at_blocks() {
        let layout = Layout::largest(1 << 20, QuantumSize::B4096, 4096, MIN_JOURNAL_LEN).unwrap();
        let last = layout.quanta() - 1;
        assert_eq!((Layout::header_offset(1), layout.journal_offset()), (4096, 8192));
        assert_eq!(layout.slot(0), 8192 + MIN_JOURNAL_LEN);
        assert!(layout.slot(last) + 64 <= layout.data(0));
        assert!(
            (0..=last)
                .all(|at| layout.data(at).is_multiple_of(4096) && layout.slot(at) - layout.slot_block(at) <= 4096 - 64)
        );
    }
}
