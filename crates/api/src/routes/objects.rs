//! `/v1/targets` and `/v1/portals`.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::body::Json;
use super::path::Path;
use super::query::{How, Query};
use super::{Done, NewOnly, Shared, precondition, tagged};
use crate::callers::Caller;
use crate::edits;
use crate::objects::{Document, Key, Kind, etag};
use crate::problem::Problem;
use crate::server::{Origin, Plan};

/// A target, with the keys of `[[target]]`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(value_type = Object)]
pub(crate) struct Target(Document);

/// A portal, with the keys of `[[portal]]`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(value_type = Object)]
pub(crate) struct Portal(Document);

/// An entry of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Entry {
    /// The name of the object.
    name: String,
    /// The file that it stands in.
    origin: Origin,
    /// The ETag of the object.
    #[schema(example = "\"8f1d2c3b4a596877\"")]
    etag: String,
    /// All of it.
    #[schema(value_type = Object)]
    object: Value,
}

/// A target, or what a dry run says.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "a schema")]
pub(crate) enum TargetOrPlan {
    Target(Target),
    Plan(Plan),
}

/// A portal, or what a dry run says.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "a schema")]
pub(crate) enum PortalOrPlan {
    Portal(Portal),
    Plan(Plan),
}

/// The name of an object that may be there.
pub(super) fn key(kind: Kind, name: &str) -> Result<Key, Problem> {
    Key::new(kind, name).map_err(|why| Problem::not_found(&format!("such {}: {why}", kind.table())))
}

fn list(shared: &Shared, caller: &Caller, kind: Kind) -> Answer<Vec<Entry>> {
    let catalog = shared.server.catalog();
    let entry = |(name, document, origin): (&str, &Document, Origin)| {
        let object = Value::Object(document.clone());
        Entry { name: name.into(), origin, etag: etag(&object), object }
    };
    Answer(catalog.of(kind).filter(|(name, ..)| caller.sees(Some(name))).map(entry).collect())
}

fn get(shared: &Shared, caller: &Caller, kind: Kind, name: &str) -> Result<Response, Problem> {
    caller.check_target(Some(name))?;
    let key = key(kind, name)?;
    let catalog = shared.server.catalog();
    let document = catalog.find(&key).ok_or_else(|| Problem::not_found(&key.to_string()))?;
    Ok(tagged(StatusCode::OK, document))
}

/// A change that a request asks for.
pub(super) struct Asked {
    pub(super) caller: Caller,
    pub(super) how: How,
    pub(super) headers: HeaderMap,
}

async fn put(
    shared: &Shared,
    kind: Kind,
    name: &str,
    Asked { caller, how, headers }: Asked,
    document: Document,
) -> Result<Response, Problem> {
    let key = Key::new(kind, name).map_err(Problem::invalid)?;
    let when = precondition(&headers)?;
    let wanted = key.clone();
    let was_there = shared.server.catalog().find(&key).is_some();
    match shared.change(caller, how, move |catalog| edits::put(catalog, &wanted, document, &when)).await? {
        Done::Planned(plan) => Ok(Answer(plan).into_response()),
        Done::Changed(changed) => {
            let status = if was_there { StatusCode::OK } else { StatusCode::CREATED };
            let document = changed.catalog.find(&key).ok_or_else(|| Problem::not_found(&key.to_string()))?;
            Ok(tagged(status, document))
        }
    }
}

async fn delete(shared: &Shared, kind: Kind, name: &str, asked: Asked) -> Result<Response, Problem> {
    let (key, when) = (key(kind, name)?, precondition(&asked.headers)?);
    let done = shared.change(asked.caller, asked.how, move |catalog| edits::delete(catalog, &key, &when)).await?;
    Ok(removed(done))
}

/// The answer to a DELETE.
pub(super) fn removed(done: Done) -> Response {
    match done {
        Done::Planned(plan) => Answer(plan).into_response(),
        Done::Changed(_) => StatusCode::NO_CONTENT.into_response(),
    }
}

/// List the targets
#[utoipa::path(get, path = "/v1/targets", tag = "targets", responses((status = 200, body = Vec<Entry>)))]
pub(crate) async fn list_targets(State(shared): State<Shared>, caller: Caller) -> Answer<Vec<Entry>> {
    list(&shared, &caller, Kind::Target)
}

