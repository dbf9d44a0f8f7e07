//! The pages of targets.

use axum::extract::{Path, Query};
use lunette_api::edits::Part;
use lunette_api::objects::Document;
use lunette_api::{Disk, Kind, Origin, Problem};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::disks::{grow, place, target_key};
use super::layout::page;
use super::{Failed, Filtered, Pages, View, hosts, note_of_origin, size, text, troubles};
use crate::call::{As, Call, Field, Place, check, form, segment};

pub(super) async fn list(pages: Pages, Query(filter): Filtered) -> Result<Markup, Failed> {
    let view = pages.view().await?;
    let texts = |(name, target, _): &(&str, &Document, Origin)| format!("{name} {}", text(target, "alias"));
    let (targets, note) = filter.rows(view.catalog.of(Kind::Target), texts);
    let sessions = |name: &str| view.sessions.iter().filter(|session| session.target.as_deref() == Some(name)).count();
    let content = html! {
        h1 { "Targets" }
        (filter.field("/console/targets"))
        div.wide {
            table {
                thead { tr { th { "Name" } th { "Alias" } th { "LUNs" } th { "Hosts" } th { "Sessions" } } }
                tbody {
                    @for (name, target, _) in targets {
                        tr {
                            td { a href={ "/console/targets/" (segment(name)) } { (name) } }
                            td { (text(target, "alias")) }
                            td { (Part::Lun.all(target).len()) }
                            td { (Part::Host.all(target).len()) }
                            td { (sessions(name)) }
                        }
                    }
                }
            }
        }
        (note)
        section aria-labelledby="new" { h2 id="new" { "Add a target" } (add()) }
    };
    Ok(page(view.access, "Targets", "/console/targets", &content))
}

fn add() -> Markup {
    let call = Call::add(&Place(&["targets"]), "name");
    let fields = html! {
        (Field { name: "name", label: "Name", kind: As::Path, value: "", hint: "iqn.2026-11.org.example:db", required: true }.show())
        (Field { name: "alias", label: "Alias, for people", kind: As::Text, value: "", hint: "", required: false }.show())
        (Field { name: "allow", label: "Initiators that are let in (none when empty, * for all)", kind: As::List, value: "", hint: "iqn.2026-11.org.example:host", required: false }.show())
        (call.submit("add-target", "Add the target"))
    };
    form(&json!({}), &fields)
}

/// One target.
pub(super) async fn get(pages: Pages, Path(name): Path<String>) -> Result<Markup, Failed> {
    let view = pages.view().await?;
    let key = target_key(&name).map_err(|problem| pages.failed(problem))?;
    let found = view.catalog.find(&key).ok_or_else(|| pages.failed(Problem::not_found(&key.to_string())))?;
    let origin = if view.catalog.main.get(&key).is_some() { Origin::Main } else { Origin::ConfD };
    let content = html! {
        h1 { (name) }
        @if !text(found, "alias").is_empty() { p { (text(found, "alias")) } }
        (note_of_origin(&view.catalog, origin))
        (troubles(view.troubles.iter().filter(|trouble| trouble.of_target() == Some(&*name))))
        @if Part::Host.all(found).is_empty() { (admission(found)) }
        (luns(&view, &name, found, origin))
        (hosts_of(&name, found, origin))
        p { a href={ "/console/sessions?q=" (segment(&name)) } { "Sessions of this target" } }
        @if origin == Origin::ConfD { (whole(&name)) }
    };
    Ok(page(view.access, &name, "/console/targets", &content))
}

/// The initiators that are let in when the target has no hosts.
fn admission(target: &Document) -> Markup {
    html! {
        @match super::texts(target, "allow") {
            None => p.note { "All initiators are let in: the target has neither hosts nor " code { "allow" } "." },
            Some(names) if names.is_empty() => p.note { "No initiator is let in: " code { "allow" } " is empty." },
            Some(names) => p { "Initiators that are let in: " (names.join(", ")) },
        }
    }
}

