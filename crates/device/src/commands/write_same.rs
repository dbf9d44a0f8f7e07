//! WRITE SAME (SBC-4 5.50 and following).

use lunette_scsi::{FieldPointer, SenseData};

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::extent::Extent;
use crate::limits::MAX_CHUNK_BYTES;

const ANCHOR: u8 = 0x10;
const UNMAP: u8 = 0x08;
const NDOB: u8 = 0x01;

/// Executes WRITE SAME(10), (16) and (32).
///
/// In every case the blocks read afterwards as the block that was sent. With UNMAP, blocks of zeroes may lose their
/// space, and other blocks are written, which SBC-4 allows to every device. With ANCHOR the blocks keep or get space.
pub(crate) async fn write_same(cx: Cx) -> Reply {
    let unit = cx.unit()?;
    let unmap = cx.cdb.flag(UNMAP);
    if unmap && !unit.capabilities().unmap {
        return Err(FieldPointer::cdb(cx.cdb.flags_at()).bit(3).into());
    }
    let anchor = cx.cdb.flag(ANCHOR);
    if anchor && !(unmap && unit.anchors()) {
        return Err(FieldPointer::cdb(cx.cdb.flags_at()).bit(4).into());
    }
    // A reserved bit of the 10-byte form, which admission refuses there.
    let no_data = cx.cdb.flag(NDOB);
    let block = if no_data { None } else { Some(cx.exact_data_out(u64::from(unit.block_size())).await?) };
    match block {
        Some(block) if block.iter().any(|byte| *byte != 0) => repeat(&cx, cx.extent, &block).await?,
        _ => cx.write_zeroes(cx.extent, unmap && !anchor).await?,
    }
    Ok(None)
}

/// Fills `extent` with `block`, chunk by chunk from one buffer.
async fn repeat(cx: &Cx, extent: Extent, block: &[u8]) -> Result<(), SenseData> {
    let chunk_len = extent.len.min(cx.unit()?.whole_blocks(MAX_CHUNK_BYTES) as u64);
    let mut chunk = cx.buffer(chunk_len as usize).await?;
    for place in chunk.chunks_exact_mut(block.len()) {
        place.copy_from_slice(block);
    }
    let mut done = 0;
    while done < extent.len {
        chunk.truncate((extent.len - done).min(chunk_len) as usize);
        chunk = cx.write(extent.offset + done, chunk, false).await?;
        done += chunk.len() as u64;
    }
    Ok(())
}
