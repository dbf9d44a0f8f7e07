//! Access to the medium: claims on blocks, and requests to the store.

use std::sync::Arc;

use lunette_buffer::{Buffer, FileSlice, Payload};
use lunette_scsi::{AdditionalSense, SenseData};
use lunette_store::{AllocationMap, CopySource, Op, OpKind, Outcome, Run, StoreError};

use super::{Cx, INTERNAL_FAILURE, store_error};
use crate::commands::row::{Direction, RangeRule, Row};
use crate::coroutine::{Input, Reply, Step};
use crate::counts::{Access, Field};
use crate::extent::Extent;
use crate::limits::{MAX_ZEROES_BYTES, MIN_FILE_SLICE_BYTES};
use crate::sanitize::SanitizeEpoch;
use crate::unit::LogicalUnit;
use crate::unit::counters::NexusCounters;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::range_locks::{Claim, ClaimMode};
use crate::wait::Waitable;

/// An offset on a logical unit, for a command that was admitted there in `epoch`.
#[derive(Clone, Copy)]
pub(crate) struct MediumAddress<'a> {
    pub(crate) itl: &'a Arc<ItlNexus>,
    pub(crate) offset: u64,
    pub(crate) epoch: SanitizeEpoch,
}

impl<'a> MediumAddress<'a> {
    pub(crate) fn unit(self) -> &'a Arc<LogicalUnit> {
        &self.itl.unit
    }
}

impl Cx {
    /// The blocks that the CDB names as a slice of the store's file, when they may be sent from there.
    ///
    /// The slice is sent after the command has ended for the device. Bytes written in the meantime may be sent in its
    /// place: commands that are in progress at the same time have no order.
    pub(crate) async fn file_slice(&self) -> Result<Option<FileSlice>, SenseData> {
        let (unit, extent) = (self.unit()?, self.extent);
        if !unit.config().zero_copy || extent.len < MIN_FILE_SLICE_BYTES {
            return Ok(None);
        }
        let Some(slice) = unit.store().file_slice(extent.offset, extent.len as usize) else { return Ok(None) };
        let _shared = self.claim_on(unit, extent, ClaimMode::Shared).await?;
        unit.sanitize().check_since(self.epoch)?;
        // The request that takes its place waits for the thaw.
        if unit.is_frozen() {
            return Ok(None);
        }
        match self.channel.ask(Step::File { slice: slice.clone() }).await {
            Input::File(true) => {
                count_request(&self.itl()?.counters, self.row, OpKind::Read, extent.len, true);
                Ok(Some(slice))
            }
            Input::File(false) => Ok(None),
            _ => Err(INTERNAL_FAILURE),
        }
    }

    /// Claims `extent` exclusively until the command ends. At most once in a command, and after it has its buffers: see
    /// [`crate::unit::range_locks`].
    pub(crate) async fn claim_exclusively(&self, extent: Extent) -> Result<(), SenseData> {
        let claim = self.claim(extent, ClaimMode::Exclusive).await?;
        self.claim.set(claim).map_err(|_| INTERNAL_FAILURE)
    }

    /// Waits until all requests to the store that are in progress on `extent` have ended.
    pub(crate) async fn wait_for_requests_on(&self, extent: Extent) -> Result<(), SenseData> {
        drop(self.claim(extent, ClaimMode::Exclusive).await?);
        self.unit()?.sanitize().check_since(self.epoch)
    }

    /// Claims `extent` and waits until the claim is granted.
    async fn claim(&self, extent: Extent, mode: ClaimMode) -> Result<Claim, SenseData> {
        self.claim_on(self.unit()?, extent, mode).await
    }

    /// Claims both extents shared, without a deadlock: on one unit as one claim that also covers the bytes between
    /// them, on two units in the same order for every command.
    async fn claim_both(
        &self,
        (unit, extent): (&Arc<LogicalUnit>, Extent),
        (other, other_extent): (&Arc<LogicalUnit>, Extent),
    ) -> Result<(Claim, Option<Claim>), SenseData> {
        if Arc::ptr_eq(unit, other) {
            return Ok((self.claim_on(unit, extent.hull(other_extent), ClaimMode::Shared).await?, None));
        }
        let (first, second) = if Arc::as_ptr(unit) < Arc::as_ptr(other) {
            ((unit, extent), (other, other_extent))
        } else {
            ((other, other_extent), (unit, extent))
        };
        let claim = self.claim_on(first.0, first.1, ClaimMode::Shared).await?;
        Ok((claim, Some(self.claim_on(second.0, second.1, ClaimMode::Shared).await?)))
    }

