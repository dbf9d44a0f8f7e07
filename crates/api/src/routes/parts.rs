//! `/v1/targets/{target}/luns` and `/v1/targets/{target}/hosts`: parts of a target, which stand in its file.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;

use super::body::Json;
use super::path::Path;
use super::query::{How, Query};
use super::resource::{self, Asked, Place, resource};
use super::{NewOnly, Shared};
use crate::callers::Caller;
use crate::edits::Part;
use crate::objects::Document;
use crate::problem::Problem;
use crate::server::Plan;

fn list(shared: &Shared, caller: &Caller, target: &str, part: Part) -> Result<Answer<Vec<Value>>, Problem> {
    caller.check_target(Some(target))?;
    Ok(Answer(part.all(resource::target(&shared.server.catalog(), target)?).to_vec()))
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
    list(&shared, &caller, &target, Part::Lun)
}

resource! {
    /// A logical unit, with the keys of `lun`.
    Lun, LunOrPlan, "luns", "/v1/targets/{target}/luns/{number}",
    [
        ("target" = String, Path, description = "The target's iSCSI name", example = "iqn.2026-11.org.example:db"),
        ("number" = u16, Path, maximum = 65535, description = "The LUN")
    ],
    (target, number) => (String, String) => Place::Part(target, Part::Lun, number);
    /// Read a logical unit
    get_lun;
    /// Add or replace a logical unit
    put_lun;
    /// Remove a logical unit
    ///
    /// Commands that its store works on complete; then its disk is flushed and closed.
    delete_lun;
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
    list(&shared, &caller, &target, Part::Host)
}

resource! {
    /// A host, with the keys of `[[target.host]]`.
    Host, HostOrPlan, "hosts", "/v1/targets/{target}/hosts/{host}",
    [
        ("target" = String, Path, description = "The target's iSCSI name", example = "iqn.2026-11.org.example:db"),
        ("host" = String, Path, description = "The host's name", example = "node-a")
    ],
    (target, host) => (String, String) => Place::Part(target, Part::Host, host);
    /// Read a host
    get_host;
    /// Add a host behind all others, or replace one
    put_host;
    /// Remove a host
    ///
    /// The sessions that belong to it are asked to log out. A target that loses its last host lets in no initiator.
    delete_host;
}
