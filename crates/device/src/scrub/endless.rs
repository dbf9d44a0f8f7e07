//! The endless scrub: reads a unit of quanta again and again, and counts and logs what is damaged.
//!
//! It pauses after each request for the time that its bytes take at the configured rate. Nothing of it is saved: after
//! a restart it begins with the first block. It ends when nothing else holds the unit.

use std::sync::{Arc, Weak};
use std::time::Duration;

use lunette_store::StoreError;

use super::{extent_at, medium_len, read};
use crate::coroutine::BackgroundTask;
use crate::coroutine::background::{BackgroundCx, contract_violation};
use crate::extent::Extent;
use crate::unit::LogicalUnit;

/// The pause of a scrub that has nothing to read: the medium is ejected or being sanitized, or another server has it.
const IDLE_PAUSE: Duration = Duration::from_secs(1);

/// The scrub of `unit`, when it has one that was not begun before.
pub(crate) fn begin(unit: &Arc<LogicalUnit>) -> Option<BackgroundTask> {
    let rate = unit.quanta()?.begin_scrub()?;
    let unit = Arc::downgrade(unit);
    Some(BackgroundTask::new(move |cx| async move {
        // The driver has broken its contract: only the log can be told.
        if let Err(error) = (Scrub { unit, rate, cx, offset: 0, is_unserved: false }).run().await {
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
    /// Whether the store has served nothing at the last request.
    is_unserved: bool,
}

impl Scrub {
    async fn run(mut self) -> Result<(), StoreError> {
        while let Some(unit) = self.unit.upgrade() {
            let pause = match self.next_extent(&unit) {
                // One request, so this does not overflow.
                Some(extent) if self.check(&unit, extent).await? => {
                    Duration::from_micros(extent.len * 1_000_000 / self.rate)
                }
                Some(_) | None => IDLE_PAUSE,
            };
            drop(unit);
            self.cx.pause(pause).await?;
        }
        Ok(())
    }

    /// The extent to read next: the first one after the end of the medium.
    fn next_extent(&mut self, unit: &LogicalUnit) -> Option<Extent> {
        if unit.is_being_sanitized() || unit.not_ready().is_some() {
            return None;
        }
        extent_at(unit, self.offset).or_else(|| {
            self.offset = 0;
            extent_at(unit, 0)
        })
    }

    /// Reads and checks `extent`, the next one. False when the store serves nothing now: it stays the next one.
    async fn check(&mut self, unit: &LogicalUnit, extent: Extent) -> Result<bool, StoreError> {
        let read = read(&self.cx, unit, extent).await?;
        let Some(quanta) = unit.quanta() else { return Err(contract_violation()) };
        let serial = &unit.config().serial;
        let was_unserved = std::mem::take(&mut self.is_unserved);
        match read {
            Ok(blocks) => drop(quanta.scrubbed(extent.offset, &blocks)),
            Err(error) if error.concerns_all_bytes() => {
                self.is_unserved = true;
                if !was_unserved {
                    tracing::warn!(%serial, offset = extent.offset, %error, "the scrub waits until the disk is served here");
                }
                return Ok(false);
            }
            Err(error) => {
                tracing::error!(%serial, offset = extent.offset, len = extent.len, %error, "the scrub cannot read");
            }
        }
        self.offset += extent.len;
        if self.offset >= medium_len(unit) {
            quanta.scrub_ended();
        }
        Ok(true)
    }
}
