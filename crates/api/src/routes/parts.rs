//! `/v1/targets/{target}/luns` and `/v1/targets/{target}/hosts`: parts of a target, which stand in its file.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::body::Json;
use super::objects::{Asked, key, removed};
use super::path::Path;
use super::query::{How, Query};
use super::{Done, NewOnly, Shared, precondition, tagged};
use crate::callers::Caller;
use crate::edits::{self, Part};
use crate::objects::{Document, Kind};
use crate::problem::Problem;
use crate::server::{Catalog, Plan};

/// A logical unit, with the keys of `lun`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(value_type = Object)]
pub(crate) struct Lun(Document);

/// A host, with the keys of `[[target.host]]`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(value_type = Object)]
pub(crate) struct Host(Document);

/// A logical unit, or what a dry run says.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "a schema")]
pub(crate) enum LunOrPlan {
    Lun(Lun),
    Plan(Plan),
}

/// A host, or what a dry run says.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "a schema")]
pub(crate) enum HostOrPlan {
    Host(Host),
    Plan(Plan),
}

/// Finds the parts of a target.
fn of_target<T>(catalog: &Catalog, target: &str, find: impl FnOnce(&Document) -> T) -> Result<T, Problem> {
    let key = key(Kind::Target, target)?;
    let document = catalog.find(&key).ok_or_else(|| Problem::not_found(&key.to_string()))?;
    Ok(find(document))
}

fn get(catalog: &Catalog, target: &str, part: Part, name: &str) -> Result<Response, Problem> {
    let found = of_target(catalog, target, |document| part.find(document, name))??;
    let found = found.ok_or_else(|| Problem::not_found(&format!("{part} {name} of target {target}")))?;
    Ok(tagged(StatusCode::OK, &found))
}

async fn change(
    shared: &Shared,
    target: &str,
    (part, name): (Part, String),
    Asked { caller, how, headers }: Asked,
    wanted: Option<Document>,
) -> Result<Done, Problem> {
    let (key, when) = (key(Kind::Target, target)?, precondition(&headers)?);
    let edit = move |catalog: &_| edits::change_part(catalog, &key, (part, &name), wanted, &when);
    shared.change(caller, how, edit).await
}

async fn put(
    shared: &Shared,
    target: &str,
    (part, name): (Part, String),
    asked: Asked,
    document: Document,
) -> Result<Response, Problem> {
    asked.caller.check_target(Some(target))?;
    let was_there = of_target(&shared.server.catalog(), target, |document| part.find(document, &name))??.is_some();
    match change(shared, target, (part, name.clone()), asked, Some(document)).await? {
        Done::Planned(plan) => Ok(Answer(plan).into_response()),
        Done::Changed(changed) => {
            let mut response = get(&changed.catalog, target, part, &name)?;
            *response.status_mut() = if was_there { StatusCode::OK } else { StatusCode::CREATED };
            Ok(response)
        }
    }
}

/// List the logical units of a target
#[utoipa::path(
    get,
    path = "/v1/targets/{target}/luns",
    tag = "luns",
    params(("target" = String, Path, description = "The target's iSCSI name", example = "iqn.2026-11.org.example:db")),
    responses(
        (status = 200, body = Vec<Lun>),
    )
)]
pub(crate) async fn list_luns(
    State(shared): State<Shared>,
    caller: Caller,
    Path(target): Path<String>,
) -> Result<Answer<Vec<Value>>, Problem> {
    caller.check_target(Some(&target))?;
    of_target(&shared.server.catalog(), &target, |document| Answer(Part::Lun.all(document).to_vec()))
}

/// Read a logical unit
#[utoipa::path(
    get,
    path = "/v1/targets/{target}/luns/{number}",
    tag = "luns",
    params(
        ("target" = String, Path, description = "The target's iSCSI name", example = "iqn.2026-11.org.example:db"),
        ("number" = u16, Path, maximum = 65535, description = "The LUN"),
    ),
    responses(
        (status = 200, body = Lun, headers(("ETag" = String))),
    )
)]
pub(crate) async fn get_lun(
    State(shared): State<Shared>,
    caller: Caller,
    Path((target, number)): Path<(String, String)>,
) -> Result<Response, Problem> {
    caller.check_target(Some(&target))?;
    get(&shared.server.catalog(), &target, Part::Lun, &number)
}

/// Add or replace a logical unit
#[utoipa::path(
    put,
    path = "/v1/targets/{target}/luns/{number}",
    tag = "luns",
    params(
        ("target" = String, Path, description = "The target's iSCSI name", example = "iqn.2026-11.org.example:db"),
        ("number" = u16, Path, maximum = 65535, description = "The LUN"),
        ("If-Match" = String, Header, description = "Only when its ETag is this one"),
        ("If-None-Match" = NewOnly, Header, description = "Only when it is not there yet"),
        How,
    ),
    request_body = Lun,
    responses(
        (status = 200, description = "It was there, or this is a dry run", body = LunOrPlan, headers(("ETag" = String))),
        (status = 201, description = "It is new", body = Lun, headers(("ETag" = String))),
    )
)]
pub(crate) async fn put_lun(
    State(shared): State<Shared>,
    caller: Caller,
    Path((target, number)): Path<(String, String)>,
    Query(how): Query<How>,
    headers: HeaderMap,
    Json(Lun(document)): Json<Lun>,
) -> Result<Response, Problem> {
    put(&shared, &target, (Part::Lun, number), Asked { caller, how, headers }, document).await
}

