//! POPULATE TOKEN (SBC-4 5.17) and WRITE USING TOKEN (SBC-4 5.47). The tokens are described in
//! [`crate::target_device::rod_tokens`].

use std::sync::Arc;
use std::time::Duration;

use lunette_scsi::copy::tokens::{self, BlockRanges, PopulateList, RodType, SECRET_LEN, TOKEN_LEN, WriteList};
use lunette_scsi::{AdditionalSense, SenseData};

use super::copier::{Copier, may_access};
use super::extended::too_many;
use super::running::RunningCopy;
use crate::commands::context::{Cx, INTERNAL_FAILURE, MediumAddress};
use crate::coroutine::Reply;
use crate::extent::Extent;
use crate::limits::{DEFAULT_TOKEN_TIMEOUT_S, MAX_TOKEN_LIST_BYTES, copy_limits};
use crate::sanitize::SanitizeEpoch;
use crate::target_device::rod_tokens::TokenSource;
use crate::unit::LogicalUnit;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::medium::MediumUse;

type Token = Box<[u8; TOKEN_LEN]>;

/// A token that the initiator may use.
struct Opened {
    source: TokenSource,
    /// The nexus on the unit that the token was created from.
    itl: Arc<ItlNexus>,
    epoch: SanitizeEpoch,
}

/// Executes POPULATE TOKEN. With IMMED, too, the token exists when the command ends.
pub(crate) async fn populate_token(cx: Cx) -> Reply {
    let unit = Arc::clone(cx.unit()?);
    let Some(bytes) = cx.parameter_list(cx.cdb.u32_at(10), MAX_TOKEN_LIST_BYTES).await? else { return Ok(None) };
    let list = PopulateList::parse(&bytes, &copy_limits(unit.block_size()))?;
    drop(bytes);
    if !matches!(
        list.rod_type,
        None | Some(
            RodType::POINT_IN_TIME_DEFAULT | RodType::POINT_IN_TIME_CHANGE_VULNERABLE | RodType::POINT_IN_TIME_ANY
        )
    ) {
        return Err(PopulateList::ROD_TYPE_FIELD.into());
    }
    let extents = extents(&unit, &list.ranges)?;
    let Some(running) = begin(&cx)? else { return too_many(&cx) };
    let result = make_token(&cx, &unit, extents, list.inactivity_timeout_s, &running).await.map(Some);
    running.end(&result);
    result.map(|_| None)
}

/// Executes WRITE USING TOKEN. With IMMED, too, the bytes are written when the command ends.
pub(crate) async fn write_using_token(cx: Cx) -> Reply {
    let unit = Arc::clone(cx.unit()?);
    let Some(bytes) = cx.parameter_list(cx.cdb.u32_at(10), MAX_TOKEN_LIST_BYTES).await? else { return Ok(None) };
    let list = WriteList::parse(&bytes, &copy_limits(unit.block_size()))?;
    drop(bytes);
    let extents = extents(&unit, &list.ranges)?;
    let source = match tokens::rod_type(&list.token)? {
        RodType::BLOCK_DEVICE_ZERO => None,
        RodType::POINT_IN_TIME_CHANGE_VULNERABLE => Some(open(&cx, &unit, &list, &extents)?),
        _ => return Err(SenseData::illegal_request(AdditionalSense::UNSUPPORTED_TOKEN_TYPE)),
    };
    let Some(running) = begin(&cx)? else { return too_many(&cx) };
    let result = write(&cx, source.as_ref(), list.offset, &extents, &running).await.map(|()| None);
    if let Some(Opened { source, .. }) = source.filter(|_| list.delete_token) {
        cx.device.tokens().delete(source.id);
    }
    running.end(&result);
    result.map(|_| None)
}

fn begin(cx: &Cx) -> Result<Option<RunningCopy>, SenseData> {
    RunningCopy::begin(cx.itl.as_ref().ok_or(INTERNAL_FAILURE)?, Some(cx.cdb.u32_at(6)), cx.cdb.service_action())
}

/// The extents of the ranges, which must lie within the medium.
fn extents(unit: &LogicalUnit, ranges: &BlockRanges) -> Result<Vec<Extent>, SenseData> {
    let block_size = u64::from(unit.block_size());
    let extent = |(index, range): (usize, &tokens::BlockRange)| match range.lba.checked_add(range.blocks.into()) {
        Some(end) if end <= unit.blocks() => {
            Ok(Extent { offset: range.lba * block_size, len: u64::from(range.blocks) * block_size })
        }
        _ => Err(SenseData::illegal_request(AdditionalSense::LBA_OUT_OF_RANGE).with_field(ranges.lba_field(index))),
    };
    ranges.ranges.iter().enumerate().map(extent).collect()
}

