//! Pools with their space, volumes, and a volume with its snapshots and clones.

use axum::extract::{Path, Query};
use lunette_api::volumes::{Labels, Pool, Snapshot, TakingOver, Volume, VolumePath};
use lunette_api::{Access, Caller, Problem};
use maud::{Markup, html};
use serde_json::json;
use time::OffsetDateTime;

use super::layout::page;
use super::{Failed, Filtered, Pages, size};
use crate::call::{As, Call, Field, Place, form, segment};

pub(super) async fn list(pages: Pages, caller: Caller, Query(filter): Filtered) -> Result<Markup, Failed> {
    let read = move |server: &dyn lunette_api::Server| -> Result<_, Problem> {
        let Some(all) = server.volumes() else { return Ok((Vec::new(), Vec::new())) };
        Ok((all.pools(&caller), all.volumes(None)?))
    };
    let (pools, volumes) = pages.ask(read).await?;
    let texts =
        |volume: &&Volume| format!("{}/{} {} {}", volume.pool, volume.name, volume.serial, words(&volume.labels));
    let (shown, note) = filter.rows(volumes.iter(), texts);
    let content = html! {
        h1 { "Volumes" }
        @if pools.is_empty() { p.note { "The configuration has no " code { "[[pool]]" } "." } }
        @for pool in &pools { (show_pool(pool)) }
        @if !pools.is_empty() {
            (filter.field("/console/volumes"))
            (table(&shown))
            (note)
        }
    };
    Ok(page(pages.access, "Volumes", "/console/volumes", &content))
}

pub(super) async fn get(pages: Pages, Path(at): Path<VolumePath>) -> Result<Markup, Failed> {
    let read = move |server: &dyn lunette_api::Server| {
        let all = server.volumes().ok_or_else(|| Problem::not_found("pool"))?;
        Ok((all.volume(&at)?, all.snapshots(&at)?, all.volumes(Some(&at.pool))?))
    };
    let (volume, snapshots, all) = pages.ask(read).await?;
    Ok(one(pages.access, &volume, &snapshots, &all))
}

/// A pool, with a bar of its space.
fn show_pool(pool: &Pool) -> Markup {
    let Pool { name, place, trouble, volumes, committed_bytes, total_bytes, used_bytes, free_bytes, is_low, .. } = pool;
    html! {
        section data-pool=(name) {
            h2 { "Pool " (name) }
            p { code { (place) } ", " (volumes) @if *volumes == 1 { " volume of " } @else { " volumes of " } (size(*committed_bytes)) @if *volumes != 1 { " together" } }
            @if let Some(why) = trouble { p.error role="alert" { (why) } }
            @else {
                // Beyond both bounds, with the optimum below them, the bar has the colour of what is wrong.
                @let bound = is_low.then_some(1);
                meter min="0" low=[bound] high=[bound] optimum=[bound.map(|_| 0)] max=(total_bytes) value=(used_bytes) aria-label={ "Space of " (name) } {}
                p { (size(*used_bytes)) " used, " (size(*free_bytes)) " free of " (size(*total_bytes)) }
                @if *is_low { p.error role="alert" { "Less is free than " code { "low_space" } " wants." } }
                @if committed_bytes > total_bytes { p.note { "The volumes are promised more than there is." } }
                @if let (Some(quota), Some(used)) = (pool.quota_bytes, pool.quota_used_bytes) {
                    p { "Your volumes have " (size(used)) " of the " (size(quota)) " of your quota." }
                }
                (create(name))
            }
        }
    }
}

/// The form that creates a volume of a pool.
fn create(pool: &str) -> Markup {
    let call = Call::create_volume(pool);
    let fields = html! {
        (Field { name: "name", label: "Name", kind: As::Path, value: "", hint: "db", required: true }.show())
        (Field { name: "size_bytes", label: "Bytes", kind: As::Number, value: "", hint: "10737418240", required: true }.show())
        (call.submit(&format!("create-{pool}"), "Create"))
    };
    html! { details { summary { "New volume" } (form(&json!({}), &fields)) } }
}

fn table(volumes: &[&Volume]) -> Markup {
    html! {
        div.wide {
            table {
                thead { tr { th { "Volume" } th { "Size" } th { "Clone of" } th { "LUNs" } th { "Labels" } th { "Serial number" } } }
                tbody {
                    @for volume in volumes {
                        tr {
                            td { a href=(link(&volume.pool, &volume.name)) { (volume.pool) "/" (volume.name) } }
                            td { (size(volume.size_bytes)) }
                            td { (origin(volume)) }
                            td { @if volume.filling { "being filled" } @else { (luns(&volume.luns)) } }
                            td { (words(&volume.labels)) }
                            td { code { (volume.serial) } }
                        }
                    }
                }
            }
        }
    }
}

/// How far a volume is with the disk that it takes over.
fn taking_over(copy: &TakingOver) -> Markup {
    let TakingOver { source, done_bytes, total_bytes, trouble } = copy;
    html! {
        p.note {
            "It takes over " code { (source) } ": " (size(*done_bytes)) " of " (size(*total_bytes)) " are copied."
            @if let Some(trouble) = trouble { " The copy waits: " (trouble) }
        }
    }
}

