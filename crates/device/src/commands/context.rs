//! What a handler sees of its command, and what it can ask for.

mod medium;
mod store_error;

use std::sync::{Arc, OnceLock};

use lunette_buffer::Buffer;
use lunette_scsi::{AdditionalSense, Cdb, Lun, SenseData, SenseKey, Status};
use lunette_store::{Outcome, StoreError};

use super::opcodes::{Direction, Row};
use crate::coroutine::background::BackgroundTask;
use crate::coroutine::channel::Channel;
use crate::coroutine::{Input, Reply, Step, Work};
use crate::extent::Extent;
use crate::nexus::NexusId;
use crate::persist::PendingSave;
use crate::sanitize::SanitizeEpoch;
use crate::target_device::TargetDevice;
use crate::target_device::nexus::NexusState;
use crate::unit::LogicalUnit;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::range_locks::Claim;
use crate::wait::Waitable;

pub(crate) use medium::MediumAddress;

/// One command in the hands of its handler. The gate has checked it.
pub(crate) struct Cx {
    pub(crate) row: &'static Row,
    pub(crate) device: Arc<TargetDevice>,
    pub(crate) nexus: Arc<NexusState>,
    /// Absent for the commands that are answered without a logical unit.
    pub(crate) itl: Option<Arc<ItlNexus>>,
    pub(crate) cdb: Cdb,
    /// The blocks that the CDB names; empty for commands without.
    pub(crate) extent: Extent,
    /// When the gate let the command in.
    pub(crate) epoch: SanitizeEpoch,
    pub(crate) data_out_len: u32,
    pub(crate) channel: Arc<Channel>,
    /// The blocks that the command has claimed until it ends.
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

    /// A buffer of `len` bytes, more than zero, from the pool.
    pub(crate) async fn buffer(&self, len: usize) -> Result<Buffer, SenseData> {
        match self.channel.ask(Step::Buffer { len }).await {
            Input::Buffer(buffer) => with_len(buffer, len),
            _ => Err(INTERNAL_FAILURE),
        }
    }

    /// The reply that carries `data`, cut to the allocation length of the CDB.
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

    /// The command's Data-Out, of which the CDB asks for `asked` bytes. When the initiator sends less, only whole units of
    /// `unit` bytes; `None` when there is not one.
    pub(crate) async fn data_out(&self, asked: u64, unit: u32) -> Result<Option<Buffer>, SenseData> {
        let takes_data = matches!(self.row.direction, Direction::Out | Direction::Both);
        debug_assert!(takes_data, "{} has no Data-Out", self.row.name);
        self.channel.expect_data_out(asked);
        let there = asked.min(u64::from(self.data_out_len));
        let len = (there - there % u64::from(unit.max(1))) as usize;
        if len == 0 {
            return Ok(None);
        }
        match self.channel.ask(Step::DataOut { len }).await {
            Input::DataOut(buffer) => with_len(buffer, len).map(Some),
            _ => Err(INTERNAL_FAILURE),
        }
    }

    /// The Data-Out of a command that takes exactly `len` bytes of it.
    ///
    /// More or less is refused: the initiator and the CDB disagree on what the command does.
    pub(crate) async fn exact_data_out(&self, len: u64) -> Result<Buffer, SenseData> {
        let refused = SenseData::illegal_request(AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
        if u64::from(self.data_out_len) != len {
            return Err(refused);
        }
        self.data_out(len, 1).await?.ok_or(refused)
    }

    /// A parameter list of `len` bytes, as the CDB says; `None` for none.
    ///
    /// # Errors
    ///
    /// PARAMETER LIST LENGTH ERROR when it is longer than `max_len` or the initiator sends less.
    pub(crate) async fn parameter_list(&self, len: u32, max_len: u32) -> Result<Option<Buffer>, SenseData> {
        if len > max_len || len > self.data_out_len {
            return Err(SenseData::illegal_request(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR));
        }
        self.data_out(len.into(), 1).await
    }

    /// Waits for something that others bring about.
    pub(crate) async fn wait(&self, on: Arc<dyn Waitable>) -> Result<(), SenseData> {
        match self.channel.ask(Step::Wait { on }).await {
            Input::Waited => Ok(()),
            _ => Err(INTERNAL_FAILURE),
        }
    }

    /// Begins work that outlives the command.
    pub(crate) async fn start_background(&self, task: BackgroundTask) -> Result<(), SenseData> {
        match self.channel.ask(Step::Background(task)).await {
            Input::Begun => Ok(()),
            _ => Err(INTERNAL_FAILURE),
        }
    }

    /// Gives the thread that drives the task to others for a moment.
    pub(crate) async fn pause(&self) -> Result<(), SenseData> {
        self.work(Box::new(|| Ok(()))).await.map_err(|_| INTERNAL_FAILURE)
    }

    /// The reply RESERVATION CONFLICT.
    #[expect(clippy::unnecessary_wraps, reason = "a reply, as the handlers return it")]
    pub(crate) fn conflict(&self) -> Reply {
        self.channel.end_with(Status::RESERVATION_CONFLICT, 0);
        Ok(None)
    }

    /// Does what waits for a medium.
    pub(crate) async fn work(&self, work: Work) -> Result<(), StoreError> {
        match self.channel.ask(Step::Work(work)).await {
            Input::Store(Outcome { result, .. }) => result,
            _ => Err(StoreError::Io(std::io::Error::other("the task was driven against its contract"))),
        }
    }

    /// Waits until a change is on stable storage. When it cannot get there, the initiator is told: the change is in force,
    /// but may be gone after a restart.
    pub(crate) async fn persist(&self, save: PendingSave) -> Result<(), SenseData> {
        let work = move || save.run().map_err(|error| StoreError::Io(std::io::Error::other(error)));
        self.work(Box::new(work)).await.map_err(|error| {
            tracing::error!(command = self.row.name, %error, "what must survive a restart could not be saved");
            INTERNAL_FAILURE
        })
    }

    /// Ends all other tasks of these nexuses on the logical unit, and tells which nexuses lost some.
    pub(crate) async fn abort(&self, tasks: Vec<(NexusId, Lun)>) -> Result<Vec<NexusId>, SenseData> {
        let unit = Arc::clone(self.unit()?);
        match self.channel.ask(Step::Abort { tasks, unit }).await {
            Input::Aborted { lost } => Ok(lost),
            _ => Err(INTERNAL_FAILURE),
        }
    }
}

/// The task was driven against its contract.
pub(crate) const INTERNAL_FAILURE: SenseData =
    SenseData::new(SenseKey::HARDWARE_ERROR, AdditionalSense::INTERNAL_TARGET_FAILURE);

/// A buffer may be longer than asked for, as pools have sizes of their own, but not shorter.
fn with_len(mut buffer: Buffer, len: usize) -> Result<Buffer, SenseData> {
    buffer.truncate(len);
    if buffer.len() == len { Ok(buffer) } else { Err(INTERNAL_FAILURE) }
}
