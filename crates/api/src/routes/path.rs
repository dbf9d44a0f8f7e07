//! The names in the path of a request.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// Names that were decoded.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let names = axum::extract::Path::from_request_parts(parts, state).await;
        names.map(|axum::extract::Path(names)| Self(names)).map_err(|error| Problem::bad_request(error.body_text()))
    }
}
