//! Hosts: which initiators see which disks.

use axum::extract::{Path, Query};
use lunette_api::edits::Part;
use lunette_api::objects::Document;
use lunette_api::{Kind, Origin, Problem};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::disks::target_key;
use super::layout::page;
use super::{Failed, Filtered, Pages, note_of_origin, text, texts};
use crate::call::{As, Call, Field, Place, check, form, segment};

pub(super) async fn list(pages: Pages, Query(filter): Filtered) -> Result<Markup, Failed> {
    let catalog = pages.server.catalog();
    let all = catalog.of(Kind::Target).flat_map(|(target, document, origin)| {
        Part::Host.all(document).iter().filter_map(Value::as_object).map(move |host| (target, host, origin))
    });
    let (hosts, note) = filter.rows(all, |(target, host, _)| {
        format!("{target} {} {} {}", text(host, "name"), initiators(host), networks(host))
    });
    let content = html! {
        h1 { "Hosts" }
        p { "A host is one initiator or several with the same rules. A target without hosts lets in all that its " code { "allow" } " names." }
        (filter.field("/console/hosts"))
        div.wide {
            table {
                thead { tr { th { "Target" } th { "Host" } th { "Initiators" } th { "Networks" } th { "Sees" } th { "" } } }
                tbody {
                    @for (target, host, origin) in hosts {
                        tr {
                            td { a href={ "/console/targets/" (segment(target)) } { (target) } }
                            (cells(target, host, origin))
                        }
                    }
                }
            }
        }
        (note)
    };
    Ok(page(pages.access, "Hosts", "/console/hosts", &content))
}

/// One host, with the form of its rules.
pub(super) async fn get(pages: Pages, Path((target, name)): Path<(String, String)>) -> Result<Markup, Failed> {
    let catalog = pages.server.catalog();
    let find = || {
        let key = target_key(&target)?;
        let document = catalog.find(&key).ok_or_else(|| Problem::not_found(&key.to_string()))?;
        let host = Part::Host.find(document, &name)?.filter(Value::is_object);
        let host = host.ok_or_else(|| Problem::not_found(&format!("host {name} of target {target}")))?;
        let origin = if catalog.main.get(&key).is_some() { Origin::Main } else { Origin::ConfD };
        Ok((document, host, origin))
    };
    let (document, host, origin) = find().map_err(|problem| pages.failed(problem))?;
    let content = html! {
        p { a href={ "/console/targets/" (segment(&target)) } { (target) } }
        h1 { "Host " (name) }
        (note_of_origin(&catalog, origin))
        @if origin == Origin::ConfD {
            (rules(&target, document, Some(&host)))
            (remove(&target, &name))
        }
    };
    Ok(page(pages.access, &name, "/console/hosts", &content))
}

/// The cells of a host in a table, and its buttons.
pub(super) fn cells(target: &str, host: &Document, origin: Origin) -> Markup {
    let name = text(host, "name");
    let edit = format!("/console/targets/{}/hosts/{}", segment(target), segment(name));
    html! {
        td { (name) }
        td { (initiators(host)) }
        td { (networks(host)) }
        td { (sees(host)) }
        td { @if origin == Origin::ConfD { a href=(edit) { "Change" } } }
    }
}

fn remove(target: &str, name: &str) -> Markup {
    Call::remove(&Place(&["targets", target, "hosts", name]))
        .confirm(format!(
            "Remove the host {name}? Its sessions are asked to log out. A target that loses its last host lets in no initiator."
        ))
        .then("/console/hosts")
        .button("remove-host", "Remove the host")
}

/// The form of a host's rules. Without a host, it adds one.
pub(super) fn rules(target: &str, document: &Document, host: Option<&Value>) -> Markup {
    let empty = json!({});
    let shown = host.unwrap_or(&empty);
    let none = Document::new();
    let rules = shown.as_object().unwrap_or(&none);
    let name = text(rules, "name");
    let call = match host {
        Some(host) => Call::replace(&Place(&["targets", target, "hosts", name])).of(host),
        None => Call::add(&Place(&["targets", target, "hosts"]), "name"),
    };
    let lines = |key| texts(rules, key).unwrap_or_default().join(" ");
    let is_read_only = rules.get("read_only") == Some(&Value::Bool(true));
    let (initiators, networks) = (lines("initiators"), lines("networks"));
    let fields = html! {
        @if host.is_none() {
            (Field { name: "name", label: "Name", kind: As::Path, value: "", hint: "node-a", required: true }.show())
        }
        (Field { name: "initiators", label: "Initiator names (all when empty)", kind: As::List, value: &initiators, hint: "iqn.2026-11.org.example:node-a", required: false }.show())
        (Field { name: "networks", label: "Networks (all when empty)", kind: As::List, value: &networks, hint: "192.0.2.0/24", required: false }.show())
        (check("read_only", "May not write", "true", is_read_only))
        (chap(rules))
        (mask(document, rules))
        (call.submit(if host.is_some() { "change-host" } else { "add-host" }, if host.is_some() { "Change the host" } else { "Add the host" }))
    };
    form(shown, &fields)
}

