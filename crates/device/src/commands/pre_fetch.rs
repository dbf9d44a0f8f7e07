//! PRE-FETCH (SBC-4 5.16, 5.17).

use lunette_scsi::Status;

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::limits::{MAX_CHUNK_BYTES, MAX_TRANSFER_BYTES};

/// Executes PRE-FETCH(10) and (16). CONDITION MET reports that all the blocks are cached.
///
/// The blocks are read and dropped, up to MAXIMUM TRANSFER LENGTH, because the operating system caches what was read
/// last. A store in memory has nothing to fetch. With IMMED, too, the response comes after the reads, which SBC-4
/// allows and which promises more.
pub(crate) async fn pre_fetch(cx: Cx) -> Reply {
    let unit = cx.unit()?;
    let len = cx.extent.len.min(unit.whole_blocks(MAX_TRANSFER_BYTES) as u64);
    let in_memory = unit.capabilities().memory;
    if !in_memory && len > 0 {
        let chunk_len = len.min(unit.whole_blocks(MAX_CHUNK_BYTES) as u64);
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
