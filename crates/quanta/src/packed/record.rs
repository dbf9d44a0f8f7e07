//! A record of the journal: what one write changes, ciphertexts and slots together.
//!
//! A record begins at a block with 64 bytes of header, then come the slots of its quanta, then their positions. The
//! rest of the block is zero, and the ciphertexts follow. Unmapped quanta come last; their slots are zero and they have
//! no ciphertext. Header and table have a CRC each, and every ciphertext is covered by that of its slot: nothing is
//! computed twice, and a torn record is seen.

use crate::associated::VolumeId;
use crate::limits::{MAX_RECORD_ENTRIES, MAX_SEQUENCE};
use crate::packed::{Layout, Ticket};
use crate::slot::{Condition, SLOT_LEN, array, check};

/// Bytes of the header of a record.
pub const RECORD_HEADER_LEN: usize = 64;

const POSITION_LEN: usize = 8;
const MAGIC: [u8; 8] = *b"LUNJRNL1";

mod at {
    pub(super) const VOLUME: usize = 8;
    pub(super) const SEQUENCE: usize = 24;
    pub(super) const SEALED: usize = 32;
    pub(super) const HOLES: usize = 36;
    pub(super) const RESERVED: usize = 40;
    pub(super) const TABLE_CRC: usize = 56;
    pub(super) const HEADER_CRC: usize = 60;
}

/// The numbers of quanta in a record, from which all lengths follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Quanta with a ciphertext.
    pub sealed: usize,
    /// Quanta that are unmapped.
    pub holes: usize,
}

impl Shape {
    fn entries(self) -> usize {
        self.sealed + self.holes
    }

    fn table_end(self) -> usize {
        RECORD_HEADER_LEN + self.entries() * (SLOT_LEN + POSITION_LEN)
    }

    /// Where the ciphertexts begin in the record.
    pub fn data_offset(self, layout: &Layout) -> usize {
        self.table_end().next_multiple_of(layout.block_len as usize)
    }

    /// Bytes of the record.
    pub fn len(self, layout: &Layout) -> usize {
        self.data_offset(layout) + self.sealed * layout.size.bytes()
    }

    /// Whether a record may have this shape: it has a quantum, and not too many.
    pub fn is_allowed(self) -> bool {
        (1..=MAX_RECORD_ENTRIES).contains(&self.sealed.saturating_add(self.holes))
    }
}

/// The places of the slots and the ciphertexts of a record's sealed quanta, to seal into with
/// [`Codec::seal_split`](crate::Codec::seal_split).
///
/// # Panics
///
/// When `record` does not have the length of the shape.
pub fn places<'a>(record: &'a mut [u8], shape: Shape, layout: &Layout) -> (&'a mut [u8], &'a mut [u8]) {
    assert_eq!(record.len(), shape.len(layout), "a record of another length");
    let (table, data) = record.split_at_mut(shape.data_offset(layout));
    (&mut table[RECORD_HEADER_LEN..][..shape.sealed * SLOT_LEN], data)
}

