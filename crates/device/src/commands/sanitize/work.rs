//! The background work of a sanitize operation, request by request.

use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::Buffer;
use lunette_store::{Op, StoreError};

use crate::commands::context::INTERNAL_FAILURE;
use crate::coroutine::background::{BackgroundCx, BackgroundTask, contract_violation};
use crate::extent::Extent;
use crate::limits::{SANITIZE_CHECKPOINT, SANITIZE_ERASE_BYTES, SANITIZE_WRITE_BYTES};
use crate::sanitize::{Milestone, SANITIZE_FAILED, SanitizeJob, SanitizeOperation, SanitizeState, SavedSanitize};
use crate::unit::LogicalUnit;
use crate::unit::range_locks::ClaimMode;
use lunette_scsi::SenseData;

/// The work of `job` on `unit`, which is marked as running. When the work cannot begin, the unit returns to `before`.
fn task(
    unit: &Arc<LogicalUnit>,
    job: SanitizeJob,
    before: SanitizeState,
    operation: Arc<SanitizeOperation>,
) -> BackgroundTask {
    let unit = Arc::clone(unit);
    BackgroundTask::new(move |cx| async move {
        let checkpoint = (unit.config().clock)();
        Worker { unit, job, cx, checkpoint }.run(before, &operation).await;
    })
}

struct Worker {
    unit: Arc<LogicalUnit>,
    job: SanitizeJob,
    cx: BackgroundCx,
    /// The time of the last checkpoint.
    checkpoint: Duration,
}

impl Worker {
    async fn run(mut self, before: SanitizeState, operation: &SanitizeOperation) {
        if let Err(error) = self.prepare().await {
            // A restart would not resume the operation, so not a byte is overwritten.
            tracing::error!(serial = %self.unit.config().serial, %error, "a sanitize operation cannot begin");
            self.unit.sanitize().end(before);
            operation.advance(Milestone::Ended, Some(INTERNAL_FAILURE));
            return;
        }
        self.unit.sanitize().begun();
        operation.advance(Milestone::Begun, None);
        let failure = match self.sanitize().await {
            Ok(()) => {
                self.unit.sanitize().end(SanitizeState::Ready);
                None
            }
            Err(error) => {
                tracing::error!(serial = %self.unit.config().serial, %error, "a sanitize operation failed");
                self.fail().await;
                Some(SANITIZE_FAILED)
            }
        };
        operation.advance(Milestone::Ended, failure);
    }

    /// Waits for the commands that were admitted before, and saves that the operation has begun.
    async fn prepare(&mut self) -> Result<(), StoreError> {
        let len = self.unit.store().geometry().len_bytes;
        let claim = self.unit.range_locks().claim(Extent { offset: 0, len }, ClaimMode::Exclusive);
        if let Some(turn) = claim.pending_grant() {
            self.cx.wait(turn).await?;
        }
        drop(claim);
        self.unit.change_watches().change_all();
        self.save(Some(SavedSanitize::Running(self.job.clone()))).await
    }

    async fn sanitize(&mut self) -> Result<(), StoreError> {
        while self.job.pass < self.job.passes() {
            self.pass().await?;
            self.cx.store(&self.unit, Op::Flush).await?;
            self.job.pass += 1;
            self.job.offset = 0;
            if self.job.pass < self.job.passes() {
                self.save(Some(SavedSanitize::Running(self.job.clone()))).await?;
            }
        }
        // If this fails, a restart would sanitize data that is written from now on, so writes must stay refused.
        self.save(None).await
    }

    /// Processes all blocks once, or those that are left of the pass.
    async fn pass(&mut self) -> Result<(), StoreError> {
        let mut chunk = self.chunk().await?;
        loop {
            // The store may grow during the pass.
            let len = self.unit.blocks() * u64::from(self.unit.block_size());
            self.unit.sanitize().set_progress(self.job.progress(len));
            let left = len.saturating_sub(self.job.offset);
            if left == 0 {
                return Ok(());
            }
            self.job.offset += match chunk.take() {
                Some(from) => {
                    let (done, from) = self.write(from, left).await?;
                    chunk = Some(from);
                    done
                }
                None => self.erase(left).await?,
            };
            self.record().await?;
        }
    }

