//! Scrubs: units are read in the background, and what is damaged is found before it is needed.
//!
//! - `endless` reads a unit of quanta again and again, at a rate.
//! - `pass` reads any unit once, and tells its owner what it finds.
//!
//! A scrub has one request at a time, so clients see at most one request of [`SCRUB_BYTES`] before theirs.

mod endless;
mod pass;

use lunette_buffer::Buffer;
use lunette_store::{Op, StoreError};

use crate::coroutine::background::{BackgroundCx, contract_violation};
use crate::extent::Extent;
use crate::limits::SCRUB_BYTES;
use crate::unit::LogicalUnit;
use crate::unit::range_locks::ClaimMode;
pub(crate) use endless::begin;
pub use pass::{ScrubEnd, ScrubOwner, ScrubbedBlocks, scrub_once};

/// The extent of one request from `offset` on; `None` at the end of the medium, which may have grown or shrunk.
fn extent_at(unit: &LogicalUnit, offset: u64) -> Option<Extent> {
    let left = medium_len(unit).saturating_sub(offset);
    let len = left.min(unit.whole_blocks(SCRUB_BYTES) as u64);
    (len > 0).then_some(Extent { offset, len })
}

fn medium_len(unit: &LogicalUnit) -> u64 {
    unit.blocks() * u64::from(unit.block_size())
}

/// Reads an extent in its turn among the commands of the unit. The inner error is the store's. The outer one says that
/// the driver has broken its contract.
async fn read(cx: &BackgroundCx, unit: &LogicalUnit, extent: Extent) -> Result<Result<Buffer, StoreError>, StoreError> {
    let into = cx.buffer(extent.len as usize).await?;
    let claim = unit.range_locks().claim(extent, ClaimMode::Shared);
    if let Some(turn) = claim.pending_grant() {
        cx.wait(turn).await?;
    }
    let read = cx.store(unit, Op::Read { offset: extent.offset, into }).await;
    drop(claim);
    match read {
        Ok(Some(blocks)) => Ok(Ok(blocks)),
        Ok(None) => Err(contract_violation()),
        Err(error) => Ok(Err(error)),
    }
}
