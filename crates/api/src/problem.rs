//! Errors as the API tells them: RFC 9457, `application/problem+json`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error with its reason and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{title}: {detail}")]
pub struct Problem {
    /// The status code of HTTP.
    #[schema(example = 412)]
    pub status: u16,
    /// The kind of error, in a few words.
    #[schema(example = "the object has changed")]
    pub title: String,
    /// The reason and the remedy in this case.
    #[schema(example = "its ETag is \"8f1d\"; read it again and repeat the change")]
    pub detail: String,
}

impl Problem {
    /// The title of [`Problem::in_use`].
    pub const IN_USE: &str = "in use";

    /// The title of [`Problem::over_quota`].
    pub const OVER_QUOTA: &str = "over quota";

    fn new(status: StatusCode, title: &str, detail: impl Into<String>) -> Self {
        Self { status: status.as_u16(), title: title.into(), detail: detail.into() }
    }

    /// The request cannot be understood.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "the request cannot be understood", detail)
    }

    /// The client is not known, or has not said who it is.
    pub fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "a token is needed", detail)
    }

    /// The client is known, and may not do this.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "this client may not do that", detail)
    }

    /// The change would take away what sessions use.
    pub fn in_use(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, Self::IN_USE, detail)
    }

    /// The client would have more than it may have.
    pub fn over_quota(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, Self::OVER_QUOTA, detail)
    }

    /// An object that does not exist.
    pub fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not found", format!("there is no {what}"))
    }

    /// The change contradicts what is served.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "the change cannot be made", detail)
    }

    /// A precondition (If-Match, If-None-Match) does not hold.
    pub fn changed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "the object has changed", detail)
    }

    /// The object has a mistake.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "the object has a mistake", detail)
    }

    /// The server cannot do it now.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not available now", detail)
    }

    /// A failure of the server itself.
    pub fn internal(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the server has failed", detail)
    }

    /// For a status that a library has chosen.
    pub(crate) fn of_status(status: StatusCode, detail: impl Into<String>) -> Self {
        Self::new(status, status.canonical_reason().unwrap_or("error"), detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = HeaderValue::from_static("application/problem+json");
        // A structure of numbers and texts becomes JSON.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        (status, [(header::CONTENT_TYPE, kind)], body).into_response()
    }
}
