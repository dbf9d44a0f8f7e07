//! RESERVE and RELEASE (SPC-2 7.21, 7.22, and 7.16, 7.17): the whole logical unit, for the nexus that asks.

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::reservations::{Refusal, ReservationRequest};

/// RESERVE(6) and (10).
pub(crate) fn reserve(cx: &Cx) -> Reply {
    execute(cx, &ReservationRequest::LegacyReserve)
}

/// RELEASE(6) and (10).
pub(crate) fn release(cx: &Cx) -> Reply {
    execute(cx, &ReservationRequest::LegacyRelease)
}

/// These reservations do not outlive the nexus: nothing of them is kept, whatever is kept of registrations.
fn execute(cx: &Cx, request: &ReservationRequest) -> Reply {
    match cx.unit()?.reservations().execute(&cx.nexus.it_nexus, request) {
        Ok(_) => Ok(None),
        Err(Refusal::Conflict) => cx.conflict(),
        Err(Refusal::Check(sense)) => Err(sense),
    }
}
