//! `/v1/sessions`.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::Shared;
use super::path::Path;
use crate::problem::Problem;
use crate::server::{Server, Session};

fn number(id: &str) -> Result<u16, Problem> {
    id.parse().map_err(|_| Problem::bad_request(format!("{id:?} is not the number of a session")))
}

fn missing(id: u16) -> Problem {
    Problem::not_found(&format!("session {id}"))
}

/// List the sessions
#[utoipa::path(
    get,
    path = "/v1/sessions",
    tag = "sessions",
    responses(
        (status = 200, body = Vec<Session>),
    )
)]
pub(crate) async fn list_sessions(State(shared): State<Shared>) -> Result<Answer<Vec<Session>>, Problem> {
    shared.ask(Server::sessions).await.map(Answer)
}

/// Read a session
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}",
    tag = "sessions",
    params(("session" = u16, Path, maximum = 65535, description = "The number of the session")),
    responses(
        (status = 200, body = Session),
    )
)]
pub(crate) async fn get_session(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Answer<Session>, Problem> {
    let id = number(&id)?;
    let all = shared.ask(Server::sessions).await?;
    all.into_iter().find(|session| session.id == id).map(Answer).ok_or_else(|| missing(id))
}

/// End a session
///
/// Its initiator is asked to log out, and has 3 s for it. It may log in again at once: `allow` and hosts keep initiators out.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session}",
    tag = "sessions",
    params(("session" = u16, Path, maximum = 65535, description = "The number of the session")),
    responses(
        (status = 202, description = "Its initiator was asked to log out"),
    )
)]
pub(crate) async fn end_session(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, Problem> {
    let id = number(&id)?;
    let is_there = shared.ask(move |server| server.end_session(id)).await?;
    if is_there { Ok(StatusCode::ACCEPTED.into_response()) } else { Err(missing(id)) }
}
