//! `/v1/audit`: who has changed what.

use axum::Json as Answer;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Shared;
use super::query::Query;
use crate::audit::AuditEntry;
use crate::limits::MAX_AUDIT_READ;
use crate::problem::Problem;

/// Entries that are read when nothing else is asked for.
const DEFAULT_COUNT: usize = 100;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Count {
    /// How many entries [default: 100]
    #[param(minimum = 1, maximum = 1000)]
    count: Option<usize>,
}

/// Read the last entries of the audit log, the latest first
#[utoipa::path(
    get,
    path = "/v1/audit",
    tag = "audit",
    params(Count),
    responses(
        (status = 200, body = Vec<AuditEntry>),
    )
)]
pub(crate) async fn read_audit(
    State(shared): State<Shared>,
    Query(Count { count }): Query<Count>,
) -> Result<Answer<Vec<AuditEntry>>, Problem> {
    let count = count.unwrap_or(DEFAULT_COUNT);
    if !(1..=MAX_AUDIT_READ).contains(&count) {
        return Err(Problem::bad_request(format!("count = {count}: write 1 to {MAX_AUDIT_READ}")));
    }
    Ok(Answer(shared.server.audit().last(count)))
}
