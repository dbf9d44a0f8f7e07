//! `/v1/jobs`, and the actions that start jobs.

use std::sync::Arc;
use std::time::Duration;

use axum::Json as Answer;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;
use utoipa::IntoParams;

use super::Shared;
use super::path::Path;
use super::query::Query;
use crate::audit::AuditEntry;
use crate::callers::Caller;
use crate::jobs::Job;
use crate::limits::MAX_JOB_WAIT;
use crate::problem::Problem;
use crate::server::Server;

/// How long a request waits for the end of a job.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wait {
    /// Answer when the job has ended, or after this time [default: 0]
    #[param(minimum = 0, maximum = 60)]
    wait_seconds: Option<u64>,
}

fn number(id: &str) -> Result<u64, Problem> {
    id.parse().map_err(|_| Problem::bad_request(format!("{id:?} is not the number of a job")))
}

/// A job that a client may see.
fn find(shared: &Shared, caller: &Caller, id: u64) -> Result<Arc<Job>, Problem> {
    let job = shared.server.jobs().find(id).filter(|job| caller.sees(job.target.as_deref()));
    job.ok_or_else(|| Problem::not_found(&format!("job {id}")))
}

/// List the jobs that run, wait or have ended of late
#[utoipa::path(
    get,
    path = "/v1/jobs",
    tag = "jobs",
    responses(
        (status = 200, body = Vec<Job>),
    )
)]
pub(crate) async fn list_jobs(State(shared): State<Shared>, caller: Caller) -> Answer<Vec<Job>> {
    let jobs = shared.server.jobs().list();
    let seen = jobs.iter().filter(|job| caller.sees(job.target.as_deref()));
    Answer(seen.map(|job| Job::clone(job)).collect())
}

/// Read a job, or wait for its end
#[utoipa::path(
    get,
    path = "/v1/jobs/{job}",
    tag = "jobs",
    params(
        ("job" = u64, Path, description = "The number of the job"),
        Wait
    ),
    responses(
        (status = 200, body = Job),
    )
)]
pub(crate) async fn get_job(
    State(shared): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
    Query(Wait { wait_seconds }): Query<Wait>,
) -> Result<Answer<Job>, Problem> {
    let (id, time) = (number(&id)?, Duration::from_secs(wait_seconds.unwrap_or(0)));
    if time > MAX_JOB_WAIT {
        return Err(Problem::bad_request(format!("wait_seconds: write 0 to {}", MAX_JOB_WAIT.as_secs())));
    }
    // An end is an event, so none is missed between the look and the wait.
    let mut events = shared.server.events().subscribe();
    let ended = async {
        while !find(&shared, &caller, id)?.state.is_end() {
            if let Err(RecvError::Closed) = events.recv().await {
                break;
            }
        }
        Ok::<_, Problem>(())
    };
    timeout(time, ended).await.unwrap_or(Ok(()))?;
    find(&shared, &caller, id).map(|job| Answer(Job::clone(&job)))
}

/// Cancel a job
///
/// One that waits has ended with the answer. One that runs ends at its next step. One that has ended stays as it is.
#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/actions/cancel",
    tag = "jobs",
    params(("job" = u64, Path, description = "The number of the job")),
    responses(
        (status = 200, body = Job, description = "It has ended"),
        (status = 202, body = Job, description = "It was asked to end"),
    )
)]
pub(crate) async fn cancel_job(
    State(shared): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<(StatusCode, Answer<Job>), Problem> {
    let id = number(&id)?;
    let has_ended = find(&shared, &caller, id)?.state.is_end();
    let cancel = move |server: &dyn Server| {
        let job = server.jobs().cancel(id).ok_or_else(|| Problem::not_found(&format!("job {id}")))?;
        if !has_ended {
            let action = format!("cancel job {id}, {} of {}", job.kind, job.object);
            server.audit().record(AuditEntry::new(&caller, &action, Ok(()), Vec::new()));
        }
        Ok(job)
    };
    let job = shared.ask(cancel).await?;
    let status = if job.state.is_end() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Answer(Job::clone(&job))))
}

/// Read all blocks of a logical unit once
///
/// The job counts the blocks that cannot be read, and those that are damaged where the server can tell: quanta by
/// their checksums with `quantum`, and those of an encrypted disk by their authentication. Parity repairs what it can.
/// A job that finds damage has failed, and its result lists the blocks. It has one request to the disk at a time, so
/// initiators go on.
#[utoipa::path(
    post,
    path = "/v1/targets/{target}/luns/{number}/actions/scrub",
    tag = "jobs",
    params(
        ("target" = String, Path, description = "The target's iSCSI name", example = "iqn.2026-11.org.example:db"),
        ("number" = u16, Path, maximum = 16383, description = "The number of the LUN")
    ),
    responses(
        (status = 202, body = Job, description = "The job was taken", headers(("Location" = String))),
        (status = 409, description = "It is scrubbed already, or its disk is not open",
            body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn start_scrub(
    State(shared): State<Shared>,
    caller: Caller,
    Path((target, lun)): Path<(String, String)>,
) -> Result<(StatusCode, [(HeaderName, String); 1], Answer<Job>), Problem> {
    caller.check_target(Some(&target))?;
    let lun: u16 =
        lun.parse().map_err(|_| Problem::bad_request(format!("{lun:?} is not the number of a logical unit")))?;
    let start = move |server: &dyn Server| {
        let started = server.scrub(&target, lun, &caller);
        let action = format!("scrub targets/{target}/luns/{lun}");
        let outcome = started.as_ref().map(drop).map_err(ToString::to_string);
        server.audit().record(AuditEntry::new(&caller, &action, outcome, Vec::new()));
        started
    };
    let job = shared.ask(start).await?;
    let location = [(header::LOCATION, format!("/v1/jobs/{}", job.id))];
    Ok((StatusCode::ACCEPTED, location, Answer(Job::clone(&job))))
}
