//! The disks of all logical units, as they are served now.

use std::collections::BTreeMap;

use axum::extract::Query;
use lunette_api::edits::Part;
use lunette_api::{Disk, Key, Kind, Origin};
use maud::{Markup, html};
use serde_json::Value;

use super::layout::page;
use super::{Failed, Filtered, Pages, View, size, text};
use crate::call::{As, Call, Field, Place, form, segment};

pub(super) async fn list(pages: Pages, Query(filter): Filtered) -> Result<Markup, Failed> {
    let view = pages.view().await?;
    let units = Units::new(&view);
    let texts = |disk: &&Disk| format!("{} {} {} {}", disk.target, disk.number, disk.serial, units.place(disk));
    let (disks, note) = filter.rows(view.disks.iter(), texts);
    let content = html! {
        h1 { "Disks" }
        (filter.field("/console/disks"))
        div.wide {
            table {
                thead { tr { th { "Target" } th { "LUN" } th { "Disk" } th { "Size" } th { "Blocks" } th { "Serial number" } th { "" } } }
                tbody {
                    @for disk in disks {
                        tr {
                            td { a href={ "/console/targets/" (segment(&disk.target)) } { (disk.target) } }
                            td { (disk.number) }
                            td { code { (units.place(disk)) } }
                            td { (size(disk.size_bytes)) }
                            td { (disk.block_size) " B" }
                            td { code { (disk.serial) } }
                            td {
                                @if let Some(unit) = units.changeable(disk) { (grow(&disk.target, unit)) }
                                (scrub(&disk.target, disk.number))
                            }
                        }
                    }
                }
            }
        }
        (note)
    };
    Ok(page(view.access, "Disks", "/console/disks", &content))
}

/// The documents of all logical units, by target and LUN.
struct Units<'a>(BTreeMap<(&'a str, u64), (&'a Value, Origin)>);

impl<'a> Units<'a> {
    fn new(view: &'a View) -> Self {
        let targets = view.catalog.of(Kind::Target);
        let units = targets.flat_map(|(target, document, origin)| {
            let units = Part::Lun.all(document).iter();
            units.filter_map(move |unit| Some(((target, unit.get("number")?.as_u64()?), (unit, origin))))
        });
        Self(units.collect())
    }

    fn place(&self, disk: &Disk) -> String {
        self.0.get(&(disk.target.as_str(), u64::from(disk.number))).map(|(unit, _)| place(unit)).unwrap_or_default()
    }

    /// The document, if the API may change it.
    fn changeable(&self, disk: &Disk) -> Option<&'a Value> {
        let (unit, origin) = self.0.get(&(disk.target.as_str(), u64::from(disk.number)))?;
        (*origin == Origin::ConfD).then_some(unit)
    }
}

/// Where the blocks of a logical unit live, without the passwords that an iSCSI URL may hold.
pub(super) fn place(unit: &Value) -> String {
    let disk = unit.as_object().map(|unit| text(unit, "disk")).unwrap_or_default();
    match disk.split_once("://") {
        Some((scheme, rest)) => {
            let place = rest.split('?').next().unwrap_or_default();
            let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
            format!("{scheme}://{place}")
        }
        None => disk.into(),
    }
}

/// The form that makes a file longer; nothing for a disk that is no file. Its document holds a path, and so no
/// password.
pub(super) fn grow(target: &str, unit: &Value) -> Markup {
    let place = place(unit);
    let Some(number) = unit.get("number").and_then(Value::as_u64) else { return html! {} };
    if !place.starts_with('/') || place.starts_with("/dev/") || place.contains('?') {
        return html! {};
    }
    let call = Call::resize(&Place(&["targets", target, "luns", &number.to_string()])).of(unit);
    let create = unit.as_object().map(|unit| text(unit, "create")).unwrap_or_default();
    let id = format!("grow-{target}-{number}");
    let fields = html! {
        (Field { name: "create", label: "New size", kind: As::Text, value: create, hint: "200G", required: true }.show())
        (call.submit(&id, "Grow"))
    };
    html! { details { summary { "Grow" } (form(unit, &fields)) } }
}

/// The button that has all blocks of a disk read once.
fn scrub(target: &str, number: u16) -> Markup {
    let lun = number.to_string();
    let call = Call::scrub(&Place(&["targets", target, "luns", &lun]));
    html! { details { summary { "Scrub" } (call.button(&format!("scrub-{target}-{number}"), "Read all blocks")) } }
}

/// Whether there is such a target, and what it is called.
pub(super) fn target_key(name: &str) -> Result<Key, lunette_api::Problem> {
    Key::new(Kind::Target, name).map_err(lunette_api::Problem::bad_request)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_show_no_password() {
        for (disk, expected) in [
            ("/srv/a@b.img", "/srv/a@b.img"),
            ("iscsi://alice%hush@192.0.2.1/iqn.a/0?target_password=hush", "iscsi://192.0.2.1/iqn.a/0"),
            ("iscsi://a%hu@sh@h/iqn.a/0", "iscsi://h/iqn.a/0"),
            ("rbd:pool/image", "rbd:pool/image"),
        ] {
            assert_eq!(place(&json!({ "disk": disk })), expected);
        }
    }

    #[test]
    fn only_files_grow_here() {
        let form = |disk: &str| grow("iqn.a", &json!({ "number": 0, "disk": disk })).into_string();
        assert!(form("/srv/a.img").contains("hx-put=\"/v1/targets/iqn.a/luns/0\""));
        for disk in ["mem:1G", "/dev/vg0/a", "iscsi://a%hush@h/iqn.a/0", "rbd:a/b", "/srv/a?keys=/k"] {
            assert_eq!(form(disk), "");
        }
    }
}
