//! The body of a request: JSON of a bounded length that comes within a bounded time.

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::time::timeout;

use crate::limits::{BODY_TIMEOUT, MAX_BODY_BYTES};
use crate::problem::Problem;

/// A body that was read.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        // A page of another site cannot send this type without being asked first (CORS).
        if kind.is_none_or(|kind| kind.split(';').next().is_none_or(|kind| kind.trim() != "application/json")) {
            return Err(Problem::of_status(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "send the object as JSON, with Content-Type: application/json",
            ));
        }
        let bytes = read(request.into_body(), MAX_BODY_BYTES).await?;
        let value = serde_json::from_slice(&bytes).map_err(|error| match error.classify() {
            // It is JSON, and no object of this kind: a whole number that is written as 1.0, for example.
            Category::Data => Problem::invalid(error.to_string()),
            _ => Problem::bad_request(error.to_string()),
        })?;
        Ok(Self(value))
    }
}

/// Reads a body that has this length at most, within [`BODY_TIMEOUT`].
///
/// # Errors
///
/// When it is longer, or does not come.
pub async fn read(body: Body, most: usize) -> Result<axum::body::Bytes, Problem> {
    let late =
        || Problem::of_status(StatusCode::REQUEST_TIMEOUT, format!("the body did not come within {BODY_TIMEOUT:?}"));
    let long = |_| Problem::of_status(StatusCode::PAYLOAD_TOO_LARGE, format!("a body has {most} bytes at most"));
    timeout(BODY_TIMEOUT, to_bytes(body, most)).await.map_err(|_| late())?.map_err(long)
}
