//! `/v1/volumes/{pool}/{volume}/filling`, and the changes between two snapshots.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::super::Shared;
use super::super::body::Json;
use super::super::path::Path;
use super::super::query::Query;
use super::{act, ask, wish};
use crate::callers::Caller;
use crate::problem::Problem;
use crate::volumes::{Changes, FillOrder, Filling, FillingEnd, FillingStep, SnapshotPath, Volume, VolumePath};

/// Which changes are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Between {
    /// An earlier snapshot; without it, all that is not known to be zeroes is listed
    since: Option<String>,
    /// The offset from which on to list
    #[serde(default)]
    from: u64,
}

/// Which filling is undone.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfClient {
    /// The proof of the client that fills the volume
    #[param(required = true)]
    token: String,
}

/// List the changes between two snapshots, or the content of one
#[utoipa::path(
    get,
    path = "/v1/volumes/{pool}/{volume}/snapshots/{snapshot}/changes",
    tag = "volumes",
    params(SnapshotPath, Between),
    responses((status = 200, body = Changes))
)]
pub(crate) async fn list_changes(
    State(shared): State<Shared>,
    Path(at): Path<SnapshotPath>,
    Query(Between { since, from }): Query<Between>,
) -> Result<Answer<Changes>, Problem> {
    ask(&shared, move |volumes| volumes.changes(&at, since.as_deref(), from)).await.map(Answer)
}

/// Begin to fill a volume, a new one or with what was changed since a snapshot
///
/// The client writes the content to `place`, on the machine of the server. Until the end nothing else opens the volume.
#[utoipa::path(
    post,
    path = "/v1/volumes/{pool}/{volume}/filling",
    tag = "volumes",
    params(VolumePath),
    request_body = FillOrder,
    responses(
        (status = 201, body = Filling),
        (status = 409, description = "It is in use or filled already, was changed, has not the snapshot, or the client would be over its quota",
            body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn fill(
    State(shared): State<Shared>,
    caller: Caller,
    Path(at): Path<VolumePath>,
    Json(order): Json<FillOrder>,
) -> Result<(StatusCode, Answer<Filling>), Problem> {
    let action = format!("fill {at}: {}", wish(&order));
    let filling = act(&shared, caller, action, move |volumes, caller| volumes.fill(&at, order, caller)).await?;
    Ok((StatusCode::CREATED, Answer(filling)))
}

/// Keep how far a filling is
#[utoipa::path(
    patch,
    path = "/v1/volumes/{pool}/{volume}/filling",
    tag = "volumes",
    params(VolumePath),
    request_body = FillingStep,
    responses((status = 204, description = "It is kept"))
)]
pub(crate) async fn keep_filling(
    State(shared): State<Shared>,
    caller: Caller,
    Path(at): Path<VolumePath>,
    Json(step): Json<FillingStep>,
) -> Result<StatusCode, Problem> {
    ask(&shared, move |volumes| volumes.keep_filling(&at, step, &caller)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Undo a filling: a new volume goes, and another one has the content of before
#[utoipa::path(
    delete,
    path = "/v1/volumes/{pool}/{volume}/filling",
    tag = "volumes",
    params(VolumePath, OfClient),
    responses(
        (status = 204, description = "It is undone"),
        (status = 409, description = "Another client fills it, or the client would be over its quota",
            body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn undo_filling(
    State(shared): State<Shared>,
    caller: Caller,
    Path(at): Path<VolumePath>,
    Query(OfClient { token }): Query<OfClient>,
) -> Result<StatusCode, Problem> {
    let action = format!("undo the filling of {at}");
    act(&shared, caller, action, move |volumes, caller| volumes.undo_filling(&at, &token, caller)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// End a filling: the volume has its content, and the snapshot of it
#[utoipa::path(
    post,
    path = "/v1/volumes/{pool}/{volume}/filling/actions/end",
    tag = "volumes",
    params(VolumePath),
    request_body = FillingEnd,
    responses((status = 200, body = Volume))
)]
pub(crate) async fn end_filling(
    State(shared): State<Shared>,
    caller: Caller,
    Path(at): Path<VolumePath>,
    Json(end): Json<FillingEnd>,
) -> Result<Answer<Volume>, Problem> {
    let action = format!("end the filling of {at}");
    act(&shared, caller, action, move |volumes, caller| volumes.end_filling(&at, end, caller)).await.map(Answer)
}