/// Completes a record whose sealed quanta are in their [`places`]: everything else in it.
///
/// `positions` are those of the sealed quanta, then of the unmapped ones.
///
/// # Panics
///
/// When there are not as many positions as the shape has quanta, or `record` does not have its length.
pub fn finish(
    record: &mut [u8],
    layout: &Layout,
    volume: VolumeId,
    ticket: &Ticket,
    positions: impl ExactSizeIterator<Item = u64>,
) {
    let shape = ticket.shape;
    assert_eq!((record.len(), positions.len()), (shape.len(layout), shape.entries()), "a record of another shape");
    let slots_end = RECORD_HEADER_LEN + shape.entries() * SLOT_LEN;
    let table = &mut record[..shape.data_offset(layout)];
    table[RECORD_HEADER_LEN + shape.sealed * SLOT_LEN..].fill(0);
    for (place, position) in table[slots_end..].chunks_exact_mut(POSITION_LEN).zip(positions) {
        place.copy_from_slice(&position.to_le_bytes());
    }
    let table_crc = lunette_crc32c::crc32c(&table[RECORD_HEADER_LEN..shape.table_end()]);
    let mut put = |at: usize, field: &[u8]| table[at..at + field.len()].copy_from_slice(field);
    put(0, &MAGIC);
    put(at::VOLUME, &volume.0);
    put(at::SEQUENCE, &ticket.sequence.to_le_bytes());
    put(at::SEALED, &(shape.sealed as u32).to_le_bytes());
    put(at::HOLES, &(shape.holes as u32).to_le_bytes());
    put(at::RESERVED, &[0; at::TABLE_CRC - at::RESERVED]);
    put(at::TABLE_CRC, &table_crc.to_le_bytes());
    let header_crc = lunette_crc32c::crc32c(&table[..at::HEADER_CRC]);
    table[at::HEADER_CRC..RECORD_HEADER_LEN].copy_from_slice(&header_crc.to_le_bytes());
}

/// A record that is whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) sequence: u64,
    pub(crate) shape: Shape,
    table: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the beginning of `bytes`, if there is a whole one of this volume.
    pub(crate) fn find(bytes: &'a [u8], layout: &Layout, volume: VolumeId) -> Option<Self> {
        let header = bytes.first_chunk::<RECORD_HEADER_LEN>()?;
        if header[..MAGIC.len()] != MAGIC || header[at::VOLUME..at::SEQUENCE] != volume.0 {
            return None;
        }
        let u32_at = |at| u32::from_le_bytes(array(header, at));
        if u32_at(at::HEADER_CRC) != lunette_crc32c::crc32c(&header[..at::HEADER_CRC]) {
            return None;
        }
        let shape = Shape { sealed: u32_at(at::SEALED) as usize, holes: u32_at(at::HOLES) as usize };
        if !shape.is_allowed() {
            return None;
        }
        let bytes = bytes.get(..shape.len(layout))?;
        let table = &bytes[RECORD_HEADER_LEN..shape.table_end()];
        if u32_at(at::TABLE_CRC) != lunette_crc32c::crc32c(table) {
            return None;
        }
        let record = Self { sequence: u64::from_le_bytes(array(header, at::SEQUENCE)), shape, table };
        let data = bytes[shape.data_offset(layout)..].chunks_exact(layout.size.bytes());
        let sealed_well =
            record.entries().zip(data).all(|((position, slot), data)| check(position, data, slot) == Condition::Intact);
        let numbered_well = (1..=MAX_SEQUENCE).contains(&record.sequence);
        let placed_well = record.entries().all(|(position, _)| position < layout.quanta());
        let holes_empty = record.entries().skip(shape.sealed).all(|(_, slot)| *slot == [0; SLOT_LEN]);
        (sealed_well && numbered_well && placed_well && holes_empty).then_some(record)
    }

    /// Position and slot of every quantum, the sealed ones first.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, &'a [u8; SLOT_LEN])> + use<'a> {
        entries_of(self.table, self.shape)
    }
}

/// Position and slot of every quantum of a record, the sealed ones first.
pub fn entries(record: &[u8], shape: Shape) -> impl Iterator<Item = (u64, &[u8; SLOT_LEN])> {
    entries_of(&record[RECORD_HEADER_LEN..shape.table_end()], shape)
}

fn entries_of(table: &[u8], shape: Shape) -> impl Iterator<Item = (u64, &[u8; SLOT_LEN])> {
    let (slots, positions) = table.split_at(shape.entries() * SLOT_LEN);
    let positions = positions.chunks_exact(POSITION_LEN).map(|bytes| u64::from_le_bytes(array(bytes, 0)));
    positions.zip(slots.chunks_exact(SLOT_LEN).map(|slot| slot.try_into().expect("cut to the length of a slot")))
}
