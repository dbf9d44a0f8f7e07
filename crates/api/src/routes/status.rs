//! The status of the server.

use std::fmt::Write as _;

use axum::Json as Answer;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::{Shared, Sight};
use crate::callers::Caller;
use crate::health::Trouble;
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
pub(crate) async fn disks(State(shared): State<Shared>, caller: Caller) -> Result<Answer<Vec<Disk>>, Problem> {
    let mut disks = shared.ask(|server| Ok(server.disks())).await?;
    disks.retain(|disk| caller.sees(Some(&disk.target)));
    Ok(Answer(disks))
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

/// Say whether initiators are served, and what of the configuration is not
///
/// The server is ready while one object is in trouble, because all others are served. The text names each that is, as
/// far as the client may see it.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "status",
    responses(
        (status = 200, body = String, content_type = "text/plain"),
    )
)]
pub(crate) async fn readyz(Sight(server): Sight) -> Result<String, Problem> {
    server.ready().map_err(Problem::unavailable)?;
    let troubles = server.troubles();
    let mut text = if troubles.is_empty() { "ok\n".to_owned() } else { "degraded\n".into() };
    for trouble in troubles {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{trouble}");
    }
    Ok(text)
}

/// List what is not served as the configuration says
#[utoipa::path(get, path = "/v1/health", tag = "status", responses((status = 200, body = Vec<Trouble>)))]
pub(crate) async fn health(Sight(server): Sight) -> Answer<Vec<Trouble>> {
    Answer(server.troubles())
}

/// Read the numbers of the server, for Prometheus
///
/// A client of some targets reads theirs alone.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "status",
    responses(
        (status = 200, body = String, content_type = "text/plain"),
        (status = 404, description = "The server has none", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn metrics(Sight(server): Sight) -> Result<impl IntoResponse, Problem> {
    let text = server.metrics().ok_or_else(|| Problem::not_found("metrics of this server"))?;
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
