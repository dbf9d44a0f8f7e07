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
use super::{NewOnly, Shared, precondition, tagged};
use crate::edits;
use crate::objects::{Document, Key, Kind, etag};
use crate::problem::Problem;
use crate::server::Origin;

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
    /// What names it.
    name: String,
    /// The file that it stands in.
    origin: Origin,
    /// Its ETag.
    #[schema(example = "\"8f1d2c3b4a596877\"")]
    etag: String,
    /// All of it.
    #[schema(value_type = Object)]
    object: Value,
}

/// The name of an object that may be there.
pub(super) fn key(kind: Kind, name: &str) -> Result<Key, Problem> {
    Key::new(kind, name).map_err(|why| Problem::not_found(&format!("such {}: {why}", kind.table())))
}

fn list(shared: &Shared, kind: Kind) -> Answer<Vec<Entry>> {
    let catalog = shared.server.catalog();
    let entry = |(name, document, origin): (&str, &Document, Origin)| {
        let object = Value::Object(document.clone());
        Entry { name: name.into(), origin, etag: etag(&object), object }
    };
    Answer(catalog.of(kind).map(entry).collect())
}

fn get(shared: &Shared, kind: Kind, name: &str) -> Result<Response, Problem> {
    let key = key(kind, name)?;
    let catalog = shared.server.catalog();
    let document = catalog.find(&key).ok_or_else(|| Problem::not_found(&key.to_string()))?;
    Ok(tagged(StatusCode::OK, document))
}

async fn put(
    shared: &Shared,
    kind: Kind,
    name: &str,
    headers: &HeaderMap,
    document: Document,
) -> Result<Response, Problem> {
    let key = Key::new(kind, name).map_err(Problem::invalid)?;
    let when = precondition(headers)?;
    let wanted = key.clone();
    let was_there = shared.server.catalog().find(&key).is_some();
    let edit = move |catalog: &_| edits::put(catalog, &wanted, document, &when);
    let changed = shared.ask(move |server| server.change(Box::new(edit))).await?;
    let status = if was_there { StatusCode::OK } else { StatusCode::CREATED };
    let document = changed.catalog.find(&key).ok_or_else(|| Problem::not_found(&key.to_string()))?;
    Ok(tagged(status, document))
}

async fn delete(shared: &Shared, kind: Kind, name: &str, headers: &HeaderMap) -> Result<Response, Problem> {
    let (key, when) = (key(kind, name)?, precondition(headers)?);
    shared.ask(move |server| server.change(Box::new(move |catalog| edits::delete(catalog, &key, &when)))).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// List the targets
#[utoipa::path(get, path = "/v1/targets", tag = "targets", responses((status = 200, body = Vec<Entry>)))]
pub(crate) async fn list_targets(State(shared): State<Shared>) -> Answer<Vec<Entry>> {
    list(&shared, Kind::Target)
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
pub(crate) async fn get_target(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Response, Problem> {
    get(&shared, Kind::Target, &name)
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
    ),
    request_body = Target,
    responses(
        (status = 200, description = "It was there", body = Target, headers(("ETag" = String))),
        (status = 201, description = "It is new", body = Target, headers(("ETag" = String))),
    )
)]
pub(crate) async fn put_target(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(Target(document)): Json<Target>,
) -> Result<Response, Problem> {
    put(&shared, Kind::Target, &name, &headers, document).await
}

/// Remove a target
#[utoipa::path(
    delete,
    path = "/v1/targets/{target}",
    tag = "targets",
    params(
        ("target" = String, Path, description = "Its iSCSI name", example = "iqn.2026-11.org.example:db"),
        ("If-Match" = String, Header, description = "Only when its ETag is this one"),
    ),
    responses(
        (status = 204, description = "It is not there any more"),
    )
)]
pub(crate) async fn delete_target(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    delete(&shared, Kind::Target, &name, &headers).await
}

/// List the portals
#[utoipa::path(get, path = "/v1/portals", tag = "portals", responses((status = 200, body = Vec<Entry>)))]
pub(crate) async fn list_portals(State(shared): State<Shared>) -> Answer<Vec<Entry>> {
    list(&shared, Kind::Portal)
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
pub(crate) async fn get_portal(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Response, Problem> {
    get(&shared, Kind::Portal, &name)
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
    ),
    request_body = Portal,
    responses(
        (status = 200, description = "It was there", body = Portal, headers(("ETag" = String))),
        (status = 201, description = "It is new", body = Portal, headers(("ETag" = String))),
    )
)]
pub(crate) async fn put_portal(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(Portal(document)): Json<Portal>,
) -> Result<Response, Problem> {
    put(&shared, Kind::Portal, &name, &headers, document).await
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
    ),
    responses(
        (status = 204, description = "It is not there any more"),
    )
)]
pub(crate) async fn delete_portal(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    delete(&shared, Kind::Portal, &name, &headers).await
}
