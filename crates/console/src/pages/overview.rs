//! The first page: how the server is, how fast, and where it listens.

use lunette_api::{Kind, Origin};
use maud::{Markup, html};

use super::layout::page;
use super::{Failed, Pages, View, size, troubles};
use crate::call::{As, Call, Field, Place, form};

pub(super) async fn get(pages: Pages) -> Result<Markup, Failed> {
    let view = pages.view().await?;
    let content = html! {
        h1 { "Overview" }
        (troubles(view.troubles.iter()))
        (summary(&view))
        (charts())
        (portals(&view))
    };
    Ok(page(view.access, "Overview", "/", &content))
}

fn summary(view: &View) -> Markup {
    let bytes = view.disks.iter().fold(0, |sum: u64, disk| sum.saturating_add(disk.size_bytes));
    let tile = |name: &str, value: String, page: &str| html! { a.tile href=(page) { strong { (value) } (name) } };
    let count = |one: &str, number: usize, page: &str| {
        let name = if number == 1 { one.to_owned() } else { format!("{one}s") };
        tile(&name, number.to_string(), page)
    };
    html! {
        @if let Err(why) = &view.ready { p.error role="alert" { "Initiators are not served: " (why) } }
        div.tiles {
            (count("target", view.catalog.of(Kind::Target).count(), "/console/targets"))
            (count("logical unit", view.disks.len(), "/console/disks"))
            (tile("of disks", size(bytes), "/console/disks"))
            (count("session", view.sessions.len(), "/console/sessions"))
        }
    }
}

/// The places that `console.js` fills with numbers.
fn charts() -> Markup {
    html! {
        section id="charts" data-numbers="/console/numbers" aria-labelledby="charts-title" {
            h2 id="charts-title" { "Now" }
            label { "Show" select id="charted" { option value="" { "all logical units" } } }
            div.charts {
                figure { figcaption { "Throughput in MB/s" } div data-chart="bytes" {} }
                figure { figcaption { "Commands per second" } div data-chart="commands" {} }
                figure { figcaption { "Mean latency in ms" } div data-chart="latency" {} }
            }
            div.wide {
                table {
                    caption { "The busiest logical units" }
                    thead {
                        tr {
                            th { "Target" } th { "LUN" }
                            th.number { "Read MB/s" } th.number { "Write MB/s" }
                            th.number { "Read /s" } th.number { "Write /s" }
                            th.number { "Mean ms" } th.number { "99 % within ms" }
                        }
                    }
                    tbody id="busiest" {}
                }
            }
        }
    }
}

fn portals(view: &View) -> Markup {
    let add = Call::add(&Place(&["portals"]), "address");
    let fields = html! {
        (Field { name: "address", label: "Address and port", kind: As::Path, value: "", hint: "192.0.2.1:3260", required: true }.show())
        (Field { name: "group", label: "Portal group", kind: As::Number, value: "", hint: "1", required: false }.show())
        (add.submit("add-portal", "Add the portal"))
    };
    html! {
        section aria-labelledby="portals" {
            h2 id="portals" { "Portals" }
            div.wide {
                table {
                    thead { tr { th { "Address" } th { "Portal group" } th { "" } } }
                    tbody {
                        @for (name, portal, origin) in view.catalog.of(Kind::Portal) {
                            tr {
                                td { code { (name) } }
                                td { (portal.get("group").and_then(serde_json::Value::as_u64).unwrap_or(1)) }
                                td {
                                    @if origin == Origin::ConfD { (remove(name)) }
                                    @else { "of " code { (view.catalog.main_file) } }
                                }
                            }
                        }
                    }
                }
            }
            details { summary { "Add a portal" } (form(&serde_json::json!({}), &fields)) }
        }
    }
}

fn remove(name: &str) -> Markup {
    Call::remove(&Place(&["portals", name]))
        .confirm(format!("Remove the portal {name}? Sessions that came through it stay."))
        .button(&format!("remove-portal-{name}"), "Remove")
}
