//! ORWRITE (SBC-4 5.15).

use super::FUA;
use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::extent::Extent;

/// Executes ORWRITE(16): the Data-Out is combined with the blocks on the medium by OR, atomically for other commands.
pub(crate) async fn or_write(cx: Cx) -> Reply {
    let block_size = cx.unit()?.block_size();
    let Some(data) = cx.data_out(cx.extent.len, block_size).await? else { return Ok(None) };
    let extent = Extent { offset: cx.extent.offset, len: data.len() as u64 };
    let blocks = cx.buffer(data.len()).await?;
    cx.claim_exclusively(extent).await?;
    let mut blocks = cx.read(extent.offset, blocks).await?;
    for (byte, new) in blocks.iter_mut().zip(data.iter()) {
        *byte |= new;
    }
    cx.write(extent.offset, blocks, cx.cdb.flag(FUA)).await?;
    Ok(None)
}
