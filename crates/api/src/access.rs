//! Which role a request takes. `docs/operations.md` sums it up by role. A method without a row takes `admin`.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::callers::{Caller, Role};
use crate::problem::Problem;

/// How the path of a request has to begin, its method, and the role that it takes. The first row that fits decides.
const RULES: &[(&str, Method, Role)] = &[
    ("/v1/audit", Method::GET, Role::Admin),
    ("/v1/sessions/", Method::DELETE, Role::Operate),
    ("/v1/jobs/", Method::POST, Role::Operate),
    // The pool says which volumes such a client may change (`Volumes`).
    ("/v1/snapshots", Method::POST, Role::Operate),
    ("/v1/volumes/", Method::POST, Role::Operate),
    ("/v1/volumes/", Method::PATCH, Role::Operate),
    ("/v1/volumes/", Method::DELETE, Role::Operate),
    // Actions.
    ("/v1/targets/", Method::POST, Role::Operate),
    // The edit says whether it makes a disk longer and does nothing else (`edits::check_caller`).
    ("/v1/targets/", Method::PUT, Role::Operate),
    ("/v1/config:plan", Method::POST, Role::Operate),
    ("/", Method::GET, Role::Read),
    ("/", Method::HEAD, Role::Read),
];

/// Where a client of some targets may go; the handlers show it these targets alone. What stands below a path is as the
/// path; the first row that fits decides, and without one it may not.
const OF_TARGETS: &[(&str, bool)] = &[
    ("/v1/targets", true),
    ("/v1/luns", true),
    ("/v1/sessions", true),
    ("/v1/jobs", true),
    ("/v1/events", true),
    ("/v1/health", true),
    ("/healthz", true),
    ("/readyz", true),
    ("/metrics", true),
    ("/openapi.json", true),
    // All objects at once.
    ("/console/config", false),
    ("/console", true),
    ("/", true),
];

/// The role that a request takes.
fn needed(method: &Method, path: &str) -> Role {
    let rule = RULES.iter().find(|(begin, of, _)| path.starts_with(begin) && of == method);
    rule.map_or(Role::Admin, |(_, _, role)| *role)
}

/// Whether a request is about what a client of some targets may see.
fn is_of_targets(path: &str) -> bool {
    let is_below = |begin: &str| path.strip_prefix(begin).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    OF_TARGETS.iter().find(|(begin, _)| is_below(begin)).is_some_and(|(_, may)| *may)
}

fn check(caller: &Caller, method: &Method, path: &str) -> Result<(), Problem> {
    let needed = needed(method, path);
    caller.check_role(needed).map_err(|refused| {
        let is_edit = method == Method::PUT && needed == Role::Operate;
        if is_edit {
            Problem { detail: caller.lacks("admin, or operate to make a disk longer"), ..refused }
        } else {
            refused
        }
    })?;
    if is_of_targets(path) { Ok(()) } else { caller.check_target(None) }
}

/// Lets requests pass that their client may make. One without a client has been let pass by the check of tokens.
pub(crate) async fn require_role(request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Arc<Caller>>();
    match caller.map(|caller| check(caller, request.method(), request.uri().path())) {
        Some(Err(problem)) => problem.into_response(),
        _ => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_takes_its_role() {
        for (method, path, role) in [
            (Method::GET, "/v1/targets", Role::Read),
            (Method::GET, "/metrics", Role::Read),
            (Method::GET, "/console/targets", Role::Read),
            (Method::GET, "/v1/audit", Role::Admin),
            (Method::DELETE, "/v1/sessions/1", Role::Operate),
            (Method::GET, "/v1/jobs/1", Role::Read),
            (Method::POST, "/v1/jobs/1/actions/cancel", Role::Operate),
            (Method::DELETE, "/v1/jobs/1", Role::Admin),
            (Method::POST, "/v1/snapshots", Role::Operate),
            (Method::GET, "/v1/volumes/tank/db/snapshots/monday/changes", Role::Read),
            (Method::POST, "/v1/volumes/tank/db", Role::Operate),
            (Method::PATCH, "/v1/volumes/tank/db", Role::Operate),
            (Method::DELETE, "/v1/volumes/tank/db/snapshots/monday", Role::Operate),
            (Method::PUT, "/v1/volumes/tank/db", Role::Admin),
            (Method::POST, "/v1/targets/iqn.a/luns/0/actions/scrub", Role::Operate),
            (Method::POST, "/v1/config:plan", Role::Operate),
            (Method::PUT, "/v1/targets/iqn.a/luns/0", Role::Operate),
            (Method::PUT, "/v1/config", Role::Admin),
            (Method::PUT, "/v1/portals/[::1]:1", Role::Admin),
            (Method::DELETE, "/v1/targets/iqn.a", Role::Admin),
            (Method::PATCH, "/v1/sessions/1", Role::Admin),
        ] {
            assert_eq!(needed(&method, path), role, "{method} {path}");
        }
    }

    #[test]
    fn a_client_that_only_reads_is_told_what_a_change_takes() {
        let caller = Caller { role: Role::Read, ..Caller::admin("t", "here") };
        for (method, path, expected) in [
            (Method::PUT, "/v1/targets/iqn.a", "this takes admin, or operate to make a disk longer;"),
            (Method::PUT, "/v1/config", "this takes admin;"),
            (Method::DELETE, "/v1/sessions/1", "this takes operate;"),
        ] {
            let refused = check(&caller, &method, path).unwrap_err();
            assert!(refused.status == 403 && refused.detail.contains(expected), "{}", refused.detail);
        }
    }

    #[test]
    fn a_client_of_some_targets_goes_nowhere_else() {
        let caller = Caller { targets: Some(vec!["iqn.a".into()]), ..Caller::admin("t", "here") };
        for (path, may) in [
            ("/v1/targets/iqn.a", true),
            ("/v1/luns", true),
            ("/v1/jobs/1", true),
            ("/v1/config", false),
            ("/v1/config:plan", false),
            ("/v1/targetsx", false),
            ("/v1/portals", false),
            ("/v1/volumes", false),
            ("/v1/volumes/tank/db", false),
            ("/v1/snapshots", false),
            ("/v1/pools", false),
            ("/v1/health", true),
            ("/metrics", true),
            ("/readyz", true),
            ("/", true),
            ("/console/targets/iqn.a", true),
            ("/console/config", false),
            ("/v1/audit", false),
        ] {
            assert_eq!(check(&caller, &Method::GET, path).is_ok(), may, "{path}");
        }
    }
}
