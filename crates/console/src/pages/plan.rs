//! All objects of `conf.d` at once: what a change would do, and the change.

use maud::{Markup, html};
use serde_json::json;

use super::Pages;
use super::layout::page;
use crate::call::{Call, form};

pub(super) async fn get(pages: Pages) -> Markup {
    let plan = Call::plan();
    let apply = Call::apply()
        .confirm("Make these objects all that conf.d holds? Those that are not in the text are removed.".into());
    let catalog = pages.server.catalog();
    let fields = html! {
        label { "Objects of conf.d, as JSON"
            textarea data-as="document" data-load="/v1/config" rows="24" spellcheck="false" {}
        }
        div.buttons { (plan.submit("plan", "Plan")) (apply.submit("apply", "Apply")) }
    };
    let content = html! {
        h1 { "Plan and apply" }
        p {
            "Change the objects below. " strong { "Plan" } " tells what would change and which sessions would notice it; "
            strong { "Apply" } " makes the change, as a whole or not at all. The objects of " code { (catalog.main_file) } " are not among them."
        }
        (form(&json!({}), &fields))
        section id="changes" aria-live="polite" {}
    };
    page(pages.access, "Plan and apply", "/console/config", &content)
}