/// With which users the initiators of a host log in, and how the target proves itself to them.
fn chap(host: &Document) -> Markup {
    let users = host.get("chap").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    // One more row than there are users, for another one.
    let rows = users.iter().map(Some).chain([None]);
    html! {
        fieldset data-key="chap" data-as="chap" {
            legend { "Users of CHAP (no proof is asked for without one)" }
            @for user in rows { div.row data-chap { (credentials(user)) } }
        }
        fieldset data-key="mutual_chap" data-as="credentials" {
            legend { "How the target proves itself, to initiators that ask" }
            div.row { (credentials(host.get("mutual_chap"))) }
        }
    }
}

/// A user, and the file on the server that holds its secret.
fn credentials(shown: Option<&Value>) -> Markup {
    let value = |key| shown.and_then(|shown| shown.get(key)).and_then(Value::as_str);
    html! {
        label { "User" input data-user value=[value("user")] autocomplete="off" autocapitalize="none" spellcheck="false"; }
        label { "File of its secret" input data-file value=[value("secret_file")] placeholder="/etc/lunette/secrets/node-a" autocomplete="off" spellcheck="false"; }
    }
}

/// Which logical units a host sees, under which numbers.
fn mask(target: &Document, host: &Document) -> Markup {
    let map = host.get("lun").and_then(Value::as_array);
    html! {
        fieldset data-key="lun" data-as="mask" {
            legend { "Logical units" }
            label.check { input type="checkbox" data-all checked[map.is_none()]; "All of them, under their own numbers" }
            @for unit in Part::Lun.all(target) {
                @if let Some(number) = unit.get("number").and_then(Value::as_u64) {
                    @let entry = map.and_then(|map| map.iter().find(|entry| entry.get("number").and_then(Value::as_u64) == Some(number)));
                    @let shown_as = entry.and_then(|entry| entry.get("as")).and_then(Value::as_u64);
                    @let read_only = entry.is_some_and(|entry| entry.get("read_only") == Some(&Value::Bool(true)));
                    div.row data-lun=(number) {
                        label.check { input type="checkbox" data-sees checked[entry.is_some()]; "LUN " (number) }
                        label { "as" input data-number inputmode="numeric" value=[shown_as] placeholder=(number) autocomplete="off"; }
                        label.check { input type="checkbox" data-read-only checked[read_only]; "may not write" }
                    }
                }
            }
        }
    }
}

fn initiators(host: &Document) -> String {
    texts(host, "initiators").map_or("all".into(), |all| all.join(", "))
}

fn networks(host: &Document) -> String {
    texts(host, "networks").map_or("all".into(), |all| all.join(", "))
}

fn sees(host: &Document) -> String {
    let of_host = if host.get("read_only") == Some(&Value::Bool(true)) { ", read-only" } else { "" };
    let Some(map) = host.get("lun").and_then(Value::as_array) else { return format!("all LUNs{of_host}") };
    let number = |entry: &Value, key| entry.get(key).and_then(Value::as_u64);
    let entries = map.iter().filter_map(|entry| {
        let lun = number(entry, "number")?;
        let shown_as =
            number(entry, "as").filter(|shown| *shown != lun).map_or(String::new(), |shown| format!(" as {shown}"));
        let read_only = if entry.get("read_only") == Some(&Value::Bool(true)) { " (read-only)" } else { "" };
        Some(format!("LUN {lun}{shown_as}{read_only}"))
    });
    let entries: Vec<String> = entries.collect();
    if entries.is_empty() { "nothing".into() } else { format!("{}{of_host}", entries.join(", ")) }
}