    /// The buffer that this pass writes, of as many blocks as one request takes; `None` when the pass erases.
    async fn chunk(&self) -> Result<Option<Buffer>, StoreError> {
        let block_len = self.unit.block_size() as usize;
        let Some(block) = self.job.block(block_len) else { return Ok(None) };
        let mut chunk = self.cx.buffer(self.unit.whole_blocks(SANITIZE_WRITE_BYTES)).await?;
        for place in chunk.chunks_exact_mut(block_len) {
            place.copy_from_slice(&block);
        }
        Ok(Some(chunk))
    }

    async fn write(&self, mut from: Buffer, left: u64) -> Result<(u64, Buffer), StoreError> {
        from.truncate(from.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
        let op = Op::Write { offset: self.job.offset, from, fua: false };
        let from = self.cx.store(&self.unit, op).await?.ok_or_else(contract_violation)?;
        self.keep_pace(from.len() as u64).await?;
        Ok((from.len() as u64, from))
    }

    /// Waits for the time that `written` bytes take at the configured rate.
    async fn keep_pace(&self, written: u64) -> Result<(), StoreError> {
        let Some(rate) = self.unit.config().sanitize_rate else { return Ok(()) };
        // One chunk at most, so this does not overflow.
        self.cx.pause(Duration::from_micros(written * 1_000_000 / rate)).await
    }

    async fn erase(&self, left: u64) -> Result<u64, StoreError> {
        let len = left.min(self.unit.whole_freed_units(SANITIZE_ERASE_BYTES) as u64);
        let op = Op::WriteZeroes { offset: self.job.offset, len, may_unmap: true, fua: false };
        self.cx.store(&self.unit, op).await?;
        Ok(len)
    }

    /// Saves a checkpoint, unless the last one is recent. The bytes before it are flushed first.
    async fn record(&mut self) -> Result<(), StoreError> {
        let now = (self.unit.config().clock)();
        // A clock that was set back triggers a checkpoint too.
        if now.abs_diff(self.checkpoint) < SANITIZE_CHECKPOINT || !self.unit.sanitize().can_save() {
            return Ok(());
        }
        self.checkpoint = now;
        self.cx.store(&self.unit, Op::Flush).await?;
        self.save(Some(SavedSanitize::Running(self.job.clone()))).await
    }

    async fn fail(&self) {
        let unrestricted = self.job.unrestricted;
        if let Err(error) = self.save(Some(SavedSanitize::Failed { unrestricted })).await {
            tracing::error!(%error, "the failure cannot be recorded; after a restart the operation goes on");
        }
        self.unit.sanitize().end(SanitizeState::Failed { unrestricted });
    }

    async fn save(&self, record: Option<SavedSanitize>) -> Result<(), StoreError> {
        let Some(save) = self.unit.sanitize().save(record.as_ref()) else { return Ok(()) };
        self.cx.persist(move || save.run()).await
    }
}

/// Begins an operation on `unit`. Returns its milestones and its background work.
///
/// # Errors
///
/// Sense data when an operation is already running, or when AUSE is set after a failed operation without AUSE.
pub(crate) fn begin(
    unit: &Arc<LogicalUnit>,
    job: SanitizeJob,
) -> Result<(Arc<SanitizeOperation>, BackgroundTask), SenseData> {
    let before = unit.sanitize().start(&job)?;
    let operation = Arc::new(SanitizeOperation::default());
    Ok((Arc::clone(&operation), task(unit, job, before, operation)))
}

/// Resumes the operation that an earlier process began on `unit`.
pub(crate) fn resume(unit: &Arc<LogicalUnit>) -> Option<BackgroundTask> {
    let job = unit.sanitize().interrupted()?;
    tracing::info!(serial = %unit.config().serial, "a sanitize operation goes on");
    let before = SanitizeState::Failed { unrestricted: job.unrestricted };
    Some(task(unit, job, before, Arc::default()))
}
