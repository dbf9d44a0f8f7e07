//! One pass over a unit: all of its blocks are read once, and its owner is told what is damaged.

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use lunette_store::StoreError;

use super::{extent_at, read};
use crate::coroutine::BackgroundTask;
use crate::coroutine::background::BackgroundCx;
use crate::unit::LogicalUnit;

/// The owner of a pass. Its methods are called on the thread that drives the pass, so they must not wait. An owner that
/// is dropped before [`ended`](Self::ended) has a driver that has given the pass up, because its server stops.
pub trait ScrubOwner: Send + 'static {
    /// Takes the result of one request. The pass ends when the answer breaks.
    fn scrubbed(&mut self, blocks: ScrubbedBlocks) -> ControlFlow<()>;

    /// Takes the end of the pass.
    fn ended(self, end: Result<(), ScrubEnd>);
}

/// The result of one request of a pass.
#[derive(Debug)]
pub struct ScrubbedBlocks {
    /// The first block.
    pub first_lba: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The number of blocks that the unit has now.
    pub unit_blocks: u64,
    /// The damaged ones among the blocks that were read. Only a unit of quanta with a [check](crate::QuantaOptions)
    /// can tell.
    ///
    /// # Errors
    ///
    /// Why the blocks cannot be read.
    pub damaged: Result<Vec<u64>, StoreError>,
}

/// Why a pass has not come to the end of its unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScrubEnd {
    /// The owner of the pass has stopped it.
    #[error("it was stopped")]
    Stopped,
    /// The unit was removed, or another one has taken its place.
    #[error("the logical unit was removed or replaced")]
    Removed,
    /// The medium is not there.
    #[error("the logical unit is not ready")]
    NotReady,
    /// The store serves nothing here: its device is gone, or another server has it. The text is the store's.
    #[error("{0}; start the scrub again when the disk is served here")]
    Unserved(String),
    /// A sanitize operation erases the blocks.
    #[error("the logical unit is being sanitized")]
    Sanitized,
    /// The driver has broken its contract.
    #[error("the server has a mistake; its log may say more")]
    Internal,
}

/// A pass over `unit`, which does not keep the unit from being removed.
pub fn scrub_once(unit: &Arc<LogicalUnit>, mut owner: impl ScrubOwner) -> BackgroundTask {
    let unit = Arc::downgrade(unit);
    BackgroundTask::new(move |cx| async move {
        let end = pass(&cx, &unit, &mut owner).await;
        owner.ended(end);
    })
}

async fn pass(cx: &BackgroundCx, unit: &Weak<LogicalUnit>, owner: &mut impl ScrubOwner) -> Result<(), ScrubEnd> {
    let mut offset = 0;
    loop {
        let unit = unit.upgrade().ok_or(ScrubEnd::Removed)?;
        if unit.is_being_sanitized() {
            return Err(ScrubEnd::Sanitized);
        }
        if unit.not_ready().is_some() {
            return Err(ScrubEnd::NotReady);
        }
        let Some(extent) = extent_at(&unit, offset) else { break };
        let read = read(cx, &unit, extent).await.map_err(|_| ScrubEnd::Internal)?;
        if let Err(error) = &read
            && error.concerns_all_bytes()
        {
            return Err(ScrubEnd::Unserved(error.to_string()));
        }
        let damaged = read.map(|blocks| unit.quanta().map_or_else(Vec::new, |quanta| quanta.scrubbed(offset, &blocks)));
        let block_size = u64::from(unit.block_size());
        let (first_lba, blocks) = (extent.offset / block_size, extent.len / block_size);
        let scrubbed = ScrubbedBlocks { first_lba, blocks, unit_blocks: unit.blocks(), damaged };
        if owner.scrubbed(scrubbed).is_break() {
            return Err(ScrubEnd::Stopped);
        }
        offset += extent.len;
    }
    if let Some(quanta) = unit.upgrade().as_ref().and_then(|unit| unit.quanta()) {
        quanta.scrub_ended();
    }
    Ok(())
}
