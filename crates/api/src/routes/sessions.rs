//! `/v1/sessions`.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::Shared;
use super::path::Path;
use crate::callers::Caller;
use crate::problem::Problem;
use crate::server::{Server, Session};

fn number(id: &str) -> Result<u16, Problem> {
    id.parse().map_err(|_| Problem::bad_request(format!("{id:?} is not the number of a session")))
}

fn missing(id: u16) -> Problem {
    Problem::not_found(&format!("session {id}"))
}

/// The sessions that a client may see.
async fn seen(shared: &Shared, caller: &Caller) -> Result<Vec<Session>, Problem> {
    let mut sessions = shared.ask(Server::sessions).await?;
    sessions.retain(|session| caller.sees(session.target.as_deref()));
    Ok(sessions)
}

async fn find(shared: &Shared, caller: &Caller, id: u16) -> Result<Session, Problem> {
    seen(shared, caller).await?.into_iter().find(|session| session.id == id).ok_or_else(|| missing(id))
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
pub(crate) async fn list_sessions(
    State(shared): State<Shared>,
    caller: Caller,
) -> Result<Answer<Vec<Session>>, Problem> {
    seen(&shared, &caller).await.map(Answer)
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
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Answer<Session>, Problem> {
    find(&shared, &caller, number(&id)?).await.map(Answer)
}

/// End a session
///
/// Its initiator is asked to log out, and has 3 s for it. It may log in again at once: `allow` and hosts keep
/// initiators out.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session}",
    tag = "sessions",
    params(("session" = u16, Path, maximum = 65535, description = "The number of the session")),
    responses(
        (status = 202, description = "Its initiator was asked to log out"),
    )
)]
pub(crate) async fn end_session(
    State(shared): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = number(&id)?;
    if caller.targets.is_some() {
        find(&shared, &caller, id).await?;
    }
    let is_there = shared.ask(move |server| server.end_session(id, &caller)).await?;
    if is_there { Ok(StatusCode::ACCEPTED.into_response()) } else { Err(missing(id)) }
}
