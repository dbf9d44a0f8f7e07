//! EXTENDED COPY (SPC-5 6.5, 6.6) and COPY OPERATION ABORT (6.4).

use std::sync::Arc;

use lunette_scsi::copy::extended::{self, CopyList, CopyListForm, Cscd, Segment, SegmentOperation, THIS_UNIT};
use lunette_scsi::{AdditionalSense, FieldPointer, SenseData, SenseKey, ServiceAction, Status};

use super::copier::{Copier, may_access};
use super::running::RunningCopy;
use crate::commands::context::{Cx, INTERNAL_FAILURE, MediumAddress};
use crate::coroutine::Reply;
use crate::extent::Extent;
use crate::limits::{MAX_COPY_DESCRIPTORS_BYTES, copy_limits};
use crate::unit::LogicalUnit;
use crate::unit::itl_nexus;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::medium::MediumUse;

/// PERIPHERAL DEVICE TYPE of a disk.
const DISK: u8 = 0;
const LIST_ID_FIELD: FieldPointer = FieldPointer::cdb(2);

/// Executes EXTENDED COPY(LID1) and (LID4). Segments are processed in order; the first failure ends the copy.
///
/// With IMMED, too, the command ends with the copy: a copy does not outlive its command.
pub(crate) async fn extended_copy(cx: Cx) -> Reply {
    let action = cx.cdb.service_action();
    let form = if action == ServiceAction::EXTENDED_COPY_LID4 { CopyListForm::Lid4 } else { CopyListForm::Lid1 };
    let unit = Arc::clone(cx.unit()?);
    let max_len = form.header_len() as u32 + MAX_COPY_DESCRIPTORS_BYTES;
    let Some(bytes) = cx.parameter_list(cx.cdb.u32_at(10), max_len).await? else { return Ok(None) };
    let list = extended::parse(&bytes, form, &copy_limits(unit.block_size()))?;
    drop(bytes);
    let itl = cx.itl.as_ref().ok_or(INTERNAL_FAILURE)?;
    let Some(running) = RunningCopy::begin(itl, list.list_id, action)? else { return too_many(&cx) };
    let result = run(&cx, &list, &running).await.map(|()| None);
    running.end(&result);
    result.map(|_| None)
}

/// The status qualifier of TASK SET FULL, in units of 100 ms (SAM-5 5.3.2): initiators should retry after a second, as
/// copies take long.
const COPY_RETRY_DELAY: u16 = 10;

/// Ends a copy command with TASK SET FULL, because the maximum number of copies is running (SAM-5 5.3.1).
#[expect(clippy::unnecessary_wraps, reason = "a reply, as the handlers return it")]
pub(super) fn too_many(cx: &Cx) -> Reply {
    cx.channel.end_with(Status::TASK_SET_FULL, COPY_RETRY_DELAY);
    Ok(None)
}

/// Executes COPY OPERATION ABORT. It does not wait: the copy ends with COPY ABORTED before its next chunk.
pub(crate) fn copy_operation_abort(cx: &Cx) -> Reply {
    let itl = cx.itl.as_ref().ok_or(INTERNAL_FAILURE)?;
    if itl.copy_records.abort(cx.cdb.u32_at(2)) { Ok(None) } else { Err(LIST_ID_FIELD.into()) }
}

async fn run(cx: &Cx, list: &CopyList, running: &RunningCopy) -> Result<(), SenseData> {
    let mut copier = Copier::new(cx, running);
    for segment in &list.segments {
        match segment.operation {
            SegmentOperation::Copy { .. } => copy(cx, list, segment, &mut copier).await?,
            SegmentOperation::Verify { cscd, ready } => verify(cx, list, segment, cscd, ready)?,
        }
        running.count_segment();
    }
    Ok(())
}

/// Sense data of an error that concerns a segment (SPC-5 5.18.8.3).
fn aborted(code: AdditionalSense) -> SenseData {
    SenseData::copy_aborted(code)
}

