//! The pages.

mod disks;
mod events;
mod hosts;
mod jobs;
mod layout;
mod overview;
mod plan;
mod sessions;
mod targets;
mod volumes;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{FromRequestParts, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lunette_api::objects::Document;
use lunette_api::{Access, Catalog, Disk, Origin, Problem, Server, Session, Trouble, seen_by};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use crate::front::PROBE;
use crate::limits::MAX_ROWS;
use crate::numbers::{self, Numbers};
pub(crate) use layout::login;
use layout::page;

/// The pages of a server.
pub(crate) fn router(server: Arc<dyn Server>, access: Access) -> Router {
    Router::new()
        .route("/", get(overview::get))
        .route("/console/targets", get(targets::list))
        .route("/console/targets/{target}", get(targets::get))
        .route("/console/targets/{target}/hosts/{host}", get(hosts::get))
        .route("/console/disks", get(disks::list))
        .route("/console/volumes", get(volumes::list))
        .route("/console/volumes/{pool}/{volume}", get(volumes::get))
        .route("/console/hosts", get(hosts::list))
        .route("/console/sessions", get(sessions::list))
        .route("/console/jobs", get(jobs::list))
        .route("/console/config", get(plan::get))
        .route("/console/events", get(events::get))
        .route("/console/numbers", get(read_numbers))
        .route(PROBE, get(async || StatusCode::NO_CONTENT))
        .with_state(Pages { server, access, started: Instant::now() })
}

/// The state that all pages share.
#[derive(Clone)]
struct Pages {
    server: Arc<dyn Server>,
    access: Access,
    started: Instant,
}

/// Each request has the pages of what its client may see.
impl FromRequestParts<Self> for Pages {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, all: &Self) -> Result<Self, Infallible> {
        Ok(Self { server: seen_by(&all.server, &parts.extensions), ..all.clone() })
    }
}

/// The data that pages show, at one moment.
struct View {
    access: Access,
    catalog: Arc<Catalog>,
    disks: Vec<Disk>,
    sessions: Vec<Session>,
    ready: Result<(), String>,
    troubles: Vec<Trouble>,
}

impl Pages {
    /// Asks the server, on a thread that may wait.
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Server) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Failed> {
        let server = Arc::clone(&self.server);
        let answer = tokio::task::spawn_blocking(move || ask(&*server)).await;
        let failed = |_| Err(Problem::internal("this is a mistake in the server; its log says more"));
        answer.unwrap_or_else(failed).map_err(|problem| Failed { access: self.access, problem })
    }

    async fn view(&self) -> Result<View, Failed> {
        let access = self.access;
        let view = move |server: &dyn Server| {
            Ok(View {
                access,
                catalog: server.catalog(),
                disks: server.disks(),
                sessions: server.sessions()?,
                ready: server.ready(),
                troubles: server.troubles(),
            })
        };
        self.ask(view).await
    }

    fn failed(&self, problem: Problem) -> Failed {
        Failed { access: self.access, problem }
    }
}

/// A page that cannot be shown.
struct Failed {
    access: Access,
    problem: Problem,
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let content = html! { h1 { (self.problem.title) } p { (self.problem.detail) } };
        (status, page(self.access, &self.problem.title, "", &content)).into_response()
    }
}

async fn read_numbers(pages: Pages) -> axum::Json<Numbers> {
    let time_ms = u64::try_from(pages.started.elapsed().as_millis()).unwrap_or(u64::MAX);
    axum::Json(numbers::read(&pages.server.metrics().unwrap_or_default(), time_ms))
}

/// Which rows of a list a page shows: those in which the text stands.
#[derive(Deserialize)]
struct Filter {
    #[serde(default)]
    q: String,
}

type Filtered = Query<Filter>;

impl Filter {
    /// The first rows that fit, and a sentence when there are more. `texts` are those of a row in which the text is
    /// looked for.
    fn rows<T>(&self, rows: impl Iterator<Item = T>, texts: impl Fn(&T) -> String) -> (Vec<T>, Markup) {
        let wanted = self.q.to_lowercase();
        let mut fitting = rows.filter(|row| texts(row).to_lowercase().contains(&wanted));
        let shown: Vec<T> = fitting.by_ref().take(MAX_ROWS).collect();
        let more = fitting.count();
        let note = html! {
            @if more > 0 { p.note { (more) " more are not shown. A filter finds them." } }
            @if shown.is_empty() { p.note { "There are none" @if !wanted.is_empty() { " that fit" } "." } }
        };
        (shown, note)
    }

    /// The field for the text.
    fn field(&self, page: &str) -> Markup {
        html! {
            form.filter method="get" action=(page) role="search" {
                label { "Filter" input type="search" name="q" value=(self.q); }
                button { "Show" }
            }
        }
    }
}

/// The list of objects that are not served as the configuration says.
fn troubles<'a>(all: impl Iterator<Item = &'a Trouble>) -> Markup {
    let all: Vec<_> = all.take(MAX_ROWS).collect();
    html! {
        @if !all.is_empty() {
            ul.troubles role="alert" aria-label="Not served as the configuration says" {
                @for Trouble { kind, name, target, text, .. } in all {
                    li.error { (kind) " " (name) @if let Some(target) = target { " of " (target) } ": " (text) }
                }
            }
        }
    }
}

/// Where an object can be changed: by the API, or in a file.
fn note_of_origin(catalog: &Catalog, origin: Origin) -> Markup {
    html! {
        @if origin == Origin::Main {
            p.note { "It stands in " code { (catalog.main_file) } ": change it there, and send SIGHUP." }
        }
    }
}

/// A text of a document.
fn text<'a>(document: &'a Document, key: &str) -> &'a str {
    document.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The texts of a list of a document; `None` without the list.
fn texts<'a>(document: &'a Document, key: &str) -> Option<Vec<&'a str>> {
    let list = document.get(key)?.as_array()?;
    Some(list.iter().filter_map(Value::as_str).collect())
}

/// A length for people, in powers of 1024.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut scale, mut unit) = (1_u64, 0);
    while bytes / scale >= 1024 && unit + 1 < UNITS.len() {
        (scale, unit) = (scale << 10, unit + 1);
    }
    let tenths = u128::from(bytes) * 10 / u128::from(scale);
    match tenths % 10 {
        0 => format!("{} {}", tenths / 10, UNITS[unit]),
        tenth => format!("{}.{tenth} {}", tenths / 10, UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_down_to_a_tenth() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536 << 20, "1.5 GiB"),
            ((1 << 40) - 1, "1023.9 GiB"),
            (u64::MAX, "16383.9 PiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn lists_are_bounded_and_filters_find_the_rest() {
        let rows = || (0..=MAX_ROWS).map(|row| format!("Row {row}"));
        let (shown, note) = Filter { q: String::new() }.rows(rows(), Clone::clone);
        assert_eq!(shown.len(), MAX_ROWS);
        assert!(note.into_string().contains("1 more"));
        let (shown, note) = Filter { q: format!("row {MAX_ROWS}") }.rows(rows(), Clone::clone);
        assert_eq!((shown.len(), note.into_string().as_str()), (1, ""));
    }
}
