//! PRE-FETCH (SBC-4 5.16, 5.17).

use lunette_scsi::Status;

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::limits::{MAX_CHUNK_BYTES, MAX_TRANSFER_BYTES};

/// PRE-FETCH(10) and (16). CONDITION MET says that all the blocks are at hand.
///
/// The system keeps what was read last in memory, so the blocks are read and forgotten: as many as one READ may ask for.
/// Those of a store in memory are there already. IMMED would allow to answer before; the answer after it is the stronger
/// one.
pub(crate) async fn pre_fetch(cx: Cx) -> Reply {
    let len = cx.extent.len.min(MAX_TRANSFER_BYTES as u64);
    let in_memory = cx.unit()?.capabilities().memory;
    if !in_memory && len > 0 {
        let chunk_len = len.min(MAX_CHUNK_BYTES as u64);
        let mut chunk = cx.buffer(chunk_len as usize).await?;
        let mut done = 0;
        while done < len {
            chunk.truncate((len - done).min(chunk_len) as usize);
            chunk = cx.read(cx.extent.offset + done, chunk).await?;
            done += chunk.len() as u64;
        }
    }
    if in_memory || len == cx.extent.len {
        cx.channel.end_with(Status::CONDITION_MET, 0);
    }
    Ok(None)
}
