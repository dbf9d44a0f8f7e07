//! What the server says of itself.

use std::fmt::Write as _;

use axum::Json as Answer;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::Shared;
use crate::problem::Problem;
use crate::server::Disk;

/// List the disks of all logical units, as they are served now
#[utoipa::path(
    get,
    path = "/v1/luns",
    tag = "luns",
    responses(
        (status = 200, body = Vec<Disk>),
    )
)]
pub(crate) async fn disks(State(shared): State<Shared>) -> Result<Answer<Vec<Disk>>, Problem> {
    shared.ask(|server| Ok(server.disks())).await.map(Answer)
}

/// Say that the API answers
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "status",
    security(()),
    responses((status = 200, body = String, content_type = "text/plain"))
)]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Say whether initiators are served
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "status",
    responses(
        (status = 200, body = String, content_type = "text/plain"),
    )
)]
pub(crate) async fn readyz(State(shared): State<Shared>) -> Result<&'static str, Problem> {
    shared.server.ready().map(|()| "ok\n").map_err(Problem::unavailable)
}

/// Read the numbers of the server, for Prometheus
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "status",
    responses(
        (status = 200, body = String, content_type = "text/plain"),
        (status = 404, description = "The server has none", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn metrics(State(shared): State<Shared>) -> Result<impl IntoResponse, Problem> {
    let text = shared.server.metrics().ok_or_else(|| Problem::not_found("metrics of this server"))?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

/// Read this description
#[utoipa::path(get, path = "/openapi.json", tag = "status", responses((status = 200, body = Object)))]
pub(crate) async fn describe(State(shared): State<Shared>) -> impl IntoResponse {
    let mut text = shared.description.to_string();
    // Writing to a string cannot fail.
    let _ = writeln!(text);
    ([(header::CONTENT_TYPE, "application/json")], text)
}
