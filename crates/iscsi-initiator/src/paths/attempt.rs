//! The meaning of a command's end for the path that it took.

use lunette_scsi::port_groups::AccessState;
use lunette_scsi::{AdditionalSense, SenseData, SenseKey};

use super::machine::action::AttemptResult;
use crate::Error;
use crate::request::Reply;

/// Tells whether a command was answered, and if not, what became of it.
pub(super) fn attempt_result(result: &Result<Reply, Error>) -> AttemptResult {
    match result {
        Ok(reply) if reply.sense.is_empty() => AttemptResult::Answered,
        Ok(reply) => match reply.sense_data() {
            Some(SenseData { key: SenseKey::NOT_READY, code, .. }) => {
                not_active(code).map_or(AttemptResult::Answered, AttemptResult::NotActive)
            }
            _ => AttemptResult::Answered,
        },
        Err(Error::TimedOut { .. } | Error::InDoubt { .. }) => AttemptResult::GivenUp,
        Err(
            Error::Lost { .. }
            | Error::Session { .. }
            | Error::Connect { .. }
            | Error::Redirected { .. }
            | Error::TooManyRedirects { .. }
            | Error::BadRedirect { .. }
            | Error::Closed,
        ) => AttemptResult::Lost,
        Err(_) => AttemptResult::Answered,
    }
}

/// The access state that refused a command (SPC-6 5.18.2.4).
fn not_active(code: AdditionalSense) -> Option<AccessState> {
    match code {
        AdditionalSense::PORT_IN_STANDBY_STATE => Some(AccessState::Standby),
        AdditionalSense::PORT_IN_UNAVAILABLE_STATE => Some(AccessState::Unavailable),
        AdditionalSense::ACCESS_STATE_TRANSITION => Some(AccessState::Transitioning),
        _ => None,
    }
}
