//! The journal of a packed volume on its unit, for work that waits for the unit.

use lunette_quanta::packed::{Journal, Layout, Tail};
use lunette_quanta::{Codec, Placement, QuantumSize, SLOT_LEN, Slot};
use lunette_store::{Op, StoreError};

use crate::error::VolumeError;
use crate::limits::MAX_PIECE_BYTES;
use crate::unit::{Unit, doing, filled};

/// All bytes of the journal.
pub(crate) fn read_journal(unit: &Unit, layout: &Layout) -> Result<Vec<u8>, VolumeError> {
    let len = layout.journal_len() as usize;
    let mut area = vec![0; len];
    let mut next = 0;
    let read = unit.run(
        || {
            let (at, now) = (next, MAX_PIECE_BYTES.min(len - next));
            next += now;
            if now == 0 {
                return Ok(None);
            }
            Ok(Some((at, Op::Read { offset: layout.journal_offset() + at as u64, into: unit.take(now)? })))
        },
        |at, outcome| {
            let bytes = filled(outcome)?;
            area[at..at + bytes.len()].copy_from_slice(&bytes);
            Ok(())
        },
    );
    read.map_err(doing("reading the journal"))?;
    Ok(area)
}

/// Names this client in the journal as the one that has opened it for writing.
pub(crate) fn take_over(unit: &Unit, layout: &Layout, journal: &mut Journal) -> Result<(), VolumeError> {
    let mut owner = [0; 8];
    getrandom::fill(&mut owner)?;
    let tails = journal.take_over(u64::from_le_bytes(owner));
    // The valid tail may be in a cache, and this overwrites the one that is stable.
    let mut write = |tail| write_tail(unit, layout, tail).and_then(|()| unit.flush());
    let taken = unit.flush().and_then(|()| tails.iter().try_for_each(&mut write));
    taken.map_err(doing("opening the journal for writing"))
}

/// Writes a tail, with the zeroes that fill its block.
pub(crate) fn write_tail(unit: &Unit, layout: &Layout, tail: &Tail) -> Result<(), StoreError> {
    unit.write_padded(layout.journal_offset() + tail.offset, &tail.bytes, block_len(layout) as usize)
}

/// The highest version of the authentic quanta in a journal, of which `area` is all.
pub(crate) fn highest_version(journal: &Journal, area: &[u8], codec: &Codec) -> u64 {
    let authentic = journal.live(0..u64::MAX).filter_map(|(position, live)| {
        let is_authentic = opens(codec, area, position, live.data_offset?, &live.slot);
        is_authentic.then(|| Slot::decode(&live.slot).version)
    });
    authentic.max().unwrap_or(0)
}

/// Whether an owner of the keys made the quantum whose ciphertext is at `data_offset` of a journal.
pub(crate) fn opens(codec: &Codec, area: &[u8], position: u64, data_offset: u64, slot: &[u8; SLOT_LEN]) -> bool {
    let mut plain = [0; QuantumSize::B4096.bytes()];
    let plain = &mut plain[..codec.size().bytes()];
    codec.open_split(position, &area[data_offset as usize..][..plain.len()], slot, plain).is_ok()
}

/// Bytes of a block of the unit.
pub(crate) fn block_len(layout: &Layout) -> u64 {
    match layout.placement() {
        Placement::Packed { block_len, .. } => block_len.into(),
        Placement::Native => unreachable!("a layout is that of a packed volume"),
    }
}
