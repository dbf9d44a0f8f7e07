//! SYNCHRONIZE CACHE (SBC-4 5.33).

use crate::commands::context::Cx;
use crate::coroutine::Reply;

/// Executes SYNCHRONIZE CACHE(10) and (16). A store flushes as a whole, so the range is only checked. With IMMED, too,
/// the response comes after the flush, which SBC-4 allows and which promises more.
pub(crate) async fn synchronize_cache(cx: Cx) -> Reply {
    cx.flush().await?;
    Ok(None)
}
