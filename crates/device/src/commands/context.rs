//! The context of a command: what its handler knows, and what it can ask the driver for.

pub(crate) mod common;
mod lasting;
mod medium;
pub(crate) mod store_error;

use std::sync::{Arc, OnceLock};

use lunette_buffer::Buffer;
use lunette_scsi::{AdditionalSense, Cdb, Lun, SenseData, Status};
use lunette_state::StateError;
use lunette_store::{Outcome, StoreError};

use super::row::{Direction, Row};
use crate::coroutine::background::BackgroundTask;
use crate::coroutine::channel::Channel;
use crate::coroutine::{Input, Reply, Step, Work};
use crate::extent::Extent;
use crate::nexus::NexusId;
use crate::sanitize::SanitizeEpoch;
use crate::target_device::TargetDevice;
use crate::target_device::nexus::NexusState;
use crate::unit::LogicalUnit;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::range_locks::Claim;
use crate::wait::Waitable;

pub(crate) use medium::{MediumAddress, count_request};

/// The context of a command that has passed admission.
pub(crate) struct Cx {
    pub(crate) row: &'static Row,
    pub(crate) device: Arc<TargetDevice>,
    pub(crate) nexus: Arc<NexusState>,
    /// The logical unit and nexus; `None` for a command that is answered without a logical unit.
    pub(crate) itl: Option<Arc<ItlNexus>>,
    pub(crate) cdb: Cdb,
    /// The blocks that the CDB names; empty for a command without.
    pub(crate) extent: Extent,
    /// The sanitize epoch of the admission.
    pub(crate) epoch: SanitizeEpoch,
    pub(crate) data_out_len: u32,
    pub(crate) channel: Arc<Channel>,
    /// The exclusive claim of the command, held until it ends.
    pub(crate) claim: OnceLock<Claim>,
}

impl Cx {
    /// The logical unit.
    pub(crate) fn unit(&self) -> Result<&Arc<LogicalUnit>, SenseData> {
        self.itl().map(|itl| &itl.unit)
    }

