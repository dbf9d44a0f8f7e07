//! COMPARE AND WRITE (SBC-4 5.3).

use lunette_scsi::{AdditionalSense, FieldPointer, SenseData, SenseKey};

use super::FUA;
use super::verify::first_difference;
use crate::commands::context::Cx;
use crate::coroutine::Reply;

const NUMBER_OF_BLOCKS: FieldPointer = FieldPointer::cdb(13);

/// Executes COMPARE AND WRITE. The first half of the Data-Out is compared with the medium, and the second half is
/// written when they are equal, atomically for other commands. INFORMATION of a miscompare is the offset of the first
/// byte that differs.
pub(crate) async fn compare_and_write(cx: Cx) -> Reply {
    let extent = cx.extent;
    // A number of blocks that exceeds its one-byte field shows here: the rest of it does not match the Data-Out.
    if u64::from(cx.data_out_len) != 2 * extent.len {
        return Err(NUMBER_OF_BLOCKS.into());
    }
    if extent.len == 0 {
        return Ok(None);
    }
    let data = cx.exact_data_out(2 * extent.len).await?;
    let (expected, new) = data.split_at(extent.len as usize);
    let blocks = cx.buffer(expected.len()).await?;
    cx.claim_exclusively(extent).await?;
    let mut blocks = cx.read(extent.offset, blocks).await?;
    if let Some(at) = first_difference(&blocks, expected) {
        let sense = SenseData::new(SenseKey::MISCOMPARE, AdditionalSense::MISCOMPARE_DURING_VERIFY);
        return Err(sense.with_information(at as u64));
    }
    blocks.copy_from_slice(new);
    cx.write(extent.offset, blocks, cx.cdb.flag(FUA)).await?;
    Ok(None)
}
