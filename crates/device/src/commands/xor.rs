//! XDWRITEREAD (SBC-3), the command with data in both directions.

use super::FUA;
use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::extent::Extent;

/// DISABLE WRITE: the medium is not changed.
const DISABLE_WRITE: u8 = 0x04;

/// Executes XDWRITEREAD(10): the Data-Out replaces the blocks on the medium, and the Data-In is the exclusive or of
/// both, for parity, atomically for other commands. Of a Data-Out shorter than the CDB announces, the whole blocks
/// count.
pub(crate) async fn xdwriteread(cx: Cx) -> Reply {
    let block_size = cx.unit()?.block_size();
    let Some(data) = cx.data_out(cx.extent.len, block_size).await? else { return Ok(None) };
    let extent = Extent { offset: cx.extent.offset, len: data.len() as u64 };
    let blocks = cx.buffer(data.len()).await?;
    cx.claim_exclusively(extent).await?;
    let mut difference = cx.read(extent.offset, blocks).await?;
    for (byte, new) in difference.iter_mut().zip(data.iter()) {
        *byte ^= new;
    }
    if !cx.cdb.bit(1, DISABLE_WRITE) {
        cx.write(extent.offset, data, cx.cdb.flag(FUA)).await?;
    }
    Ok(Some(difference))
}
