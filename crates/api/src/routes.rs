//! The routes of the API, and the document that describes them.

mod audit;
pub(crate) mod body;
mod config;
mod description;
mod events;
mod jobs;
mod objects;
mod parts;
mod path;
mod query;
mod resource;
mod sessions;
mod status;
mod volumes;

use std::any::Any;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::{OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::callers::Caller;
use crate::edits::{self, Precondition};
use crate::limits::{MAX_BUSY_CHANGES, MAX_BUSY_REQUESTS, MAX_EVENT_READERS};
use crate::objects::{Objects, etag};
use crate::problem::Problem;
use crate::scope::seen_by;
use crate::server::{Catalog, Changed, Order, Plan, Server};
pub use body::read as read_body;
use query::How;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Lunette",
        description = "What a Lunette target serves, and to whom. All changes hold at once and outlast a restart."
    ),
    components(schemas(objects::Target, objects::Portal, parts::Lun, parts::Host, NewOnly, Problem))
)]
struct Base;

/// The one value of If-None-Match that is understood.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a schema")]
enum NewOnly {
    #[schema(rename = "*")]
    Any,
}

/// The state that all requests share.
#[derive(Clone)]
pub(crate) struct Shared {
    server: Arc<dyn Server>,
    /// The requests that wait for the server and change nothing.
    busy: Arc<Semaphore>,
    /// The changes and plans, which wait for each other.
    changing: Arc<Semaphore>,
    readers: Arc<Semaphore>,
    description: Arc<str>,
}

impl FromRef<Shared> for Arc<dyn Server> {
    fn from_ref(shared: &Shared) -> Self {
        Arc::clone(&shared.server)
    }
}

/// The server as the client of a request sees it.
pub(crate) struct Sight(Arc<dyn Server>);

impl FromRequestParts<Shared> for Sight {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Infallible> {
        Ok(Self(seen_by(&shared.server, &parts.extensions)))
    }
}

/// The routes of the API, without the checks of tokens and peers that stand before them.
pub fn router(server: Arc<dyn Server>) -> Router {
    let (router, description) = described(&*server);
    let shared = Shared::new(server, &description.to_string());
    router
        .fallback(|| async { Problem::not_found("such path; /openapi.json lists all") })
        .method_not_allowed_fallback(|| async {
            Problem::of_status(StatusCode::METHOD_NOT_ALLOWED, "/openapi.json lists the methods of each path")
        })
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(shared)
}

/// The routes of the numbers alone, which change nothing and tell of no object but by its counts.
pub(crate) fn numbers(server: Arc<dyn Server>) -> Router {
    Router::new()
        .route("/healthz", get(status::healthz))
        .route("/readyz", get(status::readyz))
        .route("/metrics", get(status::metrics))
        .fallback(|| async { Problem::not_found("such path here; there are /metrics, /healthz and /readyz") })
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(Shared::new(server, ""))
}

/// The routes with their description, in which the documents have the schemas of the server.
fn described(server: &dyn Server) -> (Router<Shared>, Value) {
    let (router, description) = OpenApiRouter::with_openapi(Base::openapi())
        .routes(routes!(objects::list_targets))
        .routes(routes!(objects::get_target, objects::put_target, objects::delete_target))
        .routes(routes!(parts::list_luns))
        .routes(routes!(parts::get_lun, parts::put_lun, parts::delete_lun))
        .routes(routes!(parts::list_hosts))
        .routes(routes!(parts::get_host, parts::put_host, parts::delete_host))
        .routes(routes!(objects::list_portals))
        .routes(routes!(objects::get_portal, objects::put_portal, objects::delete_portal))
        .routes(routes!(status::disks))
        .routes(routes!(sessions::list_sessions))
        .routes(routes!(sessions::get_session, sessions::end_session))
        .routes(routes!(jobs::start_scrub))
        .routes(routes!(jobs::list_jobs))
        .routes(routes!(jobs::get_job))
        .routes(routes!(jobs::cancel_job))
        .routes(routes!(volumes::list_pools))
        .routes(routes!(volumes::list_volumes))
        .routes(routes!(volumes::get_volume, volumes::create_volume, volumes::change_volume, volumes::remove_volume))
        .routes(routes!(volumes::flatten_volume))
        .routes(routes!(volumes::list_snapshots))
        .routes(routes!(volumes::take_snapshot))
        .routes(routes!(volumes::remove_snapshot))
        .routes(routes!(volumes::roll_back))
        .routes(routes!(volumes::moving::list_changes))
        .routes(routes!(volumes::moving::fill, volumes::moving::keep_filling, volumes::moving::undo_filling))
        .routes(routes!(volumes::moving::end_filling))
        .routes(routes!(config::get_config, config::put_config))
        .routes(routes!(config::plan_config))
        .routes(routes!(events::read_events))
        .routes(routes!(status::health))
        .routes(routes!(audit::read_audit))
        .routes(routes!(status::healthz))
        .routes(routes!(status::readyz))
        .routes(routes!(status::metrics))
        .routes(routes!(status::describe))
        .split_for_parts();
    (router, description::complete(&description, server.schemas()))
}

