//! `/v1/pools`, `/v1/volumes` and `/v1/snapshots`.

pub(super) mod moving;

use std::sync::Arc;

use axum::Json as Answer;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::Shared;
use super::body::Json;
use super::path::Path;
use super::query::Query;
use crate::audit::AuditEntry;
use crate::callers::Caller;
use crate::jobs::Job;
use crate::problem::Problem;
use crate::server::Server;
use crate::volumes::{
    NewVolume, Pool, Snapshot, SnapshotOrder, SnapshotPath, Taken, Volume, VolumeChange, VolumePath, Volumes,
};

/// Which volumes are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfPool {
    /// The pool whose volumes are listed; all pools without it
    pool: Option<String>,
}

/// The pools of the server, or that it has none.
fn volumes_of(server: &dyn Server) -> Result<&dyn Volumes, Problem> {
    let none = "pool: its configuration has no [[pool]]";
    server.volumes().ok_or_else(|| Problem::not_found(none))
}

/// Asks the server something about volumes, which changes nothing.
async fn ask<T: Send + 'static>(
    shared: &Shared,
    ask: impl FnOnce(&dyn Volumes) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    shared.ask(move |server| ask(volumes_of(server)?)).await
}

/// Does something to volumes, and writes it to the audit log.
async fn act<T: Send + 'static>(
    shared: &Shared,
    caller: Caller,
    action: String,
    act: impl FnOnce(&dyn Volumes, &Caller) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let act = move |server: &dyn Server| {
        let done = act(volumes_of(server)?, &caller);
        let outcome = done.as_ref().map(drop).map_err(ToString::to_string);
        server.audit().record(AuditEntry::new(&caller, &action, outcome, Vec::new()));
        done
    };
    shared.ask(act).await
}

/// The body of a request, for the audit log.
fn wish(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("texts and numbers")
}

/// A job that was taken.
type Started = (StatusCode, [(HeaderName, String); 1], Answer<Job>);

fn started(job: &Arc<Job>) -> Started {
    let location = [(header::LOCATION, format!("/v1/jobs/{}", job.id))];
    (StatusCode::ACCEPTED, location, Answer(Job::clone(job)))
}

/// List the pools of volumes, with the quota of the client
#[utoipa::path(get, path = "/v1/pools", tag = "volumes", responses((status = 200, body = Vec<Pool>)))]
pub(crate) async fn list_pools(State(shared): State<Shared>, caller: Caller) -> Result<Answer<Vec<Pool>>, Problem> {
    let pools = move |server: &dyn Server| Ok(server.volumes().map(|all| all.pools(&caller)).unwrap_or_default());
    shared.ask(pools).await.map(Answer)
}

/// List the volumes
#[utoipa::path(
    get,
    path = "/v1/volumes",
    tag = "volumes",
    params(OfPool),
    responses(
        (status = 200, body = Vec<Volume>),
        (status = 404, description = "There is no such pool", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_volumes(
    State(shared): State<Shared>,
    Query(OfPool { pool }): Query<OfPool>,
) -> Result<Answer<Vec<Volume>>, Problem> {
    let list = move |server: &dyn Server| match (server.volumes(), pool) {
        (None, None) => Ok(Vec::new()),
        (_, pool) => volumes_of(server)?.volumes(pool.as_deref()),
    };
    shared.ask(list).await.map(Answer)
}

/// Read a volume, with the space that it occupies
#[utoipa::path(
    get,
    path = "/v1/volumes/{pool}/{volume}",
    tag = "volumes",
    params(VolumePath),
    responses((status = 200, body = Volume))
)]
pub(crate) async fn get_volume(
    State(shared): State<Shared>,
    Path(at): Path<VolumePath>,
) -> Result<Answer<Volume>, Problem> {
    ask(&shared, move |volumes| volumes.volume(&at)).await.map(Answer)
}