fn luns(view: &View, name: &str, target: &Document, origin: Origin) -> Markup {
    let served =
        |number: u64| view.disks.iter().find(|disk: &&Disk| disk.target == name && u64::from(disk.number) == number);
    html! {
        section aria-labelledby="luns" {
            h2 id="luns" { "Logical units" }
            div.wide {
                table {
                    thead { tr { th { "LUN" } th { "Disk" } th { "Size" } th { "Serial number" } th { "" } th { "" } } }
                    tbody {
                        @for unit in Part::Lun.all(target) {
                            @let number = unit.get("number").and_then(Value::as_u64).unwrap_or_default();
                            tr {
                                td { (number) }
                                td { code { (place(unit)) } @if unit.get("read_only") == Some(&Value::Bool(true)) { " read-only" } }
                                td { @if let Some(disk) = served(number) { (size(disk.size_bytes)) } }
                                td { @if let Some(disk) = served(number) { code { (disk.serial) } } }
                                td { @if origin == Origin::ConfD { (grow(name, unit)) } }
                                td { @if origin == Origin::ConfD { (remove_lun(name, number)) } }
                            }
                        }
                    }
                }
            }
            @if origin == Origin::ConfD { details { summary { "Add a logical unit" } (add_lun(name)) } }
        }
    }
}

fn add_lun(target: &str) -> Markup {
    let call = Call::add(&Place(&["targets", target, "luns"]), "number");
    let fields = html! {
        (Field { name: "number", label: "LUN", kind: As::Path, value: "", hint: "0", required: true }.show())
        (Field { name: "disk", label: "Disk", kind: As::Text, value: "", hint: "/srv/db.img, /dev/vg0/db, mem:1G", required: true }.show())
        (Field { name: "create", label: "Size, when the file is to be created", kind: As::Text, value: "", hint: "100G", required: false }.show())
        (Field { name: "block_size", label: "Bytes of a block", kind: As::Number, value: "", hint: "512", required: false }.show())
        (check("read_only", "Refuse writes", "true", false))
        (call.submit("add-lun", "Add the logical unit"))
    };
    form(&json!({}), &fields)
}

fn remove_lun(target: &str, number: u64) -> Markup {
    Call::remove(&Place(&["targets", target, "luns", &number.to_string()]))
        .confirm(format!(
            "Remove LUN {number} of {target}? Its initiators lose it at once. The disk itself stays as it is."
        ))
        .button(&format!("remove-lun-{number}"), "Remove")
}

fn hosts_of(name: &str, target: &Document, origin: Origin) -> Markup {
    html! {
        section aria-labelledby="hosts" {
            h2 id="hosts" { "Hosts" }
            div.wide {
                table {
                    thead { tr { th { "Host" } th { "Initiators" } th { "Networks" } th { "Sees" } th { "" } } }
                    tbody {
                        @for host in Part::Host.all(target).iter().filter_map(Value::as_object) {
                            tr { (hosts::cells(name, host, origin)) }
                        }
                    }
                }
            }
            @if origin == Origin::ConfD {
                details { summary { "Add a host" } (hosts::rules(name, target, None)) }
            }
        }
    }
}

/// The target with all of its keys, and its end.
fn whole(name: &str) -> Markup {
    let parts = ["targets", name];
    let place = Place(&parts);
    let change = Call::replace(&place);
    let remove = Call::remove(&place)
        .confirm(format!(
            "Remove the target {name}? Its sessions are asked to log out. The disks themselves stay as they are."
        ))
        .then("/console/targets");
    let fields = html! {
        label { "Keys of the target, as JSON"
            textarea data-as="document" data-load=(place.url()) rows="16" spellcheck="false" {}
        }
        (change.submit("change-target", "Change the target"))
    };
    html! {
        details { summary { "All keys" } (form(&json!({}), &fields)) }
        (remove.button("remove-target", "Remove the target"))
    }
}