    async fn claim_on(&self, unit: &LogicalUnit, extent: Extent, mode: ClaimMode) -> Result<Claim, SenseData> {
        let claim = unit.range_locks().claim(extent, mode);
        let Some(on) = claim.pending_grant() else { return Ok(claim) };
        self.wait(on).await?;
        if claim.is_granted() { Ok(claim) } else { Err(INTERNAL_FAILURE) }
    }

    /// Fills `into` from `offset` and returns it.
    pub(crate) async fn read(&self, offset: u64, into: Buffer) -> Result<Buffer, SenseData> {
        self.transfer(Op::Read { offset, into }).await
    }

    /// Like [`Self::read`], as a reply: the filled buffer, or the loan that the store makes in its place.
    pub(crate) async fn read_for_reply(&self, offset: u64, mut into: Buffer) -> Reply {
        into.allow_loan();
        self.store(Op::Read { offset, into }).await
    }

    /// Like [`Self::read`], on any logical unit.
    pub(crate) async fn read_at(&self, address: MediumAddress<'_>, into: Buffer) -> Result<Buffer, SenseData> {
        self.store_on(address.itl, address.epoch, Op::Read { offset: address.offset, into })
            .await?
            .ok_or(INTERNAL_FAILURE)
    }

    /// Like [`Self::write`], on any logical unit.
    pub(crate) async fn write_at(&self, address: MediumAddress<'_>, from: Buffer) -> Result<Buffer, SenseData> {
        if let Some(quanta) = address.unit().quanta() {
            quanta.check_write(address.offset, &from)?;
        }
        let fua = address.unit().write_through();
        let op = Op::Write { offset: address.offset, from, fua };
        self.store_on(address.itl, address.epoch, op).await?.ok_or(INTERNAL_FAILURE)
    }

    /// Lets the operating system copy `len` bytes ([`Op::Copy`]) from one unit, whose file is `source`, to another or
    /// the same.
    pub(crate) async fn copy(
        &self,
        source: CopySource,
        from: MediumAddress<'_>,
        to: MediumAddress<'_>,
        len: u64,
    ) -> Result<(), SenseData> {
        let extent = |address: MediumAddress<'_>| Extent { offset: address.offset, len };
        let _shared = self.claim_both((from.unit(), extent(from)), (to.unit(), extent(to))).await?;
        self.wait_for_thaw(&[from.unit(), to.unit()]).await?;
        from.unit().sanitize().check_since(from.epoch)?;
        let fua = to.unit().write_through();
        let op = Op::Copy { source, source_offset: from.offset, offset: to.offset, len, fua };
        self.submit(to.itl, to.epoch, op).await.map(drop)
    }

    /// Writes `from` at `offset` and returns it. Without a write cache (WCE) every write is a FUA write.
    pub(crate) async fn write(&self, offset: u64, from: Buffer, fua: bool) -> Result<Buffer, SenseData> {
        let unit = self.unit()?;
        if let Some(quanta) = unit.quanta() {
            quanta.check_write(offset, &from)?;
        }
        let fua = fua || unit.write_through();
        self.transfer(Op::Write { offset, from, fua }).await
    }

    /// Makes `extent` read as zero, request by request.
    pub(crate) async fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Result<(), SenseData> {
        let (fua, most) = (self.unit()?.write_through(), self.unit()?.whole_freed_units(MAX_ZEROES_BYTES) as u64);
        let mut done = 0;
        while done < extent.len {
            let (offset, len) = (extent.offset + done, (extent.len - done).min(most));
            self.store(Op::WriteZeroes { offset, len, may_unmap, fua }).await?;
            done += len;
        }
        Ok(())
    }

    /// Unmaps `extent`.
    pub(crate) async fn unmap(&self, extent: Extent) -> Result<(), SenseData> {
        self.store(Op::Unmap { offset: extent.offset, len: extent.len }).await?;
        if self.unit()?.write_through() { self.flush().await } else { Ok(()) }
    }

    /// The allocation of `extent`, as far as the store reports it in one request.
    pub(crate) async fn allocation(&self, extent: Extent) -> Result<Vec<Run>, SenseData> {
        let found = Arc::new(AllocationMap::default());
        let Extent { offset, len } = extent;
        self.store(Op::Allocation { offset, len, found: Arc::clone(&found) }).await?;
        Ok(found.take())
    }

