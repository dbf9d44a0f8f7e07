//! The page of events as they happen.

use maud::{Markup, html};

use super::Pages;
use super::layout::page;

pub(super) async fn get(pages: Pages) -> Markup {
    let content = html! {
        h1 { "Events" }
        p { "Those from now on, the latest first; " code { "lunette ctl events" } " prints the same." }
        ol id="events" data-events="/v1/events" aria-live="polite" {}
    };
    page(pages.access, "Events", "/console/events", &content)
}
