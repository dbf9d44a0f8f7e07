//! TEST UNIT READY (SPC-5 6.47).

use crate::commands::context::Cx;
use crate::coroutine::Reply;

/// Executes TEST UNIT READY. Admission has made all checks: a unit that passed them is ready.
pub(crate) fn test_unit_ready(cx: &Cx) -> Reply {
    cx.unit()?;
    Ok(None)
}
