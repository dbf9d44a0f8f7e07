//! The scrub: reads a unit of quanta in the background, again and again, and counts and logs what is damaged.
//!
//! It has one request at a time, and pauses after each for the time that its bytes take at the configured rate. So
//! clients see at most one request of [`SCRUB_BYTES`] before theirs. Nothing of it is saved: after a restart it begins
//! with the first block. It ends when nothing else holds the unit.

use std::sync::{Arc, Weak};
use std::time::Duration;

use lunette_store::{Op, StoreError};

use crate::coroutine::BackgroundTask;
use crate::coroutine::background::{BackgroundCx, contract_violation};
use crate::extent::Extent;
use crate::limits::SCRUB_BYTES;
use crate::unit::LogicalUnit;
use crate::unit::range_locks::ClaimMode;

/// The pause of a scrub that has nothing to read: the medium is ejected, or is being sanitized.
const IDLE_PAUSE: Duration = Duration::from_secs(1);

/// The scrub of `unit`, when it has one that was not begun before.
pub(crate) fn begin(unit: &Arc<LogicalUnit>) -> Option<BackgroundTask> {
    let rate = unit.quanta()?.begin_scrub()?;
    let unit = Arc::downgrade(unit);
    Some(BackgroundTask::new(move |cx| async move {
        // The driver has broken its contract: only the log can be told.
        if let Err(error) = (Scrub { unit, rate, cx, offset: 0 }).run().await {
            tracing::error!(%error, "a scrub ends");
        }
    }))
}

struct Scrub {
    /// Weak, so that a unit that is removed does not wait for its scrub.
    unit: Weak<LogicalUnit>,
    /// Bytes per second.
    rate: u64,
    cx: BackgroundCx,
    /// Where the next request begins.
    offset: u64,
}

impl Scrub {
    async fn run(mut self) -> Result<(), StoreError> {
        while let Some(unit) = self.unit.upgrade() {
            let pause = match self.next_extent(&unit) {
                Some(extent) => {
                    self.read(&unit, extent).await?;
                    // One request, so this does not overflow.
                    Duration::from_micros(extent.len * 1_000_000 / self.rate)
                }
                None => IDLE_PAUSE,
            };
            drop(unit);
            self.cx.pause(pause).await?;
        }
        Ok(())
    }

    /// The extent to read next.
    fn next_extent(&mut self, unit: &LogicalUnit) -> Option<Extent> {
        if unit.is_being_sanitized() || unit.not_ready().is_some() {
            return None;
        }
        // The store may have grown or shrunk.
        let medium_len = unit.blocks() * u64::from(unit.block_size());
        if self.offset >= medium_len {
            self.offset = 0;
        }
        let len = (medium_len - self.offset).min(unit.whole_blocks(SCRUB_BYTES) as u64);
        (len > 0).then_some(Extent { offset: self.offset, len })
    }

    /// Reads and checks `extent`, the next one.
    async fn read(&mut self, unit: &Arc<LogicalUnit>, extent: Extent) -> Result<(), StoreError> {
        let into = self.cx.buffer(extent.len as usize).await?;
        let claim = unit.range_locks().claim(extent, ClaimMode::Shared);
        if let Some(turn) = claim.pending_grant() {
            self.cx.wait(turn).await?;
        }
        let read = self.cx.store(unit.store(), Op::Read { offset: extent.offset, into }).await;
        drop(claim);
        let Some(quanta) = unit.quanta() else { return Err(contract_violation()) };
        match read {
            Ok(Some(blocks)) => quanta.scrubbed(extent.offset, &blocks),
            Ok(None) => return Err(contract_violation()),
            Err(error) => {
                let serial = &unit.config().serial;
                tracing::error!(%serial, offset = extent.offset, len = extent.len, %error, "the scrub cannot read");
            }
        }
        self.offset += extent.len;
        if self.offset >= unit.blocks() * u64::from(unit.block_size()) {
            quanta.scrub_ended();
        }
        Ok(())
    }
}
