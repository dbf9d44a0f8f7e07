//! The paths of disks that clients of the API name.

use std::path::Path;

use lunette_api::{Document, Kind, Objects, Problem};
use serde_json::Value;

use crate::disks::DiskName;

/// Refuses new disks with a relative path. It would begin at the folder of the server, which its clients do not know.
/// One that a file of `conf.d` says already stays.
pub(super) fn check(stored: &Objects, wanted: &Objects) -> Result<(), Problem> {
    for key in stored.changed(wanted).filter(|key| key.kind == Kind::Target) {
        let known: Vec<&str> = stored.get(key).into_iter().flat_map(disks).map(|(_, disk)| disk).collect();
        for (number, disk) in wanted.get(key).into_iter().flat_map(disks) {
            if !known.contains(&disk) && is_relative(disk) {
                return Err(Problem::invalid(format!(
                    "{key}, LUN {number}: {disk:?} is a relative path; write the whole path, from /"
                )));
            }
        }
    }
    Ok(())
}

/// The numbers and disks of the logical units of a target.
fn disks(target: &Document) -> impl Iterator<Item = (&Value, &str)> {
    let luns = target.get("lun").and_then(Value::as_array).into_iter().flatten();
    luns.filter_map(|lun| Some((lun.get("number")?, lun.get("disk")?.as_str()?)))
}

fn is_relative(disk: &str) -> bool {
    disk.parse::<DiskName>().is_ok_and(|name| name.place.path().is_some_and(Path::is_relative))
}

#[cfg(test)]
mod tests {
    use lunette_api::Key;
    use serde_json::json;

    use super::*;

    fn objects(disks: &[&str]) -> Objects {
        let luns: Vec<Value> =
            (0..).zip(disks).map(|(number, disk)| json!({ "number": number, "disk": disk })).collect();
        let Value::Object(document) = json!({ "lun": luns }) else { unreachable!() };
        let mut objects = Objects::default();
        objects.put(Key::new(Kind::Target, "iqn.a").unwrap(), document).unwrap();
        objects
    }

    #[test]
    fn a_new_disk_has_a_whole_path() {
        let stored = objects(&["old.img"]);
        for (disk, may) in [
            ("/srv/a.img", true),
            ("mem:1M", true),
            ("iscsi://h/iqn.b/0", true),
            ("rbd:p/i", true),
            ("old.img", true),
            ("new.img", false),
            ("./new.img", false),
            ("new.img?keys=file:/k", false),
        ] {
            let checked = check(&stored, &objects(&["mem:2M", disk]));
            assert_eq!(checked.is_ok(), may, "{disk}: {checked:?}");
        }
        let problem = check(&Objects::default(), &objects(&["new.img"])).unwrap_err();
        assert!(problem.detail.contains("target iqn.a, LUN 0: \"new.img\" is a relative path"), "{problem}");
    }
}