fn verify(cx: &Cx, list: &CopyList, segment: &Segment, cscd: u16, ready: bool) -> Result<(), SenseData> {
    let itl = reach(cx, list, cscd, segment.source_field())?;
    if ready { itl_nexus::is_ready(&itl).map_err(forwarded) } else { Ok(()) }
}

async fn copy(cx: &Cx, list: &CopyList, segment: &Segment, copier: &mut Copier<'_>) -> Result<(), SenseData> {
    let SegmentOperation::Copy { source, destination, destination_counts, blocks, source_lba, destination_lba } =
        segment.operation
    else {
        return Err(INTERNAL_FAILURE);
    };
    let from = reach(cx, list, source, segment.source_field())?;
    let to = reach(cx, list, destination, segment.destination_field())?;
    let counted_in = if destination_counts { &to } else { &from };
    let len = u64::from(blocks) * u64::from(counted_in.unit.block_size());
    if !len.is_multiple_of(from.unit.block_size().into()) || !len.is_multiple_of(to.unit.block_size().into()) {
        // PAD and CAT would define how half a block is handled. Copies between different block sizes are too rare for
        // that.
        return Err(aborted(AdditionalSense::INEXACT_SEGMENT).with_field(segment.blocks_field()));
    }
    let from_epoch = may_access(&from, MediumUse::Reads)?;
    let to_epoch = may_access(&to, MediumUse::Writes)?;
    let from_extent = extent(&from.unit, source_lba, len, segment.source_lba_field())?;
    let to_extent = extent(&to.unit, destination_lba, len, segment.destination_lba_field())?;
    let from = MediumAddress { itl: &from, offset: from_extent.offset, epoch: from_epoch };
    let to = MediumAddress { itl: &to, offset: to_extent.offset, epoch: to_epoch };
    copier.copy(from, to, len, None).await.map_err(forwarded)
}

/// Sense data for an error of a logical unit in the copy, which is the failure of a third party.
fn forwarded(sense: SenseData) -> SenseData {
    if sense.key == SenseKey::COPY_ABORTED || sense == INTERNAL_FAILURE {
        return sense;
    }
    aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE)
}

/// The logical unit of a CSCD descriptor ID. Only units that the initiator sees through its own nexus are reachable.
fn reach(cx: &Cx, list: &CopyList, id: u16, id_field: FieldPointer) -> Result<Arc<ItlNexus>, SenseData> {
    if id == THIS_UNIT {
        return cx.itl.clone().ok_or(INTERNAL_FAILURE);
    }
    let unreachable = aborted(AdditionalSense::UNREACHABLE_COPY_TARGET).with_field(id_field);
    let cscd: &Cscd = list.cscds.get(usize::from(id)).ok_or(unreachable)?;
    if cscd.device_type != DISK {
        let code = AdditionalSense::INCORRECT_COPY_TARGET_DEVICE_TYPE;
        return Err(aborted(code).with_field(cscd.device_type_field()));
    }
    let has_name = |itl: &Arc<ItlNexus>| itl.unit.designators().contains(&cscd.designator);
    let itl = cx.nexus.itl_nexuses().into_iter().find(has_name);
    let itl = itl.ok_or(aborted(AdditionalSense::COPY_TARGET_DEVICE_NOT_REACHABLE).with_field(id_field))?;
    // Zero: the initiator does not know the block length.
    if cscd.block_len != 0 && cscd.block_len != itl.unit.block_size() {
        return Err(cscd.block_len_field().into());
    }
    Ok(itl)
}

/// The bytes of the blocks from `lba` on, which must lie within the unit.
fn extent(unit: &LogicalUnit, lba: u64, len: u64, field: FieldPointer) -> Result<Extent, SenseData> {
    let block_size = u64::from(unit.block_size());
    match lba.checked_add(len / block_size) {
        Some(end) if end <= unit.blocks() => Ok(Extent { offset: lba * block_size, len }),
        _ => Err(aborted(AdditionalSense::NONE).with_field(field)),
    }
}
