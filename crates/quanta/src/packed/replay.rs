//! The journal after a power cut.

use std::collections::BTreeMap;

use crate::associated::VolumeId;
use crate::limits::{MAX_QUANTA_AT_OPEN, MAX_SEQUENCE_AT_OPEN};
use crate::packed::record::Record;
use crate::packed::tail::{self, RING_OFFSET};
use crate::packed::{Journal, Layout};
use crate::slot::SLOT_LEN;

/// A quantum to move from the journal to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The quantum.
    pub position: u64,
    /// The slot of the quantum; all zero for an unmapped quantum.
    pub slot: [u8; SLOT_LEN],
    /// Where its ciphertext is, from the beginning of the journal; `None` for an unmapped quantum, whose ciphertext
    /// becomes zeroes.
    pub data_offset: Option<u64>,
}

/// Why a journal cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The journal's two tails are unreadable, so records cannot be told from those that were moved out long ago.
    #[error("both tails of the journal are damaged; quanta that were written last may be older than they were")]
    TailLost,
    /// Records that were flushed are not whole any more: they are damaged, or were taken away.
    #[error(
        "{0} records of the journal that were flushed are not whole any more, so quanta that they hold would be older than they were; restore the volume from a copy, or recover it with force"
    )]
    RecordsLost(u64),
    /// A tail or a record has a number that leaves too few for later records.
    #[error(
        "the journal has the sequence number {0}, which no client gets to: it was altered; restore the volume from a copy"
    )]
    Sequence(u64),
    /// The journal has more quanta than any client leaves in it.
    #[error(
        "the journal has content of more than {MAX_QUANTA_AT_OPEN} quanta, which no client leaves in it: it was altered; restore the volume from a copy"
    )]
    TooManyQuanta,
}

/// Opens a journal from all of its bytes: the state in which a clean end, a killed process or a power cut has left it.
///
/// The rule: the higher of the two tails says which records are needed. Those that are whole count in the order of
/// their numbers, so the last content of each quantum wins. Nothing is written: the quanta stay in the journal until
/// the next checkpoint.
///
/// # Errors
///
/// [`ReplayError`].
///
/// # Panics
///
/// When `area` does not have the length of the journal.
pub fn replay(area: &[u8], layout: &Layout, volume: VolumeId) -> Result<Journal, ReplayError> {
    let journal = salvage(area, layout, volume)?;
    match journal.lost() {
        0 => Ok(journal),
        lost => Err(ReplayError::RecordsLost(lost)),
    }
}

/// Opens a journal as [`replay`] does, also when it has lost records that were flushed: quanta of these have their
/// content from before them.
///
/// # Errors
///
/// [`ReplayError`], except [`ReplayError::RecordsLost`].
///
/// # Panics
///
/// When `area` does not have the length of the journal.
pub fn salvage(area: &[u8], layout: &Layout, volume: VolumeId) -> Result<Journal, ReplayError> {
    assert_eq!(area.len() as u64, layout.journal_len, "all of the journal");
    let (tail, copy) = tail::find(area, volume).ok_or(ReplayError::TailLost)?;
    let mut found = BTreeMap::new();
    let mut offset = RING_OFFSET as usize;
    while offset < area.len() {
        let record = Record::find(&area[offset..], layout, volume);
        // Nothing begins within a whole record: it was written after what it lies on.
        let len = record.map_or(layout.block_len as usize, |record| record.shape.len(layout));
        if let Some(record) = record.filter(|record| record.sequence >= tail.sequence) {
            found.insert(record.sequence, (offset as u64, record));
        }
        offset += len;
    }
    let highest = found.last_key_value().map_or(tail.sequence, |(sequence, _)| *sequence).max(tail.flushed);
    if highest > MAX_SEQUENCE_AT_OPEN {
        return Err(ReplayError::Sequence(highest));
    }
    let mut journal = Journal::from(*layout, volume, tail.sequence, copy ^ 1);
    journal.found_owners(tail::owners(area, volume));
    journal.found_flushed(tail.flushed);
    for (offset, record) in found.values() {
        journal.found(*offset, record);
        if journal.live_len() > MAX_QUANTA_AT_OPEN {
            return Err(ReplayError::TooManyQuanta);
        }
    }
    journal.found_all();
    Ok(journal)
}
