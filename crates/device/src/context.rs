//! What a handler sees of its command, and what it can ask for.

use std::sync::{Arc, OnceLock};

use lunette_buffer::{Buffer, FileSlice};
use lunette_scsi::{AdditionalSense, Cdb, Lun, SenseData, SenseKey, Status};
use lunette_store::{AllocationMap, CopySource, Op, OpKind, Outcome, Run, StoreError};

use crate::background::BackgroundTask;
use crate::errors;
use crate::exchange::Exchange;
use crate::keeper::Save;
use crate::limits::{MAX_ZEROES_BYTES, MIN_FILE_SLICE_BYTES};
use crate::nexus::{Link, NexusId, NexusState};
use crate::opcodes::{Direction, Range, Row};
use crate::range_locks::{Claim, Hold};
use crate::sanitize::Era;
use crate::target_device::TargetDevice;
use crate::task::{Input, Step, Waitable, Work};
use crate::unit::LogicalUnit;

/// How a handler ends: with bytes for the initiator, without, or with sense data.
pub(crate) type Reply = Result<Option<Buffer>, SenseData>;

/// One command in the hands of its handler. The gate has checked it.
pub(crate) struct Cx {
    pub(crate) row: &'static Row,
    pub(crate) device: Arc<TargetDevice>,
    pub(crate) nexus: Arc<NexusState>,
    /// Absent for the commands that are answered without a logical unit.
    pub(crate) link: Option<Arc<Link>>,
    pub(crate) cdb: Cdb,
    /// The blocks that the CDB names; empty for commands without.
    pub(crate) extent: Extent,
    /// When the gate let the command in.
    pub(crate) era: Era,
    pub(crate) data_out_len: u32,
    pub(crate) exchange: Arc<Exchange>,
    /// The blocks that the command has claimed until it ends.
    pub(crate) claim: OnceLock<Claim>,
}

/// A byte of a logical unit, for a command that was let in there in `era`.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) link: &'a Arc<Link>,
    pub(crate) offset: u64,
    pub(crate) era: Era,
}

impl<'a> Place<'a> {
    pub(crate) fn unit(self) -> &'a Arc<LogicalUnit> {
        &self.link.unit
    }
}

/// A run of bytes that lies within the medium, in whole blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First byte.
    pub(crate) offset: u64,
    /// How many bytes.
    pub(crate) len: u64,
}

impl Extent {
    /// Whether both have a byte in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        // Both end within a store, so neither sum overflows.
        self.offset < other.offset + other.len && other.offset < self.offset + self.len
    }

    /// From the first byte of either to the last.
    fn hull(self, other: Self) -> Self {
        let offset = self.offset.min(other.offset);
        Self { offset, len: (self.offset + self.len).max(other.offset + other.len) - offset }
    }
}

impl Cx {
    /// The logical unit.
    pub(crate) fn unit(&self) -> Result<&Arc<LogicalUnit>, SenseData> {
        self.link().map(|link| &link.unit)
    }

