//! SYNCHRONIZE CACHE (SBC-4 5.33).

use crate::commands::context::Cx;
use crate::coroutine::Reply;

/// SYNCHRONIZE CACHE(10) and (16). A store flushes as a whole, so the range is only checked. IMMED would allow to answer
/// before the end; the answer after it is the stronger one.
pub(crate) async fn synchronize_cache(cx: Cx) -> Reply {
    cx.flush().await?;
    Ok(None)
}
