//! Errors as `rbd-target-api` tells them: a status, and an object with a `message`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lunette_api::Problem;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The reason why a call is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl Refusal {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status: status.as_u16(), message: message.into() }
    }

    /// The call contradicts the configuration, or asks for what there is not.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Something that is not there.
    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// A failure of the gateway. `rbd-target-api` counts wrong names and controls among them.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// A gateway or the cluster cannot be reached.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        // A conflict or a mistake is the client's matter, for which there is one status here.
        let is_fault = |status: u16| (500..600).contains(&status) || status == 401;
        let status = if is_fault(problem.status) { problem.status } else { StatusCode::BAD_REQUEST.as_u16() };
        Self { status, message: problem.detail }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(json!({ "message": self.message }))).into_response()
    }
}
