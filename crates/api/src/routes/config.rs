//! `/v1/config`: all objects of `conf.d` at once.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::Json;
use super::objects::{Portal, Target};
use super::query::{How, Query};
use super::{Done, NewOnly, Shared, precondition, tagged};
use crate::callers::Caller;
use crate::edits;
use crate::objects::{Objects, Tables};
use crate::problem::Problem;
use crate::server::{Catalog, Changed, Plan};

/// The objects of `conf.d`. Those of the main file are not among them.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    #[serde(default)]
    portal: Vec<Portal>,
    #[serde(default)]
    target: Vec<Target>,
}

/// Read all objects of `conf.d`
#[utoipa::path(
    get,
    path = "/v1/config",
    tag = "config",
    responses((status = 200, body = Config, headers(("ETag" = String))))
)]
pub(crate) async fn get_config(State(shared): State<Shared>) -> Response {
    tagged(StatusCode::OK, &shared.server.catalog().objects.to_tables())
}

/// Replace all objects of `conf.d`
///
/// They change as a whole or not at all, also when the power fails. Objects that the request does not name are removed.
#[utoipa::path(
    put,
    path = "/v1/config",
    tag = "config",
    params(
        ("If-Match" = String, Header, description = "Only when the ETag of the configuration is this one"),
        ("If-None-Match" = NewOnly, Header, description = "Never: there is a configuration always"),
        How,
    ),
    request_body = Config,
    responses(
        (status = 200, description = "What was changed", body = Plan, headers(("ETag" = String, description = "of the configuration"))),
    )
)]
pub(crate) async fn put_config(
    State(shared): State<Shared>,
    caller: Caller,
    Query(how): Query<How>,
    headers: HeaderMap,
    Json(tables): Json<Tables>,
) -> Result<Response, Problem> {
    let (objects, when) = (Objects::from_tables(tables)?, precondition(&headers)?);
    match shared.change(caller, how, move |catalog| edits::replace(catalog, objects, &when)).await? {
        Done::Planned(plan) => Ok(Answer(plan).into_response()),
        Done::Changed(Changed { plan, catalog }) => {
            let etag = catalog.objects.etag();
            let etag = HeaderValue::from_str(&etag).map_err(|error| Problem::internal(error.to_string()))?;
            Ok(([(header::ETAG, etag)], Answer(plan)).into_response())
        }
    }
}

/// Say what a replacement would change
///
/// Nothing is opened, so a disk that is missing or an address in use shows only when the change is made.
#[utoipa::path(
    post,
    path = "/v1/config:plan",
    tag = "config",
    request_body = Config,
    responses(
        (status = 200, description = "What would change, and which sessions would notice", body = Plan),
    )
)]
pub(crate) async fn plan_config(
    State(shared): State<Shared>,
    caller: Caller,
    headers: HeaderMap,
    Json(tables): Json<Tables>,
) -> Result<Answer<Plan>, Problem> {
    let (objects, when) = (Objects::from_tables(tables)?, precondition(&headers)?);
    // Whoever asks makes no change.
    let edit = move |catalog: &Catalog| edits::replace(catalog, objects, &when);
    shared.plan(caller, edit).await.map(Answer)
}
