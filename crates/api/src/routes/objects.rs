//! `/v1/targets` and `/v1/portals`.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::body::Json;
use super::path::Path;
use super::query::{How, Query};
use super::resource::{Asked, Place, resource};
use super::{NewOnly, Shared};
use crate::callers::Caller;
use crate::objects::{Document, Kind, etag};
use crate::problem::Problem;
use crate::server::{Origin, Plan};

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

fn list(shared: &Shared, caller: &Caller, kind: Kind) -> Answer<Vec<Entry>> {
    let catalog = shared.server.catalog();
    let entry = |(name, document, origin): (&str, &Document, Origin)| {
        let object = Value::Object(document.clone());
        Entry { name: name.into(), origin, etag: etag(&object), object }
    };
    Answer(catalog.of(kind).filter(|(name, ..)| caller.sees(Some(name))).map(entry).collect())
}

/// List the targets
#[utoipa::path(get, path = "/v1/targets", tag = "targets", responses((status = 200, body = Vec<Entry>)))]
pub(crate) async fn list_targets(State(shared): State<Shared>, caller: Caller) -> Answer<Vec<Entry>> {
    list(&shared, &caller, Kind::Target)
}

resource! {
    /// A target, with the keys of `[[target]]`.
    Target, TargetOrPlan, "targets", "/v1/targets/{target}",
    [("target" = String, Path, description = "Its iSCSI name", example = "iqn.2026-11.org.example:db")],
    name => String => Place::Object(Kind::Target, name);
    /// Read a target
    get_target;
    /// Add or replace a target
    put_target;
    /// Remove a target
    delete_target;
}

/// List the portals
#[utoipa::path(get, path = "/v1/portals", tag = "portals", responses((status = 200, body = Vec<Entry>)))]
pub(crate) async fn list_portals(State(shared): State<Shared>, caller: Caller) -> Answer<Vec<Entry>> {
    list(&shared, &caller, Kind::Portal)
}

resource! {
    /// A portal, with the keys of `[[portal]]`.
    Portal, PortalOrPlan, "portals", "/v1/portals/{address}",
    [("address" = String, Path, description = "Its address and port", example = "192.0.2.1:3260")],
    name => String => Place::Object(Kind::Portal, name);
    /// Read a portal
    get_portal;
    /// Add or replace a portal
    put_portal;
    /// Remove a portal
    ///
    /// Sessions that came through it stay.
    delete_portal;
}
