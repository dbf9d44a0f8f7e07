//! The frame of all pages.

use std::fs;
use std::sync::LazyLock;

use lunette_api::Access;
use maud::{DOCTYPE, Markup, html};

use crate::assets::address;

const PAGES: [(&str, &str); 9] = [
    ("/", "Overview"),
    ("/console/targets", "Targets"),
    ("/console/disks", "Disks"),
    ("/console/volumes", "Volumes"),
    ("/console/hosts", "Hosts"),
    ("/console/sessions", "Sessions"),
    ("/console/jobs", "Jobs"),
    ("/console/config", "Plan and apply"),
    ("/console/events", "Events"),
];

/// Nothing inline, nothing evaluated, nothing kept in the browser: what the policy of the answers allows.
const HTMX: &str = r#"{"includeIndicatorStyles":false,"allowEval":false,"allowScriptTags":false,"selfRequestsOnly":true,"historyEnabled":false,"reportValidityOfForms":true}"#;

/// The name of this machine, which tells the pages of several servers apart.
static HOST: LazyLock<String> = LazyLock::new(|| {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
});

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="htmx-config" content=(HTMX);
            title { (title) " – Lunette" }
            link rel="icon" href=(address("icon.svg"));
            link rel="stylesheet" href=(address("uPlot.min.css"));
            link rel="stylesheet" href=(address("console.css"));
            script src=(address("htmx.min.js")) defer {}
            script src=(address("uPlot.iife.min.js")) defer {}
            script src=(address("console.js")) defer {}
        }
    }
}

/// A page. `here` is the entry of the navigation that it belongs to.
pub(super) fn page(access: Access, title: &str, here: &str, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("{title} – {}", *HOST)))
            body {
                a.skip href="#main" { "To the content" }
                header {
                    a.brand href="/" { "Lunette" }
                    span.host { (*HOST) }
                    nav aria-label="Pages" {
                        @for (path, name) in PAGES {
                            a href=(path) aria-current=[(path == here).then_some("page")] { (name) }
                        }
                    }
                    @if access == Access::Tokens {
                        form method="post" action="/console/logout" { button { "Log out" } }
                    }
                }
                div id="notice" role="status" aria-live="polite" {}
                main id="main" tabindex="-1" { (content) }
                footer {
                    "Lunette " (env!("CARGO_PKG_VERSION")) " · "
                    a href="/openapi.json" { "API" } " · "
                    a href="/metrics" { "Metrics" } " · "
                    a href=(address("LICENSE-htmx")) { "Licence of htmx" } " · "
                    a href=(address("LICENSE-uPlot")) { "Licence of uPlot" }
                }
            }
        }
    }
}

/// The page on which a token is entered.
pub(crate) fn login(why: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head("Login"))
            body.login {
                main {
                    h1 { "Lunette" }
                    @if let Some(why) = why { p.error role="alert" { (why) } }
                    form method="post" action="/console/login" {
                        label { "Token" input type="password" name="token" autocomplete="current-password" required autofocus; }
                        button { "Log in" }
                    }
                    p.note { "A token is the first word of a line of the file that " code { "api.tokens" } " of the server's configuration names." }
                }
            }
        }
    }
}
