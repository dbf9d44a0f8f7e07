//! TEST UNIT READY (SPC-5 6.47).

use crate::commands::context::Cx;
use crate::coroutine::Reply;

/// The gate has found the unit and reported what was pending: a disk that is there is ready.
pub(crate) fn test_unit_ready(cx: &Cx) -> Reply {
    cx.unit()?;
    Ok(None)
}
