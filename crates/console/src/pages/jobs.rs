//! Jobs: actions of the server that take long.

use lunette_api::Problem;
use lunette_api::jobs::{Job, JobState};
use maud::{Markup, html};

use super::layout::page;
use super::{Failed, Pages, size};
use crate::call::Call;
use crate::limits::MAX_ROWS;

pub(super) async fn list(pages: Pages) -> Result<Markup, Failed> {
    let jobs = pages.ask(|server| -> Result<_, Problem> { Ok(server.seen_jobs()) }).await?;
    let content = html! {
        h1 { "Jobs" }
        div id="jobs" hx-get="/console/jobs" hx-select="#jobs" hx-trigger="every 3s" hx-swap="outerHTML" {
            @for job in jobs.iter().rev().take(MAX_ROWS) { (show(job)) }
            @if jobs.is_empty() { p.note { "There are none. The page " a href="/console/disks" { "Disks" } " starts them." } }
        }
    };
    Ok(page(pages.access, "Jobs", "/console/jobs", &content))
}

fn show(job: &Job) -> Markup {
    let Job { id, kind, object, started_by, state, cancelling, progress, message, .. } = job;
    let is_cancelled = *cancelling && !state.is_end();
    html! {
        article.job data-job=(id) {
            h2 { "Job " (id) ": " (kind) }
            p { "of " code { (object) } ", started by " strong { (started_by) } ": " (state) @if is_cancelled { ", to be cancelled" } }
            @if *state == JobState::Running {
                progress max=(progress.total_bytes) value=(progress.done_bytes) aria-label="Done" {}
                p { (size(progress.done_bytes)) " of " (size(progress.total_bytes)) }
            }
            @if !message.is_empty() { p.error[*state == JobState::Failed] { (message) } }
            @if !state.is_end() && !is_cancelled { (Call::cancel(*id).button(&format!("cancel-{id}"), "Cancel")) }
        }
    }
}
