//! UNMAP (SBC-4 5.38).

use lunette_scsi::unmap::{self as list, UnmapRange};
use lunette_scsi::{AdditionalSense, FieldPointer, SenseData};

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::extent::Extent;
use crate::limits::MAX_UNMAP_DESCRIPTORS;
use crate::unit::LogicalUnit;

const ANCHOR: u8 = 0x01;

/// The field BLOCK DESCRIPTOR DATA LENGTH of the parameter list.
const DESCRIPTORS_LEN_FIELD: FieldPointer = FieldPointer::data(2);

/// Executes UNMAP. All ranges are checked before the first is unmapped. Ranges need no alignment: a store frees the
/// whole units inside each range and makes the rest read as freed blocks do. With ANCHOR the space is kept or reserved.
pub(crate) async fn unmap(cx: Cx) -> Reply {
    let anchor = cx.cdb.bit(1, ANCHOR);
    if anchor && !cx.unit()?.anchors() {
        return Err(FieldPointer::cdb(1).bit(0).into());
    }
    let list_len = u64::from(cx.cdb.u16_at(7));
    if list_len == 0 {
        return Ok(None);
    }
    let bytes = cx.data_out(list_len, 1).await?.ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    let unit = cx.unit()?;
    let ranges = list::parse(&bytes).map_err(|_| SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    if ranges.len() > usize::from(MAX_UNMAP_DESCRIPTORS) {
        return Err(DESCRIPTORS_LEN_FIELD.into());
    }
    let extents: Vec<Extent> =
        ranges.enumerate().map(|(index, range)| check(index, range, unit)).collect::<Result<_, _>>()?;
    for extent in extents.into_iter().filter(|extent| extent.len > 0) {
        if anchor {
            cx.write_zeroes(extent, false).await?;
        } else {
            cx.unmap(extent).await?;
        }
    }
    Ok(None)
}

/// The bytes of the `index`-th descriptor, which must lie within the medium.
fn check(index: usize, range: UnmapRange, unit: &LogicalUnit) -> Result<Extent, SenseData> {
    let (lba, blocks, block_size) = (range.lba, u64::from(range.blocks), u64::from(unit.block_size()));
    match lba.checked_add(blocks) {
        Some(end) if end <= unit.blocks() => Ok(Extent { offset: lba * block_size, len: blocks * block_size }),
        _ => {
            let field = FieldPointer::data((list::HEADER_LEN + index * list::DESCRIPTOR_LEN) as u16);
            Err(SenseData::illegal_request(AdditionalSense::LBA_OUT_OF_RANGE).with_field(field))
        }
    }
}
