//! RESERVE and RELEASE of the whole logical unit (SPC-2 7.21, 7.22, and 7.16, 7.17).

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::reservations::{Refusal, ReservationRequest};

/// Executes RESERVE(6) and (10).
pub(crate) fn reserve(cx: &Cx) -> Reply {
    execute(cx, &ReservationRequest::LegacyReserve)
}

/// Executes RELEASE(6) and (10).
pub(crate) fn release(cx: &Cx) -> Reply {
    execute(cx, &ReservationRequest::LegacyRelease)
}

/// Executes the request without saving it: these reservations end with the nexus.
fn execute(cx: &Cx, request: &ReservationRequest) -> Reply {
    match cx.unit()?.reservations().execute_unsaved(&cx.nexus.it_nexus, request) {
        Ok(_) => Ok(None),
        Err(Refusal::Conflict) => cx.conflict(),
        Err(Refusal::Check(sense)) => Err(sense),
    }
}