/// Watches the blocks, waits for the writes that began before, and creates a token.
async fn make_token(
    cx: &Cx,
    unit: &Arc<LogicalUnit>,
    extents: Vec<Extent>,
    timeout_s: Option<u32>,
    running: &RunningCopy,
) -> Result<Token, SenseData> {
    let timeout = Duration::from_secs(timeout_s.unwrap_or(DEFAULT_TOKEN_TIMEOUT_S).into());
    let watch = unit.change_watches().begin(extents, timeout);
    for extent in watch.extents().iter().filter(|extent| extent.len > 0) {
        cx.wait_for_requests_on(*extent).await?;
        running.count_bytes(extent.len)?;
        running.count_segment();
    }
    let mut secret = [0; SECRET_LEN];
    (unit.config().entropy)(&mut secret).map_err(|error| {
        tracing::error!(%error, "no random bytes for a ROD token");
        SenseData::hardware_error(AdditionalSense::INTERNAL_TARGET_FAILURE)
    })?;
    cx.device.tokens().create(unit, watch, secret)
}

/// The blocks of the token of `list`, if the initiator may read them and they cover the write.
fn open(cx: &Cx, unit: &Arc<LogicalUnit>, list: &WriteList, to: &[Extent]) -> Result<Opened, SenseData> {
    let source = cx.device.tokens().find(&list.token)?;
    let itl = cx.nexus.itl_nexuses().into_iter().find(|itl| Arc::ptr_eq(&itl.unit, &source.unit));
    // An initiator that does not see the unit must not learn that the token exists.
    let itl = itl.ok_or(SenseData::illegal_request(AdditionalSense::TOKEN_UNKNOWN))?;
    let epoch = may_access(&itl, MediumUse::Reads)?;
    if source.watch.has_changed() {
        return Err(SenseData::illegal_request(AdditionalSense::TOKEN_REVOKED));
    }
    if source.unit.block_size() != unit.block_size() {
        return Err(SenseData::illegal_request(AdditionalSense::UNSUPPORTED_TOKEN_TYPE));
    }
    let represented: u64 = source.watch.extents().iter().map(|extent| extent.len).sum();
    let offset = list.offset.checked_mul(unit.block_size().into());
    let needed = offset.and_then(|offset| offset.checked_add(to.iter().map(|extent| extent.len).sum()));
    if needed.is_none_or(|needed| needed > represented) {
        return Err(WriteList::OFFSET_FIELD.into());
    }
    // Such a write would revoke its own token half way.
    let own = if Arc::ptr_eq(&source.unit, unit) { source.watch.extents() } else { &[] };
    let overlaps = |extent: &Extent| own.iter().any(|source| source.overlaps(*extent));
    match to.iter().position(overlaps) {
        Some(index) => Err(list.ranges.lba_field(index).into()),
        None => Ok(Opened { source, itl, epoch }),
    }
}

async fn write(
    cx: &Cx,
    source: Option<&Opened>,
    offset_blocks: u64,
    to: &[Extent],
    running: &RunningCopy,
) -> Result<(), SenseData> {
    let mut copier = Copier::new(cx, running);
    let Some(Opened { source, itl: from, epoch }) = source else {
        for extent in to {
            copier.zero(*extent).await?;
            running.count_segment();
        }
        return Ok(());
    };
    let own = cx.itl()?;
    // No overflow: `open` checked the offset against the bytes that the token represents.
    let mut at = offset_blocks * u64::from(own.unit.block_size());
    for extent in to {
        for (source_offset, offset, len) in pairs(source.watch.extents(), at, *extent) {
            let from = MediumAddress { itl: from, offset: source_offset, epoch: *epoch };
            copier.copy(from, MediumAddress { itl: own, offset, epoch: cx.epoch }, len, Some(&source.watch)).await?;
        }
        at += extent.len;
        running.count_segment();
    }
    Ok(())
}

/// The pieces in which `to` is filled from the bytes of `from` in a row, beginning at byte `at`: source offset,
/// destination offset and length of each.
fn pairs(from: &[Extent], at: u64, to: Extent) -> Vec<(u64, u64, u64)> {
    let mut found = Vec::new();
    let (mut skip, mut done) = (at, 0);
    for extent in from {
        let skipped = skip.min(extent.len);
        skip -= skipped;
        let len = (extent.len - skipped).min(to.len - done);
        if len > 0 {
            found.push((extent.offset + skipped, to.offset + done, len));
            done += len;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_where_either_side_ends() {
        let extent = |offset, len| Extent { offset, len };
        let from = [extent(100, 10), extent(0, 0), extent(300, 10), extent(200, 10)];
        assert_eq!(pairs(&from, 0, extent(5, 10)), [(100, 5, 10)]);
        assert_eq!(pairs(&from, 8, extent(50, 14)), [(108, 50, 2), (300, 52, 10), (200, 62, 2)]);
        assert_eq!(pairs(&from, 25, extent(0, 5)), [(205, 0, 5)]);
        assert_eq!(pairs(&from, 3, extent(0, 0)), []);
    }
}
