//! Errors of the server as errors of gRPC.

use lunette_api::Problem;
use lunette_api::client::ClientError;
use tonic::{Code, Status};

/// Parts of the messages of conflicts, and their codes. The first row that fits decides. A conflict without a row is a
/// condition that has to be ended first.
const CONFLICTS: [(&str, Code); 5] = [
    ("the pool is full", Code::ResourceExhausted),
    ("takes no more", Code::ResourceExhausted),
    ("; remove one first", Code::ResourceExhausted),
    ("already; choose another name", Code::AlreadyExists),
    ("try again", Code::Aborted),
];

/// The status of a request that the server has refused, or that has not reached it.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn refused(error: ClientError) -> Status {
    let code = match &error {
        ClientError::Connect { .. } | ClientError::Lost(_) | ClientError::Late(_) => Code::Unavailable,
        ClientError::Token { .. } | ClientError::Certificate(_) => Code::Unauthenticated,
        ClientError::Refused(problem) => code(problem),
        _ => Code::Internal,
    };
    Status::new(code, error.to_string())
}

/// Whether the server has not what was asked for.
pub(crate) fn is_missing(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(problem) if problem.status == 404)
}

/// Whether the condition of a change does not hold.
pub(crate) fn has_changed(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(problem) if problem.status == 412)
}

fn code(problem: &Problem) -> Code {
    match problem.status {
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        409 if problem.title == Problem::OVER_QUOTA => Code::ResourceExhausted,
        409 => {
            let row = CONFLICTS.iter().find(|(text, _)| problem.detail.contains(text));
            row.map_or(Code::FailedPrecondition, |(_, code)| *code)
        }
        412 => Code::Aborted,
        422 => Code::InvalidArgument,
        503 => Code::Unavailable,
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_code_that_tells_the_caller_what_to_do() {
        for (problem, expected) in [
            (Problem::not_found("volume db"), Code::NotFound),
            (Problem::over_quota("x"), Code::ResourceExhausted),
            (Problem::conflict("the pool is full; remove volumes"), Code::ResourceExhausted),
            (Problem::conflict("there are 16384 objects; remove one first"), Code::ResourceExhausted),
            (Problem::conflict("there is a volume a already; choose another name"), Code::AlreadyExists),
            (Problem::in_use("volume tank/a is being opened or closed; try again in a moment"), Code::Aborted),
            (Problem::in_use("LUN 0: in use by session 1"), Code::FailedPrecondition),
            (Problem::changed("x"), Code::Aborted),
            (Problem::invalid("x"), Code::InvalidArgument),
            (Problem::forbidden("x"), Code::PermissionDenied),
            (Problem::unavailable("x"), Code::Unavailable),
            (Problem::internal("x"), Code::Internal),
        ] {
            let status = refused(ClientError::Refused(problem.clone()));
            assert_eq!(status.code(), expected, "{problem}");
            assert!(status.message().contains(&problem.detail), "{status}");
        }
    }
}