    /// The nexus on the logical unit.
    pub(crate) fn itl(&self) -> Result<&Arc<ItlNexus>, SenseData> {
        let absent = SenseData::illegal_request(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
        self.itl.as_ref().ok_or(absent)
    }

    /// Asks for a buffer of `len` bytes, more than zero, from the pool.
    pub(crate) async fn buffer(&self, len: usize) -> Result<Buffer, SenseData> {
        match self.channel.ask(Step::Buffer { len }).await {
            Input::Buffer(buffer) => with_len(buffer, len),
            _ => Err(INTERNAL_FAILURE),
        }
    }

    /// The reply with `data`, cut to the allocation length of the CDB.
    pub(crate) async fn reply(&self, data: &[u8], allocation_len: usize) -> Reply {
        debug_assert_eq!(self.row.direction, Direction::In, "{} has no Data-In", self.row.name);
        let data = &data[..data.len().min(allocation_len)];
        if data.is_empty() {
            return Ok(None);
        }
        let mut buffer = self.buffer(data.len()).await?;
        buffer.copy_from_slice(data);
        Ok(Some(buffer))
    }

    /// Asks for the Data-Out, of which the CDB announces `asked` bytes. When the initiator sends less, only whole units
    /// of `unit` bytes are taken; `None` when not one is complete.
    pub(crate) async fn data_out(&self, asked: u64, unit: u32) -> Result<Option<Buffer>, SenseData> {
        let takes_data = matches!(self.row.direction, Direction::Out | Direction::Both);
        debug_assert!(takes_data, "{} has no Data-Out", self.row.name);
        self.channel.expect_data_out(asked);
        let available = asked.min(u64::from(self.data_out_len));
        let len = (available - available % u64::from(unit.max(1))) as usize;
        if len == 0 {
            return Ok(None);
        }
        match self.channel.ask(Step::DataOut { len }).await {
            Input::DataOut(buffer) => with_len(buffer, len).map(Some),
            _ => Err(INTERNAL_FAILURE),
        }
    }

    /// Asks for the Data-Out of a command that takes exactly `len` bytes.
    ///
    /// Any other length is refused: the initiator and the CDB disagree on the command.
    pub(crate) async fn exact_data_out(&self, len: u64) -> Result<Buffer, SenseData> {
        let refused = SenseData::illegal_request(AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
        if u64::from(self.data_out_len) != len {
            return Err(refused);
        }
        self.data_out(len, 1).await?.ok_or(refused)
    }

    /// Asks for the parameter list, whose length is `len` according to the CDB; `None` for an empty list.
    ///
    /// # Errors
    ///
    /// PARAMETER LIST LENGTH ERROR when it is longer than `max_len` or the initiator sends less.
    pub(crate) async fn parameter_list(&self, len: u32, max_len: u32) -> Result<Option<Buffer>, SenseData> {
        if len > max_len || len > self.data_out_len {
            return Err(SenseData::PARAMETER_LIST_LENGTH_ERROR);
        }
        self.data_out(len.into(), 1).await
    }

    /// Waits for a condition that other tasks bring about.
    pub(crate) async fn wait(&self, on: Arc<dyn Waitable>) -> Result<(), SenseData> {
        match self.channel.ask(Step::Wait { on }).await {
            Input::Waited => Ok(()),
            _ => Err(INTERNAL_FAILURE),
        }
    }

    /// Starts background work, which outlives the command.
    pub(crate) async fn start_background(&self, task: BackgroundTask) -> Result<(), SenseData> {
        match self.channel.ask(Step::Background(task)).await {
            Input::Begun => Ok(()),
            _ => Err(INTERNAL_FAILURE),
        }
    }

    /// Yields the thread that drives the task.
    pub(crate) async fn pause(&self) -> Result<(), SenseData> {
        self.work(Box::new(|| Ok(()))).await.map_err(|_| INTERNAL_FAILURE)
    }

    /// The reply of a command that ends with RESERVATION CONFLICT.
    #[expect(clippy::unnecessary_wraps, reason = "a reply, as the handlers return it")]
    pub(crate) fn conflict(&self) -> Reply {
        self.channel.end_with(Status::RESERVATION_CONFLICT, 0);
        Ok(None)
    }

    /// Runs blocking work.
    pub(crate) async fn work(&self, work: Work) -> Result<(), StoreError> {
        match self.channel.ask(Step::Work(work)).await {
            Input::Store(Outcome { result, .. }) => result,
            _ => Err(StoreError::Io(std::io::Error::other("the task was driven against its contract"))),
        }
    }

    /// Makes a change that must survive a restart: on a thread that may wait for the medium, and as a whole even when
    /// the command is aborted. The change saves its state before it takes effect, so a failed one has changed nothing.
    pub(crate) async fn persist<T: Send + 'static>(
        &self,
        change: impl FnOnce() -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, SenseData> {
        if !self.may_save()? {
            return change().map_err(|_| INTERNAL_FAILURE);
        }
        self.channel.persist(change).await.map_err(|error| not_saved(self.row, &error))
    }

    /// Whether a change may have to be saved. If not, nothing waits: a simulated server has no threads that could.
    pub(crate) fn may_save(&self) -> Result<bool, SenseData> {
        Ok(self.unit()?.config().state.is_some() || self.device.saves_access_states())
    }

    /// Aborts all other tasks of these nexuses on the logical unit, and returns the nexuses that lost tasks.
    pub(crate) async fn abort(&self, tasks: Vec<(NexusId, Lun)>) -> Result<Vec<NexusId>, SenseData> {
        let unit = Arc::clone(self.unit()?);
        match self.channel.ask(Step::Abort { tasks, unit }).await {
            Input::Aborted { lost } => Ok(lost),
            _ => Err(INTERNAL_FAILURE),
        }
    }
}

/// The error of a command whose change was not saved.
pub(crate) fn not_saved(row: &Row, error: &StoreError) -> SenseData {
    tracing::error!(command = row.name, %error, "refused, because what must survive a restart was not saved");
    INTERNAL_FAILURE
}

/// The error of a task whose driver broke the order of steps.
pub(crate) const INTERNAL_FAILURE: SenseData = SenseData::hardware_error(AdditionalSense::INTERNAL_TARGET_FAILURE);

/// Cuts a buffer to `len` bytes. Pools may return longer buffers than requested, but not shorter ones.
fn with_len(mut buffer: Buffer, len: usize) -> Result<Buffer, SenseData> {
    buffer.truncate(len);
    if buffer.len() == len { Ok(buffer) } else { Err(INTERNAL_FAILURE) }
}
