//! Sessions, with the keys of their logins.

use axum::extract::{Query, State};
use lunette_api::{Problem, Session};
use maud::{Markup, html};

use super::layout::page;
use super::{Failed, Filtered, Pages, size};
use crate::call::{Call, segment};

pub(super) async fn list(State(pages): State<Pages>, Query(filter): Filtered) -> Result<Markup, Failed> {
    let sessions: Vec<Session> = pages.ask(|server| -> Result<_, Problem> { server.sessions() }).await?;
    let (sessions, note) = filter.rows(sessions.into_iter(), texts);
    let again = format!("/console/sessions?q={}", segment(&filter.q));
    let content = html! {
        h1 { "Sessions" }
        (filter.field("/console/sessions"))
        div id="sessions" hx-get=(again) hx-select="#sessions" hx-trigger="every 3s" hx-swap="outerHTML" {
            @for session in &sessions { (show(session)) }
            (note)
        }
    };
    Ok(page(pages.access, "Sessions", "/console/sessions", &content))
}

fn texts(session: &Session) -> String {
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    let (target, host, user) = (optional(&session.target), optional(&session.host), optional(&session.user));
    format!("{} {} {target} {host} {user} {}", session.id, session.initiator, session.peers.join(" "))
}

fn show(session: &Session) -> Markup {
    let end = Call::kick(session.id).confirm(format!(
        "End session {} of {}? Its initiator may log in again at once.",
        session.id, session.initiator
    ));
    let yes_no = |value: bool| if value { "Yes" } else { "No" };
    html! {
        article.session {
            h2 { (session.initiator) }
            p {
                @match &session.target {
                    Some(target) => { "at " a href={ "/console/targets/" (segment(target)) } { (target) } },
                    None => "discovery",
                }
                @if let Some(host) = &session.host { " as host " strong { (host) } }
                @if let Some(user) = &session.user { " by user " strong { (user) } }
            }
            dl {
                (entry("Session (TSIH)", &session.id.to_string()))
                (entry("ISID", &session.isid))
                (entry("Portal group", &session.portal_group.to_string()))
                (entry("From", &session.peers.join(", ")))
                (entry("Commands under way", &session.commands.to_string()))
                (entry("HeaderDigest", &session.header_digest))
                (entry("DataDigest", &session.data_digest))
                (entry("ErrorRecoveryLevel", &session.error_recovery_level.to_string()))
                (entry("MaxConnections", &session.max_connections.to_string()))
                (entry("MaxRecvDataSegmentLength", &size(session.max_recv_data_segment_length.into())))
                (entry("MaxBurstLength", &size(session.max_burst_length.into())))
                (entry("FirstBurstLength", &size(session.first_burst_length.into())))
                (entry("InitialR2T", yes_no(session.initial_r2t)))
                (entry("ImmediateData", yes_no(session.immediate_data)))
            }
            (end.button(&format!("kick-{}", session.id), "End the session"))
        }
    }
}

fn entry(key: &str, value: &str) -> Markup {
    html! { div { dt { (key) } dd { (value) } } }
}