    /// The nexus on the logical unit.
    pub(crate) fn link(&self) -> Result<&Arc<Link>, SenseData> {
        let absent = SenseData::illegal_request(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
        self.link.as_ref().ok_or(absent)
    }

    /// A buffer of `len` bytes, more than zero, from the pool.
    pub(crate) async fn buffer(&self, len: usize) -> Result<Buffer, SenseData> {
        match self.exchange.ask(Step::Buffer { len }).await {
            Input::Buffer(buffer) => of_len(buffer, len),
            _ => Err(INTERNAL),
        }
    }

    /// The blocks that the CDB names where they are in the store's file, when they may be sent from there.
    ///
    /// They are sent when the command has ended for the device. What is written meanwhile may be sent in their place: no order
    /// holds between commands that are under way at once.
    pub(crate) async fn file_slice(&self) -> Result<Option<FileSlice>, SenseData> {
        let (unit, extent) = (self.unit()?, self.extent);
        if !unit.config().zero_copy || extent.len < MIN_FILE_SLICE_BYTES {
            return Ok(None);
        }
        let Some(slice) = unit.store().file_slice(extent.offset, extent.len as usize) else { return Ok(None) };
        let _shared = self.claim_on(unit, extent, Hold::Shared).await?;
        unit.sanitize().check_since(self.era)?;
        match self.exchange.ask(Step::File { slice: slice.clone() }).await {
            Input::File(true) => {
                self.count(unit, OpKind::Read, extent.len, true);
                Ok(Some(slice))
            }
            Input::File(false) => Ok(None),
            _ => Err(INTERNAL),
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
        self.exchange.expect_data_out(asked);
        let there = asked.min(u64::from(self.data_out_len));
        let len = (there - there % u64::from(unit.max(1))) as usize;
        if len == 0 {
            return Ok(None);
        }
        match self.exchange.ask(Step::DataOut { len }).await {
            Input::DataOut(buffer) => of_len(buffer, len).map(Some),
            _ => Err(INTERNAL),
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

    /// Keeps all other commands away from `extent` until this one ends. At most once in a command, and when it has its
    /// buffers: see [`crate::range_locks`].
    pub(crate) async fn be_alone_on(&self, extent: Extent) -> Result<(), SenseData> {
        let claim = self.claim(extent, Hold::Exclusive).await?;
        self.claim.set(claim).map_err(|_| INTERNAL)
    }

    /// Waits until all requests to the store have ended that are under way on `extent`.
    pub(crate) async fn wait_for_others_on(&self, extent: Extent) -> Result<(), SenseData> {
        drop(self.claim(extent, Hold::Exclusive).await?);
        self.unit()?.sanitize().check_since(self.era)
    }

    /// Claims `extent`, and waits until the claim is granted.
    async fn claim(&self, extent: Extent, hold: Hold) -> Result<Claim, SenseData> {
        self.claim_on(self.unit()?, extent, hold).await
    }

    /// Claims both extents, shared. Nobody waits for this command while it waits for the second: on one unit they are one
    /// claim, of all that lies between them too; those on two units are claimed in the same order by everybody.
    async fn claim_both(
        &self,
        (unit, extent): (&Arc<LogicalUnit>, Extent),
        (other, other_extent): (&Arc<LogicalUnit>, Extent),
    ) -> Result<(Claim, Option<Claim>), SenseData> {
        if Arc::ptr_eq(unit, other) {
            return Ok((self.claim_on(unit, extent.hull(other_extent), Hold::Shared).await?, None));
        }
        let (first, second) = if Arc::as_ptr(unit) < Arc::as_ptr(other) {
            ((unit, extent), (other, other_extent))
        } else {
            ((other, other_extent), (unit, extent))
        };
        let claim = self.claim_on(first.0, first.1, Hold::Shared).await?;
        Ok((claim, Some(self.claim_on(second.0, second.1, Hold::Shared).await?)))
    }

    async fn claim_on(&self, unit: &LogicalUnit, extent: Extent, hold: Hold) -> Result<Claim, SenseData> {
        let claim = unit.range_locks().claim(extent, hold);
        let Some(on) = claim.turn() else { return Ok(claim) };
        self.wait(on).await?;
        if claim.is_granted() { Ok(claim) } else { Err(INTERNAL) }
    }

    /// Waits for something that others bring about.
    pub(crate) async fn wait(&self, on: Arc<dyn Waitable>) -> Result<(), SenseData> {
        match self.exchange.ask(Step::Wait { on }).await {
            Input::Waited => Ok(()),
            _ => Err(INTERNAL),
        }
    }

    /// Begins work that outlives the command.
    pub(crate) async fn leave_behind(&self, task: BackgroundTask) -> Result<(), SenseData> {
        match self.exchange.ask(Step::Background(task)).await {
            Input::Begun => Ok(()),
            _ => Err(INTERNAL),
        }
    }

    /// Fills `into` from `offset` and gives it back.
    pub(crate) async fn read(&self, offset: u64, into: Buffer) -> Result<Buffer, SenseData> {
        self.transfer(Op::Read { offset, into }).await
    }

    /// As [`Self::read`], of any logical unit.
    pub(crate) async fn read_at(&self, place: Place<'_>, into: Buffer) -> Result<Buffer, SenseData> {
        self.store_on(place.unit(), place.era, Op::Read { offset: place.offset, into }).await?.ok_or(INTERNAL)
    }

    /// As [`Self::write`], on any logical unit.
    pub(crate) async fn write_at(&self, place: Place<'_>, from: Buffer) -> Result<Buffer, SenseData> {
        let fua = place.unit().write_through();
        let op = Op::Write { offset: place.offset, from, fua };
        self.store_on(place.unit(), place.era, op).await?.ok_or(INTERNAL)
    }

    /// Lets the system copy `len` bytes ([`Op::Copy`]) from one unit, whose bytes are in `source`, to another or the same.
    pub(crate) async fn copy(
        &self,
        source: CopySource,
        from: Place<'_>,
        to: Place<'_>,
        len: u64,
    ) -> Result<(), SenseData> {
        let extent = |place: Place<'_>| Extent { offset: place.offset, len };
        let _shared = self.claim_both((from.unit(), extent(from)), (to.unit(), extent(to))).await?;
        from.unit().sanitize().check_since(from.era)?;
        let fua = to.unit().write_through();
        let op = Op::Copy { source, source_offset: from.offset, offset: to.offset, len, fua };
        self.submit(to.unit(), to.era, op).await.map(drop)
    }

    /// Gives the thread that drives the task to others for a moment.
    pub(crate) async fn pause(&self) -> Result<(), SenseData> {
        self.work(Box::new(|| Ok(()))).await.map_err(|_| INTERNAL)
    }

    /// Writes `from` at `offset` and gives it back. Without a write cache (WCE) every write is a FUA write.
    pub(crate) async fn write(&self, offset: u64, from: Buffer, fua: bool) -> Result<Buffer, SenseData> {
        let fua = fua || self.unit()?.write_through();
        self.transfer(Op::Write { offset, from, fua }).await
    }

    /// Makes `extent` read as zero, piece by piece.
    pub(crate) async fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Result<(), SenseData> {
        let fua = self.unit()?.write_through();
        let mut done = 0;
        while done < extent.len {
            let (offset, len) = (extent.offset + done, (extent.len - done).min(MAX_ZEROES_BYTES));
            self.store(Op::WriteZeroes { offset, len, may_unmap, fua }).await?;
            done += len;
        }
        Ok(())
    }

    /// Declares `extent` unused.
    pub(crate) async fn unmap(&self, extent: Extent) -> Result<(), SenseData> {
        self.store(Op::Unmap { offset: extent.offset, len: extent.len }).await?;
        if self.unit()?.write_through() { self.flush().await } else { Ok(()) }
    }

    /// Which bytes of `extent` have space, from the first on, as far as the store tells at once.
    pub(crate) async fn allocation(&self, extent: Extent) -> Result<Vec<Run>, SenseData> {
        let found = Arc::new(AllocationMap::default());
        let Extent { offset, len } = extent;
        self.store(Op::Allocation { offset, len, found: Arc::clone(&found) }).await?;
        Ok(found.take())
    }

    /// Puts everything acknowledged so far on stable storage.
    pub(crate) async fn flush(&self) -> Result<(), SenseData> {
        self.store(Op::Flush).await.map(drop)
    }

    /// Counts one request for the log pages. What a command with blocks in its Data-Out reads, it verifies.
    fn count(&self, unit: &LogicalUnit, kind: OpKind, len: u64, done: bool) {
        let counters = unit.counters();
        let verifies = self.row.direction == Direction::Out && self.row.range != Range::None;
        let access = match kind {
            OpKind::Read if verifies => &counters.verify,
            OpKind::Read => &counters.read,
            OpKind::Write | OpKind::WriteZeroes | OpKind::Unmap | OpKind::Copy | OpKind::Flush => &counters.write,
            OpKind::Allocation => return,
        };
        match (done, kind) {
            (false, _) => access.errors.add(1),
            (true, OpKind::Read | OpKind::Write | OpKind::WriteZeroes | OpKind::Copy) => access.bytes.add(len),
            (true, _) => {}
        }
    }

    /// The reply RESERVATION CONFLICT.
    #[expect(clippy::unnecessary_wraps, reason = "a reply, as the handlers return it")]
    pub(crate) fn conflict(&self) -> Reply {
        self.exchange.end_with(Status::RESERVATION_CONFLICT, 0);
        Ok(None)
    }

    /// Does what waits for a medium.
    pub(crate) async fn work(&self, work: Work) -> Result<(), StoreError> {
        match self.exchange.ask(Step::Work(work)).await {
            Input::Store(Outcome { result, .. }) => result,
            _ => Err(StoreError::Io(std::io::Error::other("the task was driven against its contract"))),
        }
    }

    /// Waits until a change is on stable storage. When it cannot get there, the initiator is told: the change is in force,
    /// but may be gone after a restart.
    pub(crate) async fn keep(&self, save: Save) -> Result<(), SenseData> {
        let work = move || save.run().map_err(|error| StoreError::Io(std::io::Error::other(error)));
        self.work(Box::new(work)).await.map_err(|error| {
            tracing::error!(command = self.row.name, %error, "what must survive a restart could not be saved");
            INTERNAL
        })
    }

    /// Ends all other tasks of these nexuses on the logical unit, and tells which nexuses lost some.
    pub(crate) async fn abort(&self, tasks: Vec<(NexusId, Lun)>) -> Result<Vec<NexusId>, SenseData> {
        let unit = Arc::clone(self.unit()?);
        match self.exchange.ask(Step::Abort { tasks, unit }).await {
            Input::Aborted { lost } => Ok(lost),
            _ => Err(INTERNAL),
        }
    }

    async fn transfer(&self, op: Op) -> Result<Buffer, SenseData> {
        self.store(op).await?.ok_or(INTERNAL)
    }

    async fn store(&self, op: Op) -> Result<Option<Buffer>, SenseData> {
        self.store_on(self.unit()?, self.era, op).await
    }

    /// Each request shares its range with those of others, unless the command has claimed its blocks for itself.
    async fn store_on(&self, unit: &Arc<LogicalUnit>, era: Era, op: Op) -> Result<Option<Buffer>, SenseData> {
        let (offset, len) = op.range();
        let _shared = if len == 0 || self.claim.get().is_some() {
            None
        } else {
            Some(self.claim_on(unit, Extent { offset, len }, Hold::Shared).await?)
        };
        self.submit(unit, era, op).await
    }

    /// One request to the store of `unit`, whose range is claimed.
    ///
    /// A sanitize operation that has begun since the gate let the command in ends it here: see [`crate::sanitize`].
    async fn submit(&self, unit: &Arc<LogicalUnit>, era: Era, op: Op) -> Result<Option<Buffer>, SenseData> {
        unit.sanitize().check_since(era)?;
        let (kind, (offset, len)) = (op.kind(), op.range());
        if !matches!(kind, OpKind::Read | OpKind::Allocation | OpKind::Flush) {
            unit.watches().change(Extent { offset, len });
        }
        let Input::Store(Outcome { result, buffer }) =
            self.exchange.ask(Step::Store { store: Arc::clone(unit.store()), op }).await
        else {
            return Err(INTERNAL);
        };
        self.count(unit, kind, len, result.is_ok());
        result.map(|()| buffer).map_err(|error: StoreError| errors::to_sense(&error, kind, offset, unit))
    }
}

/// The task was driven against its contract.
pub(crate) const INTERNAL: SenseData =
    SenseData::new(SenseKey::HARDWARE_ERROR, AdditionalSense::INTERNAL_TARGET_FAILURE);

/// A buffer may be longer than asked for, as pools have sizes of their own, but not shorter.
fn of_len(mut buffer: Buffer, len: usize) -> Result<Buffer, SenseData> {
    buffer.truncate(len);
    if buffer.len() == len { Ok(buffer) } else { Err(INTERNAL) }
}
