//! Moves bytes from one place to another: on one logical unit or between two that the initiator sees.
//!
//! The bytes go in pieces, by the system from file to file where it can, else through one buffer. Between two pieces a copy
//! can be aborted, and each begins with the question whether the initiator may still read here and write there: to a logical
//! unit, a copy is a row of READ and WRITE commands, and who was preempted is to write no more. A command never holds one range
//! while it waits for another, but for pieces that the system copies; their order is [`Cx::claim_both`]'s business.

use std::sync::Arc;

use lunette_buffer::Buffer;
use lunette_scsi::{AdditionalSense, SenseData, SenseKey};

use super::running::RunningCopy;
use crate::commands::context::{Cx, MediumAddress};
use crate::extent::Extent;
use crate::limits::{MAX_BUFFERED_COPY_BYTES, MAX_SYSTEM_COPY_BYTES};
use crate::sanitize::SanitizeEpoch;
use crate::unit::LogicalUnit;
use crate::unit::change_watch::ChangeWatch;
use crate::unit::itl_nexus;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::medium::MediumUse;

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
    /// Taken with the first piece that needs it.
    buffer: Option<Buffer>,
}

impl<'a> Copier<'a> {
    pub(crate) fn new(cx: &'a Cx, running: &'a RunningCopy) -> Self {
        Self { cx, running, buffer: None }
    }

    /// Copies `len` bytes. Both places lie within their units. When they overlap, what was at `from` before is at `to`
    /// afterwards. What `watch` watches must not change until the last byte is read.
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
        let by_system = !overlapping && source.as_ref().is_some_and(|source| unit.store().can_copy_from(source));
        let max_piece = if by_system { MAX_SYSTEM_COPY_BYTES } else { MAX_BUFFERED_COPY_BYTES as u64 };
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

    /// Makes `extent` of the command's own unit read as zero, piece by piece.
    pub(crate) async fn zero(&mut self, extent: Extent) -> Result<(), SenseData> {
        let unit = self.cx.unit()?;
        let mut done = 0;
        while done < extent.len {
            let len = (extent.len - done).min(MAX_SYSTEM_COPY_BYTES);
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
        // One that is too small goes back first: copies that hold one and wait for another could wait for each other.
        let kept = self.buffer.take().and_then(|mut buffer| buffer.resize(len).then_some(buffer));
        let buffer = match kept {
            Some(buffer) => buffer,
            None => self.cx.buffer(len).await?,
        };
        let buffer = self.cx.read_at(from, buffer).await?;
        check(watch)?;
        self.buffer = Some(self.cx.write_at(to, buffer).await?);
        Ok(())
    }

    /// A store in memory ends its requests at once, and so a long copy would keep all others from the thread that drives it.
    /// It goes by way of another thread after each piece.
    async fn yield_thread(&self, from: &LogicalUnit, to: &LogicalUnit) -> Result<(), SenseData> {
        if from.capabilities().memory && to.capabilities().memory {
            self.cx.pause().await?;
        }
        Ok(())
    }
}

/// Whether the initiator might READ or WRITE there itself, and when that was.
pub(crate) fn may_access(itl: &ItlNexus, medium: MediumUse) -> Result<SanitizeEpoch, SenseData> {
    itl_nexus::may_access(itl, medium).map_err(|refusal| {
        tracing::debug!(lun = %itl.lun, ?refusal, "a copy may not go there");
        SenseData::new(SenseKey::COPY_ABORTED, AdditionalSense::THIRD_PARTY_DEVICE_FAILURE)
    })
}

/// TOKEN REVOKED once a byte that is watched may have changed.
fn check(watch: Option<&ChangeWatch>) -> Result<(), SenseData> {
    match watch {
        Some(watch) if watch.has_changed() => Err(SenseData::illegal_request(AdditionalSense::TOKEN_REVOKED)),
        _ => Ok(()),
    }
}