/// Read a target
#[utoipa::path(
    get,
    path = "/v1/targets/{target}",
    tag = "targets",
    params(("target" = String, Path, description = "Its iSCSI name", example = "iqn.2026-11.org.example:db")),
    responses(
        (status = 200, body = Target, headers(("ETag" = String))),
    )
)]
pub(crate) async fn get_target(
    State(shared): State<Shared>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    get(&shared, &caller, Kind::Target, &name)
}

/// Add or replace a target
#[utoipa::path(
    put,
    path = "/v1/targets/{target}",
    tag = "targets",
    params(
        ("target" = String, Path, description = "Its iSCSI name", example = "iqn.2026-11.org.example:db"),
        ("If-Match" = String, Header, description = "Only when its ETag is this one"),
        ("If-None-Match" = NewOnly, Header, description = "Only when it is not there yet"),
        How,
    ),
    request_body = Target,
    responses(
        (status = 200, description = "It was there, or this is a dry run", body = TargetOrPlan, headers(("ETag" = String))),
        (status = 201, description = "It is new", body = Target, headers(("ETag" = String))),
    )
)]
pub(crate) async fn put_target(
    State(shared): State<Shared>,
    caller: Caller,
    Path(name): Path<String>,
    Query(how): Query<How>,
    headers: HeaderMap,
    Json(Target(document)): Json<Target>,
) -> Result<Response, Problem> {
    put(&shared, Kind::Target, &name, Asked { caller, how, headers }, document).await
}

/// Remove a target
#[utoipa::path(
    delete,
    path = "/v1/targets/{target}",
    tag = "targets",
    params(
        ("target" = String, Path, description = "Its iSCSI name", example = "iqn.2026-11.org.example:db"),
        ("If-Match" = String, Header, description = "Only when its ETag is this one"),
        How,
    ),
    responses(
        (status = 200, description = "What a dry run says", body = Plan),
        (status = 204, description = "It is not there any more"),
    )
)]
pub(crate) async fn delete_target(
    State(shared): State<Shared>,
    caller: Caller,
    Path(name): Path<String>,
    Query(how): Query<How>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    delete(&shared, Kind::Target, &name, Asked { caller, how, headers }).await
}

/// List the portals
#[utoipa::path(get, path = "/v1/portals", tag = "portals", responses((status = 200, body = Vec<Entry>)))]
pub(crate) async fn list_portals(State(shared): State<Shared>, caller: Caller) -> Answer<Vec<Entry>> {
    list(&shared, &caller, Kind::Portal)
}

/// Read a portal
#[utoipa::path(
    get,
    path = "/v1/portals/{address}",
    tag = "portals",
    params(("address" = String, Path, description = "Its address and port", example = "192.0.2.1:3260")),
    responses(
        (status = 200, body = Portal, headers(("ETag" = String))),
    )
)]
pub(crate) async fn get_portal(
    State(shared): State<Shared>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    get(&shared, &caller, Kind::Portal, &name)
}

/// Add or replace a portal
#[utoipa::path(
    put,
    path = "/v1/portals/{address}",
    tag = "portals",
    params(
        ("address" = String, Path, description = "Its address and port", example = "192.0.2.1:3260"),
        ("If-Match" = String, Header, description = "Only when its ETag is this one"),
        ("If-None-Match" = NewOnly, Header, description = "Only when it is not there yet"),
        How,
    ),
    request_body = Portal,
    responses(
        (status = 200, description = "It was there, or this is a dry run", body = PortalOrPlan, headers(("ETag" = String))),
        (status = 201, description = "It is new", body = Portal, headers(("ETag" = String))),
    )
)]
pub(crate) async fn put_portal(
    State(shared): State<Shared>,
    caller: Caller,
    Path(name): Path<String>,
    Query(how): Query<How>,
    headers: HeaderMap,
    Json(Portal(document)): Json<Portal>,
) -> Result<Response, Problem> {
    put(&shared, Kind::Portal, &name, Asked { caller, how, headers }, document).await
}

/// Remove a portal
///
/// Sessions that came through it stay.
#[utoipa::path(
    delete,
    path = "/v1/portals/{address}",
    tag = "portals",
    params(
        ("address" = String, Path, description = "Its address and port", example = "192.0.2.1:3260"),
        ("If-Match" = String, Header, description = "Only when its ETag is this one"),
        How,
    ),
    responses(
        (status = 200, description = "What a dry run says", body = Plan),
        (status = 204, description = "It is not there any more"),
    )
)]
pub(crate) async fn delete_portal(
    State(shared): State<Shared>,
    caller: Caller,
    Path(name): Path<String>,
    Query(how): Query<How>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    delete(&shared, Kind::Portal, &name, Asked { caller, how, headers }).await
}