    /// Flushes everything acknowledged so far to stable storage.
    pub(crate) async fn flush(&self) -> Result<(), SenseData> {
        self.store(Op::Flush).await.map(drop)
    }

    async fn transfer(&self, op: Op) -> Result<Buffer, SenseData> {
        self.store(op).await?.ok_or(INTERNAL_FAILURE)
    }

    async fn store(&self, op: Op) -> Result<Option<Buffer>, SenseData> {
        self.store_on(self.itl()?, self.epoch, op).await
    }

    /// Sends one request to a store under a shared claim, unless the command holds an exclusive claim. A change to EDUs
    /// takes an exclusive one: half of a change would look like damage, here and to the client that opens them.
    async fn store_on(&self, itl: &Arc<ItlNexus>, epoch: SanitizeEpoch, op: Op) -> Result<Option<Buffer>, SenseData> {
        let (unit, (offset, len)) = (&itl.unit, op.range());
        let _shared = if len == 0 || self.claim.get().is_some() {
            None
        } else {
            let halves_show = is_change(op.kind()) && unit.has_edus();
            let mode = if halves_show { ClaimMode::Exclusive } else { ClaimMode::Shared };
            Some(self.claim_on(unit, Extent { offset, len }, mode).await?)
        };
        self.submit(itl, epoch, op).await
    }

    /// Sends one request to the store of the unit of `itl`, whose range is claimed.
    ///
    /// A sanitize operation that has begun since admission ends the command here: see [`crate::sanitize`].
    async fn submit(&self, itl: &Arc<ItlNexus>, epoch: SanitizeEpoch, op: Op) -> Result<Option<Buffer>, SenseData> {
        let unit = &itl.unit;
        if unit.is_frozen() {
            // On the heap, because it is rare: handlers have little room.
            Box::pin(self.wait_for_thaw(&[unit])).await?;
        }
        unit.sanitize().check_since(epoch)?;
        let (kind, (offset, len)) = (op.kind(), op.range());
        if is_change(kind) {
            unit.change_watches().change(Extent { offset, len });
        }
        let Input::Store(Outcome { result, buffer, loan }) =
            self.channel.ask(Step::Store { store: Arc::clone(unit.store()), op }).await
        else {
            return Err(INTERNAL_FAILURE);
        };
        if let Some(loan) = loan {
            self.channel.reply(Payload::Lent(loan));
        }
        count_request(&itl.counters, self.row, kind, len, result.is_ok());
        result.map(|()| buffer).map_err(|error: StoreError| store_error::to_sense(&error, kind, offset, unit))
    }

    /// Waits until none of the units is frozen, with the claims that the command holds.
    ///
    /// # Errors
    ///
    /// ABORTED COMMAND when others have put other content on a medium meanwhile.
    async fn wait_for_thaw(&self, units: &[&Arc<LogicalUnit>]) -> Result<(), SenseData> {
        let changes = || units.iter().map(|unit| unit.medium_changes()).sum::<u64>();
        let before = changes();
        while let Some(thaw) = units.iter().find_map(|unit| unit.pending_thaw()) {
            self.wait(Arc::clone(&thaw) as Arc<dyn Waitable>).await?;
        }
        let is_same = changes() == before;
        is_same.then_some(()).ok_or(SenseData::aborted_command(AdditionalSense::COMMANDS_CLEARED_BY_DEVICE_SERVER))
    }
}

/// Whether a request changes bytes.
#[inline]
fn is_change(kind: OpKind) -> bool {
    !matches!(kind, OpKind::Read | OpKind::Allocation | OpKind::Flush)
}

/// Counts one request of a command for the log pages. Reads of a command with blocks in its Data-Out count as
/// verifications.
pub(crate) fn count_request(counters: &NexusCounters, row: &Row, kind: OpKind, len: u64, done: bool) {
    let verifies = row.direction == Direction::Out && row.range != RangeRule::None;
    let access = match kind {
        OpKind::Read if verifies => Access::Verify,
        OpKind::Read => Access::Read,
        OpKind::Write | OpKind::WriteZeroes | OpKind::Unmap | OpKind::Copy | OpKind::Flush => Access::Write,
        OpKind::Allocation => return,
    };
    match (done, kind) {
        (false, _) => counters.add(Field::errors(access), 1),
        (true, OpKind::Read | OpKind::Write | OpKind::WriteZeroes | OpKind::Copy) => {
            counters.add(Field::bytes(access), len);
        }
        (true, _) => {}
    }
}
