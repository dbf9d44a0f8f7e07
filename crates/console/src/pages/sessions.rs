//! Sessions, with the keys of their logins.

use axum::extract::Query;
use lunette_api::{Problem, Session};
use maud::{Markup, html};

use super::layout::page;
use super::{Failed, Filtered, Pages, size};
use crate::call::{Call, segment};

pub(super) async fn list(pages: Pages, Query(filter): Filtered) -> Result<Markup, Failed> {
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
        article.session data-session=(session.id) data-read=(session.read_bytes) data-written=(session.written_bytes) {
            h2 { (session.initiator) }
            p {
                @match &session.target {
                    Some(target) => { "at " a href={ "/console/targets/" (segment(target)) } { (target) } },
                    None => "discovery",
                }
                @if let Some(host) = &session.host { " as host " strong { (host) } }
                @if let Some(user) = &session.user { " by user " strong { (user) } }
                @if let Some(algorithm) = &session.chap_algorithm { " (CHAP with " (algorithm) ")" }
            }
            dl {
                (entry("Session (TSIH)", &session.id.to_string()))
                (entry("ISID", &session.isid))
                (entry("Portal group", &session.portal_group.to_string()))
                (entry("From", &session.peers.join(", ")))
                (entry("At", &session.portals.join(", ")))
                (entry("Age", &age(session.age_seconds)))
                (rate("Initiator reads", "read"))
                (rate("Initiator writes", "written"))
                (entry("Has read and written", &format!("{}, {}", size(session.read_bytes), size(session.written_bytes))))
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

/// A place that `console.js` fills with the difference between two readings.
fn rate(key: &str, name: &str) -> Markup {
    html! { div { dt { (key) } dd data-rate=(name) { "…" } } }
}

/// A time for people, in its two largest units.
fn age(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

fn entry(key: &str, value: &str) -> Markup {
    html! { div { dt { (key) } dd { (value) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units() {
        for (seconds, expected) in [(5, "5 s"), (61, "1 min 1 s"), (3725, "1 h 2 min"), (90_000, "1 d 1 h")] {
            assert_eq!(age(seconds), expected);
        }
    }
}
