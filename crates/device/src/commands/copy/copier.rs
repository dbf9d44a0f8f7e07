//! Copies bytes within a logical unit, or between two that the initiator sees.
//!
//! The bytes are copied in chunks: by the operating system from file to file where possible, otherwise through one
//! buffer. A copy can be aborted between two chunks. Before each chunk the copier checks again that the initiator may
//! read the source and write the destination: to a logical unit, a copy is a series of READ and WRITE commands, and a
//! preempted nexus must not write any more. A command never holds one range while it waits for another, except for
//! chunks that the system copies; [`Cx::claim_both`] orders those claims.

use std::sync::Arc;

use lunette_buffer::Buffer;
use lunette_scsi::{AdditionalSense, SenseData};

use super::running::RunningCopy;
use crate::commands::context::{Cx, MediumAddress};
use crate::extent::Extent;
use crate::limits::{MAX_BUFFERED_COPY_BYTES, MAX_SYSTEM_COPY_BYTES};
use crate::sanitize::SanitizeEpoch;
use crate::unit::change_watch::ChangeWatch;
use crate::unit::itl_nexus;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::medium::MediumUse;
use crate::unit::{LogicalUnit, common_multiple};

impl MediumAddress<'_> {
    fn extent(self, at: u64, len: u64) -> Extent {
        Extent { offset: self.offset + at, len }
    }

    fn after(self, at: u64) -> Self {
        Self { offset: self.offset + at, ..self }
    }
}

/// The copies of one command.
pub(crate) struct Copier<'a> {
    cx: &'a Cx,
    running: &'a RunningCopy,
    /// The buffer of the copy, taken with the first chunk that needs one.
    buffer: Option<Buffer>,
}

impl<'a> Copier<'a> {
    pub(crate) fn new(cx: &'a Cx, running: &'a RunningCopy) -> Self {
        Self { cx, running, buffer: None }
    }

    /// Copies `len` bytes. Both ranges lie within their units. When they overlap, `to` ends with what `from` held
    /// before. The bytes that `watch` watches must not change until the last byte is read.
    pub(crate) async fn copy(
        &mut self,
        from: MediumAddress<'_>,
        to: MediumAddress<'_>,
        len: u64,
        watch: Option<&ChangeWatch>,
    ) -> Result<(), SenseData> {
        let (source_unit, unit) = (from.unit(), to.unit());
        for used in [source_unit, unit] {
            self.cx.channel.use_unit(used);
        }
        let overlapping = Arc::ptr_eq(source_unit, unit) && from.extent(0, len).overlaps(to.extent(0, len));
        // From the end, so that no byte is overwritten before it is read.
        let backwards = overlapping && to.offset > from.offset;
        let source = source_unit.store().copy_source();
        // Quanta that the unit looks at pass through its hands.
        let may = !overlapping && unit.quanta().is_none();
        let by_system = may && source.as_ref().is_some_and(|source| unit.store().can_copy_from(source));
        let max_piece = if by_system { MAX_SYSTEM_COPY_BYTES } else { MAX_BUFFERED_COPY_BYTES };
        let max_piece = whole_blocks_of_both(source_unit, unit, max_piece);
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(max_piece);
            let at = if backwards { len - done - piece } else { done };
            may_access(from.itl, MediumUse::Reads)?;
            may_access(to.itl, MediumUse::Writes)?;
            match source.clone().filter(|_| by_system) {
                Some(source) => {
                    self.cx.copy(source, from.after(at), to.after(at), piece).await?;
                    check(watch)?;
                }
                None => self.copy_through_buffer(from.after(at), to.after(at), piece, watch).await?,
            }
            done += piece;
            self.running.count_bytes(piece)?;
            self.yield_thread(source_unit, unit).await?;
        }
        Ok(())
    }

    /// Makes `extent` of the command's own unit read as zero, chunk by chunk.
    pub(crate) async fn zero(&mut self, extent: Extent) -> Result<(), SenseData> {
        let unit = self.cx.unit()?;
        let mut done = 0;
        while done < extent.len {
            let len = (extent.len - done).min(unit.whole_freed_units(MAX_SYSTEM_COPY_BYTES) as u64);
            self.cx.write_zeroes(Extent { offset: extent.offset + done, len }, unit.capabilities().unmap).await?;
            done += len;
            self.running.count_bytes(len)?;
            self.yield_thread(unit, unit).await?;
        }
        Ok(())
    }

    async fn copy_through_buffer(
        &mut self,
        from: MediumAddress<'_>,
        to: MediumAddress<'_>,
        len: u64,
        watch: Option<&ChangeWatch>,
    ) -> Result<(), SenseData> {
        let len = len as usize;
        // A buffer that is too small is returned first: copies that hold one buffer and wait for another could
        // deadlock.
        let reusable = self.buffer.take().and_then(|mut buffer| buffer.resize(len).then_some(buffer));
        let buffer = match reusable {
            Some(buffer) => buffer,
            None => self.cx.buffer(len).await?,
        };
        let buffer = self.cx.read_at(from, buffer).await?;
        check(watch)?;
        self.buffer = Some(self.cx.write_at(to, buffer).await?);
        Ok(())
    }

    /// Yields the thread after a chunk between stores in memory. Their requests end at once, so a long copy would block
    /// all other tasks of the thread.
    async fn yield_thread(&self, from: &LogicalUnit, to: &LogicalUnit) -> Result<(), SenseData> {
        if from.capabilities().memory && to.capabilities().memory {
            self.cx.pause().await?;
        }
        Ok(())
    }
}

/// Whether the initiator may READ or WRITE there itself; returns the sanitize epoch of the check.
pub(crate) fn may_access(itl: &ItlNexus, medium: MediumUse) -> Result<SanitizeEpoch, SenseData> {
    itl_nexus::may_access(itl, medium).map_err(|refusal| {
        tracing::debug!(lun = %itl.lun, ?refusal, "a copy may not go there");
        SenseData::copy_aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE)
    })
}

/// TOKEN REVOKED when a watched byte may have changed.
fn check(watch: Option<&ChangeWatch>) -> Result<(), SenseData> {
    match watch {
        Some(watch) if watch.has_changed() => Err(SenseData::illegal_request(AdditionalSense::TOKEN_REVOKED)),
        _ => Ok(()),
    }
}

/// The most bytes up to `limit` that are whole blocks of both units. The block lengths of
/// [`BLOCK_SIZES`](crate::BLOCK_SIZES) have common multiples below every limit.
fn whole_blocks_of_both(one: &LogicalUnit, other: &LogicalUnit, limit: usize) -> u64 {
    let common = common_multiple(one.block_size() as usize, other.block_size() as usize);
    (limit / common * common) as u64
}