/// Create a volume, of zeroes or as a clone
#[utoipa::path(
    post,
    path = "/v1/volumes/{pool}/{volume}",
    tag = "volumes",
    params(VolumePath),
    request_body = NewVolume,
    responses(
        (status = 201, body = Volume),
        (status = 409, description = "There is one of the name, no space, or the client would be over its quota",
            body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create_volume(
    State(shared): State<Shared>,
    caller: Caller,
    Path(at): Path<VolumePath>,
    Json(new): Json<NewVolume>,
) -> Result<(StatusCode, Answer<Volume>), Problem> {
    let action = format!("create {at}: {}", wish(&new));
    let created = act(&shared, caller, action, move |volumes, caller| volumes.create(&at, new, caller)).await?;
    Ok((StatusCode::CREATED, Answer(created)))
}

/// Change a volume: its labels, its length, its name
///
/// A longer volume is seen at once by initiators. A volume that a logical unit uses gets neither shorter nor another
/// name.
#[utoipa::path(
    patch,
    path = "/v1/volumes/{pool}/{volume}",
    tag = "volumes",
    params(VolumePath),
    request_body = VolumeChange,
    responses(
        (status = 200, body = Volume),
        (status = 409, description = "It is in use, there is one of the name, or the client would be over its quota",
            body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn change_volume(
    State(shared): State<Shared>,
    caller: Caller,
    Path(at): Path<VolumePath>,
    Json(change): Json<VolumeChange>,
) -> Result<Answer<Volume>, Problem> {
    let action = format!("change {at}: {}", wish(&change));
    act(&shared, caller, action, move |volumes, caller| volumes.change(&at, change, caller)).await.map(Answer)
}

/// Remove a volume that no logical unit uses and that has no snapshots
#[utoipa::path(
    delete,
    path = "/v1/volumes/{pool}/{volume}",
    tag = "volumes",
    params(VolumePath),
    responses(
        (status = 204, description = "It is not there any more"),
        (status = 409, description = "It is in use, or has snapshots or clones",
            body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn remove_volume(
    State(shared): State<Shared>,
    caller: Caller,
    Path(at): Path<VolumePath>,
) -> Result<StatusCode, Problem> {
    let action = format!("remove {at}");
    act(&shared, caller, action, move |volumes, caller| volumes.remove(&at, caller)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Give a clone blocks of its own
#[utoipa::path(
    post,
    path = "/v1/volumes/{pool}/{volume}/actions/flatten",
    tag = "volumes",
    params(VolumePath),
    responses(
        (status = 202, body = Job, description = "The job was taken", headers(("Location" = String))),
        (status = 409, description = "It is being changed already",
            body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn flatten_volume(
    State(shared): State<Shared>,
    caller: Caller,
    Path(at): Path<VolumePath>,
) -> Result<Started, Problem> {
    let action = format!("flatten {at}");
    let job = act(&shared, caller, action, move |volumes, caller| volumes.flatten(&at, caller)).await?;
    Ok(started(&job))
}

/// List the snapshots of a volume, the oldest first
#[utoipa::path(
    get,
    path = "/v1/volumes/{pool}/{volume}/snapshots",
    tag = "volumes",
    params(VolumePath),
    responses((status = 200, body = Vec<Snapshot>))
)]
pub(crate) async fn list_snapshots(
    State(shared): State<Shared>,
    Path(at): Path<VolumePath>,
) -> Result<Answer<Vec<Snapshot>>, Problem> {
    ask(&shared, move |volumes| volumes.snapshots(&at)).await.map(Answer)
}

/// Take a snapshot of several volumes at one instant
///
/// Requests to their disks wait meanwhile. All snapshots are taken, or none.
#[utoipa::path(
    post,
    path = "/v1/snapshots",
    tag = "volumes",
    request_body = SnapshotOrder,
    responses(
        (status = 201, body = Taken),
        (status = 404, description = "There is no such volume",
            body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "There is one of the name, no space, or the file system has no reflinks",
            body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn take_snapshot(
    State(shared): State<Shared>,
    caller: Caller,
    Json(order): Json<SnapshotOrder>,
) -> Result<(StatusCode, Answer<Taken>), Problem> {
    let action = format!("snapshot {} of {}", order.name, order.volumes.join(", "));
    let taken = act(&shared, caller, action, move |volumes, caller| volumes.snapshot(order, caller)).await?;
    Ok((StatusCode::CREATED, Answer(taken)))
}

/// Remove a snapshot that no logical unit uses
#[utoipa::path(
    delete,
    path = "/v1/volumes/{pool}/{volume}/snapshots/{snapshot}",
    tag = "volumes",
    params(SnapshotPath),
    responses(
        (status = 204, description = "It is not there any more"),
        (status = 409, description = "It is in use, or has clones",
            body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn remove_snapshot(
    State(shared): State<Shared>,
    caller: Caller,
    Path(at): Path<SnapshotPath>,
) -> Result<StatusCode, Problem> {
    let action = format!("remove {at}");
    act(&shared, caller, action, move |volumes, caller| volumes.remove_snapshot(&at, caller)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Give a volume the content of a snapshot
///
/// Its content of before becomes a snapshot, which the result of the job names. Initiators are told that the medium has
/// changed.
#[utoipa::path(
    post,
    path = "/v1/volumes/{pool}/{volume}/snapshots/{snapshot}/actions/rollback",
    tag = "volumes",
    params(SnapshotPath),
    responses(
        (status = 202, body = Job, description = "The job was taken", headers(("Location" = String))),
        (status = 409, description = "It is being changed already, or the client would be over its quota",
            body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn roll_back(
    State(shared): State<Shared>,
    caller: Caller,
    Path(at): Path<SnapshotPath>,
) -> Result<Started, Problem> {
    let action = format!("roll back to {at}");
    let job = act(&shared, caller, action, move |volumes, caller| volumes.roll_back(&at, caller)).await?;
    Ok(started(&job))
}