/// A handler has a mistake. The server goes on.
#[expect(clippy::needless_pass_by_value, reason = "the layer gives it away")]
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let what = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(what, "a request has failed");
    Problem::internal("this is a mistake in the server; its log says more").into_response()
}

impl Shared {
    fn new(server: Arc<dyn Server>, description: &str) -> Self {
        Self {
            server,
            busy: Arc::new(Semaphore::new(MAX_BUSY_REQUESTS)),
            changing: Arc::new(Semaphore::new(MAX_BUSY_CHANGES)),
            readers: Arc::new(Semaphore::new(MAX_EVENT_READERS)),
            description: description.into(),
        }
    }

    /// Asks the server something that takes time and changes nothing.
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Server) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        self.wait(&self.busy, ask).await
    }

    /// Makes a change, or says what it would do.
    async fn change(
        &self,
        caller: Caller,
        How { dry_run, force }: How,
        edit: impl FnOnce(&Catalog) -> Result<Objects, Problem> + Send + 'static,
    ) -> Result<Done, Problem> {
        let checked = caller.clone();
        let edit = move |catalog: &Catalog| {
            let wanted = edit(catalog)?;
            edits::check_caller(&checked, catalog, &wanted)?;
            Ok(wanted)
        };
        let order = Order { edit: Box::new(edit), caller, force };
        let change = move |server: &dyn Server| {
            if dry_run { server.plan(order).map(Done::Planned) } else { server.change(order).map(Done::Changed) }
        };
        self.wait(&self.changing, change).await
    }

    /// Says what a change would do, to clients that may not make it, too.
    async fn plan(
        &self,
        caller: Caller,
        edit: impl FnOnce(&Catalog) -> Result<Objects, Problem> + Send + 'static,
    ) -> Result<Plan, Problem> {
        let order = Order { edit: Box::new(edit), caller, force: false };
        self.wait(&self.changing, move |server| server.plan(order)).await
    }

    async fn wait<T: Send + 'static>(
        &self,
        places: &Arc<Semaphore>,
        ask: impl FnOnce(&dyn Server) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let permit = Arc::clone(places).acquire_owned().await;
        let server = Arc::clone(&self.server);
        let answer = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            ask(&*server)
        });
        match answer.await {
            Ok(answer) => answer,
            Err(panic) if panic.is_panic() => std::panic::resume_unwind(panic.into_panic()),
            Err(_) => Err(Problem::unavailable("the server is stopping")),
        }
    }
}

/// The result of a change.
enum Done {
    Planned(Plan),
    Changed(Changed),
}

/// The preconditions of a request.
fn precondition(headers: &HeaderMap) -> Result<Precondition, Problem> {
    let text = |name| match headers.get(&name) {
        None => Ok(None),
        Some(value) => value.to_str().map(Some).map_err(|_| Problem::bad_request(format!("{name} is no text"))),
    };
    let is_new = match text(header::IF_NONE_MATCH)? {
        None => false,
        Some("*") => true,
        Some(_) => {
            return Err(Problem::bad_request("If-None-Match can only be *, for an object that is not there yet"));
        }
    };
    Ok(Precondition { matches: text(header::IF_MATCH)?.map(str::to_owned), is_new })
}

/// A value with its ETag.
fn tagged(status: StatusCode, value: &impl Serialize) -> Response {
    let json = header::HeaderValue::from_static("application/json");
    // Maps with text as keys become JSON.
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = (status, [(header::CONTENT_TYPE, json)], body).into_response();
    if let Ok(etag) = etag(value).parse() {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}
