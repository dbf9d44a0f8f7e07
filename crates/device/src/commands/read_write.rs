//! READ and WRITE (SBC-4 5.13 and following), the fast path: one buffer, and one request to the store.

use lunette_buffer::Payload;
use lunette_scsi::OpCode;

use super::FUA;
use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::extent::Extent;

/// Executes READ(6), (10), (12), (16) and (32).
///
/// FUA requires newer data in a cache to reach the medium before it is read. A store is coherent: every read returns
/// every acknowledged write, wherever the bytes are. Data that is not on stable storage is reported by WCE and flushed
/// by SYNCHRONIZE CACHE. So a FUA read needs no flush to return the right bytes.
pub(crate) async fn read(cx: Cx) -> Reply {
    if cx.extent.len == 0 {
        return Ok(None);
    }
    if let Some(quanta) = cx.unit()?.quanta() {
        if quanta.doubts() {
            return Box::pin(checked_read(cx)).await;
        }
        cx.channel.know_digests(quanta.digests(cx.extent.offset));
    }
    if let Some(slice) = cx.file_slice().await? {
        cx.channel.reply(Payload::File(slice));
        return Ok(None);
    }
    let buffer = cx.buffer(cx.extent.len as usize).await?;
    cx.read_for_reply(cx.extent.offset, buffer).await
}

/// READ of quanta on a unit that doubts its medium: none is returned that is damaged.
async fn checked_read(cx: Cx) -> Reply {
    let Extent { offset, len } = cx.extent;
    let buffer = cx.buffer(len as usize).await?;
    let buffer = cx.read(offset, buffer).await?;
    if let Some(quanta) = cx.unit()?.quanta() {
        quanta.check_read(offset, &buffer)?;
        cx.channel.know_digests(quanta.digests(offset));
    }
    Ok(Some(buffer))
}

/// Executes WRITE ATOMIC(16) and (32). Other commands see the blocks before or after the write, never between.
pub(crate) async fn write_atomic(cx: Cx) -> Reply {
    if cx.extent.len == 0 {
        return Ok(None);
    }
    let data = cx.exact_data_out(cx.extent.len).await?;
    cx.claim_exclusively(cx.extent).await?;
    cx.write(cx.extent.offset, data, cx.cdb.flag(FUA)).await?;
    Ok(None)
}

/// Executes WRITE(6), (10), (12), (16) and (32). Of a Data-Out shorter than the CDB announces, the whole blocks are
/// written.
pub(crate) async fn write(cx: Cx) -> Reply {
    let block_size = cx.unit()?.block_size();
    if let Some(data) = cx.data_out(cx.extent.len, block_size).await? {
        let fua = cx.cdb.opcode() != OpCode::WRITE_6 && cx.cdb.flag(FUA);
        cx.write(cx.extent.offset, data, fua).await?;
    }
    Ok(None)
}
