//! READ and WRITE (SBC-4 5.13 and following): the fast path. One buffer, one request to the store.

use lunette_scsi::OpCode;

use super::FUA;
use crate::command::InPlace;
use crate::commands::context::Cx;
use crate::coroutine::Reply;

/// READ(6), (10), (12), (16), (32).
///
/// FUA asks that newer data in a cache go to the medium before it is read. A store is coherent: every read sees every
/// acknowledged write, wherever its bytes are, and what is not yet on stable storage is reported as WCE and flushed on
/// SYNCHRONIZE CACHE. So a FUA read needs no flush to return the right bytes.
pub(crate) async fn read(cx: Cx) -> Reply {
    if cx.extent.len == 0 {
        return Ok(None);
    }
    if let Some(slice) = cx.file_slice().await? {
        cx.channel.reply_in_place(InPlace::File(slice));
        return Ok(None);
    }
    let buffer = cx.buffer(cx.extent.len as usize).await?;
    cx.read_for_reply(cx.extent.offset, buffer).await
}

/// WRITE ATOMIC(16), (32). Other commands see the blocks before the write or after it, and nothing between.
pub(crate) async fn write_atomic(cx: Cx) -> Reply {
    if cx.extent.len == 0 {
        return Ok(None);
    }
    let data = cx.exact_data_out(cx.extent.len).await?;
    cx.claim_exclusively(cx.extent).await?;
    cx.write(cx.extent.offset, data, cx.cdb.flag(FUA)).await?;
    Ok(None)
}

/// WRITE(6), (10), (12), (16), (32). Of a Data-Out shorter than the CDB says, the whole blocks are written.
pub(crate) async fn write(cx: Cx) -> Reply {
    let block_size = cx.unit()?.block_size();
    if let Some(data) = cx.data_out(cx.extent.len, block_size).await? {
        let fua = cx.cdb.opcode() != OpCode::WRITE_6 && cx.cdb.flag(FUA);
        cx.write(cx.extent.offset, data, fua).await?;
    }
    Ok(None)
}
