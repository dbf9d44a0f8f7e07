//! Bringing a packed volume to rest.

use std::sync::Arc;

use lunette_quanta::packed::{self, Journal, Layout, replay};
use lunette_quanta::{Codec, Header, KeyRing, Placement};
use lunette_store::{Store, StoreError};

use crate::anchor::version;
use crate::packed::checkpoint::move_out;
use crate::packed::journal::{block_len, opens, read_journal, write_tail};
use crate::shared::Place;
use crate::unit::{Unit, doing};
use crate::{Anchor, Found, OpenOptions, Volume, VolumeError};

/// The choice for a journal whose two tails are damaged, or that has lost records that had been flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TailLoss {
    /// Leave the volume as it is, and say so.
    #[default]
    Refuse,
    /// Take every whole record. Where the tails are whole, that is what a replay does, and quanta of the lost records
    /// have their content from before these. Where they are damaged, take every whole record of the journal, except
    /// quanta that are not authentic and those with a higher version in their place. Quanta that were written last may
    /// be older than they were, and what was unmapped last may come back.
    Force,
}

/// The work of [`recover`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Quanta that were moved from the journal to their places.
    pub moved: u64,
    /// Whether both tails were damaged, so that [`TailLoss::Force`] had to be used.
    pub tail_lost: bool,
    /// Records that are not whole although a later one is, or although they had been flushed: their writes had failed
    /// or were not flushed before a power cut, or they are damaged, and then the content that they had is lost. Which
    /// of these cannot be told. 0 when both tails were damaged, which leaves nothing to count from.
    pub missing_records: u64,
}

/// Opens a volume, moves what its journal holds to its places, and closes it. A native volume has no journal, so
/// nothing is done.
///
/// It is not needed before a volume is opened: that replays the journal, too. It leaves a journal that is empty.
///
/// With an anchor, nothing older than it knows takes the place of what is there: such quanta of a journal whose tails
/// are damaged stay where they are, and any other journal with such quanta is refused, because one that was flushed
/// never has them. The anchor itself is only read.
///
/// # Errors
///
/// [`VolumeError::JournalRolledBack`], also when forced, [`VolumeError::TailLost`] and [`VolumeError::RecordsLost`]
/// unless forced, and what [`Volume::open`](crate::Volume::open) fails with.
pub fn recover(
    inner: &Arc<dyn Store>,
    found: &Found,
    keys: &KeyRing,
    anchor: Option<&Anchor>,
    tail_loss: TailLoss,
) -> Result<Recovered, VolumeError> {
    let header = found.authenticate(keys)?;
    if matches!(header.placement, Placement::Native) {
        return Ok(Recovered { moved: 0, tail_lost: false, missing_records: 0 });
    }
    if inner.capabilities().read_only {
        return Err(VolumeError::ReadOnly);
    }
    let replay = if tail_loss == TailLoss::Force { packed::salvage } else { packed::replay };
    let opened = Volume::open_by(replay, Arc::clone(inner), found, keys.clone(), OpenOptions::default());
    match opened {
        Err(VolumeError::TailLost) if tail_loss == TailLoss::Force => force(inner, &header, keys, anchor),
        Err(error) => Err(error),
        Ok(volume) => {
            let Place::Packed(packed) = &volume.shared.place else { unreachable!("a packed volume") };
            if let Some(anchor) = anchor
                && let Some((position, count)) = packed.rolled_back(anchor, header.quanta)
            {
                return Err(VolumeError::JournalRolledBack { position, count });
            }
            let missing_records = packed.missing_records();
            let moved = packed.checkpoint().map_err(doing("recovering the volume"))?;
            Ok(Recovered { moved, tail_lost: false, missing_records })
        }
    }
}

/// Replays a journal without tails: every whole record counts that is newer than what is in its place, as versions
/// tell.
fn force(
    inner: &Arc<dyn Store>,
    header: &Header,
    keys: &KeyRing,
    anchor: Option<&Anchor>,
) -> Result<Recovered, VolumeError> {
    let layout = Layout::of(header, inner.geometry().len_bytes)?;
    let unit = Unit::new(inner);
    let mut area = read_journal(&unit, &layout)?;
    for tail in Journal::first_tails(header.volume) {
        area[tail.offset as usize..][..tail.bytes.len()].copy_from_slice(&tail.bytes);
    }
    let mut journal = replay(&area, &layout, header.volume)?;
    let codec = Codec::new(header.volume, header.size, header.holes, keys.clone());
    let mut recover = || -> Result<u64, StoreError> {
        let checkpoint = journal.checkpoint();
        let mut moves = Vec::new();
        for at in &checkpoint.moves {
            // A record needs no key, so what it holds could be a forgery of a high version.
            if at.data_offset.is_some_and(|offset| !opens(&codec, &area, at.position, offset, &at.slot)) {
                continue;
            }
            if anchor.is_some_and(|anchor| anchor.is_newer(at.position, version(&at.slot))) {
                continue;
            }
            if version_in_place(&unit, &layout, &codec, at.position)?.is_none_or(|there| there < version(&at.slot)) {
                moves.push(*at);
            }
        }
        unit.flush()?;
        move_out(&unit, &layout, header.size.bytes(), &moves)?;
        unit.flush()?;
        // Both tails, so that the loss of one is no loss again.
        for _ in 0..2 {
            let checkpoint = journal.checkpoint();
            write_tail(&unit, &layout, &journal.tail(&checkpoint))?;
            unit.flush()?;
            journal.checkpointed(&checkpoint);
        }
        Ok(moves.len() as u64)
    };
    let moved = recover().map_err(doing("recovering the volume"))?;
    Ok(Recovered { moved, tail_lost: true, missing_records: 0 })
}

/// The version of the quantum in its place; `None` for one that is torn or not authentic. That of a hole is 0.
fn version_in_place(unit: &Unit, layout: &Layout, codec: &Codec, position: u64) -> Result<Option<u64>, StoreError> {
    let block = layout.slot_block(position);
    let slots = unit.read(block, block_len(layout) as usize)?;
    let slot = slots[(layout.slot(position) - block) as usize..].first_chunk().expect("a slot does not cross a block");
    let mut data = unit.read(layout.data(position), codec.size().bytes())?;
    Ok(codec.open_in_place(position, &mut data, slot).ok().map(|()| version(slot)))
}