/// A volume, with the tree of its snapshots and their clones.
fn one(access: Access, volume: &Volume, snapshots: &[Snapshot], all: &[Volume]) -> Markup {
    let name = format!("{}/{}", volume.pool, volume.name);
    let parts = ["volumes", &volume.pool, &volume.name];
    let clones = |snapshot: Option<&str>| {
        let origin = snapshot.map_or_else(|| volume.name.clone(), |snapshot| format!("{}@{snapshot}", volume.name));
        all.iter().filter(move |other| other.origin.as_ref() == Some(&origin)).collect::<Vec<_>>()
    };
    let question = format!("Remove the volume {name}, with all that is on it?");
    let remove = Call::remove_volume(&Place(&parts)).confirm(question).then("/console/volumes");
    let content = html! {
        h1 { "Volume " (name) }
        section {
            p { (size(volume.size_bytes)) ", serial number " code { (volume.serial) } ", " (luns(&volume.luns)) }
            @if let Some(own) = volume.own_bytes {
                p { (size(own)) " of its own" @if let Some(shared) = volume.shared_bytes { ", " (size(shared)) " shared" } }
            }
            @if volume.origin.is_some() { p { "Clone of " (origin(volume)) } }
            @if !volume.labels.is_empty() { p { (words(&volume.labels)) } }
            @if volume.filling { p.note { "It is being filled." } }
            @if let Some(copy) = &volume.taking_over { (taking_over(copy)) }
            (snapshot(&name))
        }
        section {
            h2 { "Snapshots" }
            @if snapshots.is_empty() { p.note { "There are none." } }
            ul.tree {
                @for snapshot in snapshots {
                    li data-snapshot=(snapshot.name) {
                        strong { (snapshot.name) } " " time { (moment(snapshot.created)) }
                        (size(snapshot.size_bytes)) ", " (luns(&snapshot.luns)) " " (words(&snapshot.labels))
                        (clone_list(&clones(Some(&snapshot.name))))
                        div.actions { (actions(volume, snapshot)) }
                    }
                }
            }
            (clone_list(&clones(None)))
        }
        section { h2 { "Remove" } (remove.button("remove", "Remove the volume")) }
    };
    page(access, &format!("Volume {name}"), "/console/volumes", &content)
}

fn clone_list(clones: &[&Volume]) -> Markup {
    html! {
        @if !clones.is_empty() {
            ul {
                @for clone in clones { li { "clone " a href=(link(&clone.pool, &clone.name)) { (clone.name) } } }
            }
        }
    }
}

/// The form that takes a snapshot.
fn snapshot(name: &str) -> Markup {
    let call = Call::snapshot(name);
    let fields = html! {
        (Field { name: "name", label: "Name", kind: As::Text, value: "", hint: "monday", required: true }.show())
        (call.submit("snapshot", "Take a snapshot"))
    };
    html! { details { summary { "Snapshot" } (form(&json!({ "volumes": [name] }), &fields)) } }
}

/// The actions on a snapshot.
fn actions(volume: &Volume, snapshot: &Snapshot) -> Markup {
    let parts = ["volumes", &volume.pool, &volume.name, "snapshots", &snapshot.name];
    let (place, id) = (Place(&parts), &snapshot.name);
    let origin = format!("{}@{}", volume.name, snapshot.name);
    let clone = Call::clone_volume(&volume.pool, &origin);
    let fields = html! {
        (Field { name: "name", label: "Name of the clone", kind: As::Path, value: "", hint: "web-1", required: true }.show())
        (clone.submit(&format!("clone-{id}"), "Clone"))
    };
    let document = json!({ "clone_of": origin });
    let question = format!("Give {} the content of {id}? Its content of now becomes a snapshot.", volume.name);
    let roll_back = Call::roll_back(&place).confirm(question);
    let remove = Call::remove_volume(&place).confirm(format!("Remove the snapshot {id}?"));
    html! {
        details { summary { "Clone" } (form(&document, &fields)) }
        details { summary { "Roll back" } (roll_back.button(&format!("rollback-{id}"), "Roll back")) }
        details { summary { "Remove" } (remove.button(&format!("remove-{id}"), "Remove")) }
    }
}

/// The origin of a clone, as a link to its volume.
fn origin(volume: &Volume) -> Markup {
    let Some(origin) = &volume.origin else { return html! { "-" } };
    let of = origin.split('@').next().unwrap_or_default();
    html! { a href=(link(&volume.pool, of)) { (origin) } }
}

fn luns(luns: &[String]) -> Markup {
    html! {
        @if luns.is_empty() { "not served" } @else { "served by " code { (luns.join(", ")) } }
    }
}

/// A time in seconds since 1970, to the minute.
fn moment(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let text = |time: OffsetDateTime| format!("{} {:02}:{:02} UTC", time.date(), time.hour(), time.minute());
    time.map_or_else(|| "-".into(), text)
}

fn words(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

fn link(pool: &str, volume: &str) -> String {
    format!("/console/volumes/{}/{}", segment(pool), segment(volume))
}