/// Remove a logical unit
///
/// Commands that its store works on complete; then its disk is flushed and closed.
#[utoipa::path(
    delete,
    path = "/v1/targets/{target}/luns/{number}",
    tag = "luns",
    params(
        ("target" = String, Path, description = "The target's iSCSI name", example = "iqn.2026-11.org.example:db"),
        ("number" = u16, Path, maximum = 65535, description = "The LUN"),
        ("If-Match" = String, Header, description = "Only when its ETag is this one"),
        How,
    ),
    responses(
        (status = 200, description = "What a dry run says", body = Plan),
        (status = 204, description = "It is not there any more"),
    )
)]
pub(crate) async fn delete_lun(
    State(shared): State<Shared>,
    caller: Caller,
    Path((target, number)): Path<(String, String)>,
    Query(how): Query<How>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    change(&shared, &target, (Part::Lun, number), Asked { caller, how, headers }, None).await.map(removed)
}

/// List the hosts of a target, in the order in which they are looked through
#[utoipa::path(
    get,
    path = "/v1/targets/{target}/hosts",
    tag = "hosts",
    params(("target" = String, Path, description = "The target's iSCSI name", example = "iqn.2026-11.org.example:db")),
    responses(
        (status = 200, body = Vec<Host>),
    )
)]
pub(crate) async fn list_hosts(
    State(shared): State<Shared>,
    caller: Caller,
    Path(target): Path<String>,
) -> Result<Answer<Vec<Value>>, Problem> {
    caller.check_target(Some(&target))?;
    of_target(&shared.server.catalog(), &target, |document| Answer(Part::Host.all(document).to_vec()))
}

/// Read a host
#[utoipa::path(
    get,
    path = "/v1/targets/{target}/hosts/{host}",
    tag = "hosts",
    params(
        ("target" = String, Path, description = "The target's iSCSI name", example = "iqn.2026-11.org.example:db"),
        ("host" = String, Path, description = "The host's name", example = "node-a"),
    ),
    responses(
        (status = 200, body = Host, headers(("ETag" = String))),
    )
)]
pub(crate) async fn get_host(
    State(shared): State<Shared>,
    caller: Caller,
    Path((target, host)): Path<(String, String)>,
) -> Result<Response, Problem> {
    caller.check_target(Some(&target))?;
    get(&shared.server.catalog(), &target, Part::Host, &host)
}

/// Add a host behind all others, or replace one
#[utoipa::path(
    put,
    path = "/v1/targets/{target}/hosts/{host}",
    tag = "hosts",
    params(
        ("target" = String, Path, description = "The target's iSCSI name", example = "iqn.2026-11.org.example:db"),
        ("host" = String, Path, description = "The host's name", example = "node-a"),
        ("If-Match" = String, Header, description = "Only when its ETag is this one"),
        ("If-None-Match" = NewOnly, Header, description = "Only when it is not there yet"),
        How,
    ),
    request_body = Host,
    responses(
        (status = 200, description = "It was there, or this is a dry run", body = HostOrPlan, headers(("ETag" = String))),
        (status = 201, description = "It is new", body = Host, headers(("ETag" = String))),
    )
)]
pub(crate) async fn put_host(
    State(shared): State<Shared>,
    caller: Caller,
    Path((target, host)): Path<(String, String)>,
    Query(how): Query<How>,
    headers: HeaderMap,
    Json(Host(document)): Json<Host>,
) -> Result<Response, Problem> {
    put(&shared, &target, (Part::Host, host), Asked { caller, how, headers }, document).await
}

/// Remove a host
///
/// The sessions that belong to it are asked to log out. A target that loses its last host lets in no initiator.
#[utoipa::path(
    delete,
    path = "/v1/targets/{target}/hosts/{host}",
    tag = "hosts",
    params(
        ("target" = String, Path, description = "The target's iSCSI name", example = "iqn.2026-11.org.example:db"),
        ("host" = String, Path, description = "The host's name", example = "node-a"),
        ("If-Match" = String, Header, description = "Only when its ETag is this one"),
        How,
    ),
    responses(
        (status = 200, description = "What a dry run says", body = Plan),
        (status = 204, description = "It is not there any more"),
    )
)]
pub(crate) async fn delete_host(
    State(shared): State<Shared>,
    caller: Caller,
    Path((target, host)): Path<(String, String)>,
    Query(how): Query<How>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    change(&shared, &target, (Part::Host, host), Asked { caller, how, headers }, None).await.map(removed)
}
