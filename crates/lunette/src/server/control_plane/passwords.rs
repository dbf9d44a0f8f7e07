//! The marks that the API shows instead of passwords, and the way back.
//!
//! The URL of a disk may hold passwords (`iscsi://USER%PASSWORD@HOST/…`). No client of the API is shown them: it reads,
//! and may write again, a URL with `***` in their place. A disk that is written so keeps the password that it has. A
//! client of some targets uses the passwords of these alone.

use std::borrow::Cow;

use lunette_api::{Caller, Catalog, Document, Kind, Objects, Problem};
use lunette_initiator::redacted;
use serde_json::Value;

/// A disk of which clients are shown something else.
struct Hidden<'a> {
    /// The target and the number of its logical unit.
    at: (Option<&'a Value>, Option<&'a Value>),
    shown: String,
    stored: &'a str,
}

/// The catalog as clients see it.
pub(super) fn hidden(mut catalog: Catalog) -> Catalog {
    let Catalog { main, objects, .. } = &mut catalog;
    for lun in [main, objects].into_iter().flat_map(|objects| objects.of_mut(Kind::Target)).flat_map(luns_mut) {
        if let Some(Value::String(disk)) = lun.get_mut("disk")
            && let Cow::Owned(shown) = redacted(disk)
        {
            *disk = shown;
        }
    }
    catalog
}

/// The objects that a client has written, with the passwords of those that are `stored`: at another place than before,
/// those of targets that the client sees. What stands for a password that is not found stays, and is refused when the
/// URL is read.
pub(super) fn restored(mut objects: Objects, stored: &Catalog, caller: &Caller) -> Objects {
    let known: Vec<Hidden<'_>> = stored.of(Kind::Target).flat_map(|(_, target, _)| hidden_of(target)).collect();
    if known.is_empty() {
        return objects;
    }
    for target in objects.of_mut(Kind::Target) {
        let name = target.get("name").cloned();
        for lun in luns_mut(target) {
            let number = lun.get("number").cloned();
            if let Some(Value::String(disk)) = lun.get_mut("disk")
                && let Some(stored) = find(&known, (name.as_ref(), number.as_ref()), disk, caller)
            {
                *disk = stored.to_owned();
            }
        }
    }
    objects
}

/// The disk that is shown as `shown`: that of the same logical unit, or the only one that the client sees.
fn find<'a>(
    known: &[Hidden<'a>],
    at: (Option<&Value>, Option<&Value>),
    shown: &str,
    caller: &Caller,
) -> Option<&'a str> {
    let all = known.iter().filter(|disk| disk.shown == shown);
    if let Some(same) = all.clone().find(|disk| disk.at == at) {
        return Some(same.stored);
    }
    // Of two that differ in their passwords alone, it is not known which is meant.
    let mut seen = all.filter(|disk| caller.sees(disk.at.0.and_then(Value::as_str)));
    let first = seen.next()?.stored;
    seen.all(|other| other.stored == first).then_some(first)
}

fn hidden_of(target: &Document) -> impl Iterator<Item = Hidden<'_>> {
    let luns = target.get("lun").and_then(Value::as_array).into_iter().flatten();
    luns.filter_map(|lun| {
        let stored = lun.get("disk")?.as_str()?;
        let Cow::Owned(shown) = redacted(stored) else { return None };
        Some(Hidden { at: (target.get("name"), lun.get("number")), shown, stored }).filter(|disk| disk.shown != stored)
    })
}

fn luns_mut(target: &mut Document) -> impl Iterator<Item = &mut Value> {
    target.get_mut("lun").and_then(Value::as_array_mut).into_iter().flatten()
}

/// A problem as clients see it.
pub(super) fn told(problem: Problem) -> Problem {
    Problem { detail: redacted(&problem.detail).into_owned(), ..problem }
}

#[cfg(test)]
mod tests {
    use lunette_api::Key;
    use serde_json::json;

    use super::*;

    /// Objects with one target each, which has these disks.
    fn objects(targets: &[(&str, &[&str])]) -> Objects {
        let mut objects = Objects::default();
        for (name, disks) in targets {
            let luns: Vec<Value> =
                disks.iter().enumerate().map(|(number, disk)| json!({ "number": number, "disk": disk })).collect();
            let Value::Object(document) = json!({ "lun": luns }) else { unreachable!() };
            objects.put(Key::new(Kind::Target, name).unwrap(), document).unwrap();
        }
        objects
    }

    const DISK: &str = "iscsi://u%hush@h/iqn.x/0?target_user=t&target_password=hush";
    const SHOWN: &str = "iscsi://u%***@h/iqn.x/0?target_user=t&target_password=***";

    fn stored() -> Catalog {
        let main = objects(&[("iqn.main", &["iscsi://u%hush-main@h/iqn.m/0"])]);
        Catalog { main, objects: objects(&[("iqn.a", &["mem:1M", DISK])]), ..Catalog::default() }
    }

    fn admin() -> Caller {
        Caller::admin("t", "here")
    }

    #[test]
    fn clients_see_no_password_and_what_they_write_back_keeps_it() {
        let shown = hidden(stored());
        assert_eq!(shown.objects, objects(&[("iqn.a", &["mem:1M", SHOWN])]));
        assert_eq!(shown.main, objects(&[("iqn.main", &["iscsi://u%***@h/iqn.m/0"])]));
        assert_eq!(restored(shown.objects, &stored(), &admin()), stored().objects);
    }

    #[test]
    fn a_disk_keeps_its_password_where_it_moves() {
        let moved = objects(&[("iqn.b", &[SHOWN])]);
        assert_eq!(restored(moved, &stored(), &admin()), objects(&[("iqn.b", &[DISK])]));
    }

    #[test]
    fn a_password_goes_to_no_other_place_and_to_no_disk_that_may_be_meant_otherwise() {
        let elsewhere = objects(&[("iqn.a", &["mem:1M", "iscsi://u%***@elsewhere/iqn.x/0"])]);
        assert_eq!(restored(elsewhere.clone(), &stored(), &admin()), elsewhere);
        let (one, two) = ("iscsi://u%one@h/iqn.x/0", "iscsi://u%two@h/iqn.x/0");
        let both = Catalog { objects: objects(&[("iqn.a", &[one, two])]), ..Catalog::default() };
        assert_eq!(restored(hidden(both.clone()).objects, &both, &admin()), both.objects);
        let third = objects(&[("iqn.b", &["iscsi://u%***@h/iqn.x/0"])]);
        assert_eq!(restored(third.clone(), &both, &admin()), third);
    }

    #[test]
    fn a_client_of_some_targets_uses_no_password_of_others() {
        let of = |target: &str| Caller { targets: Some(vec![target.into()]), ..admin() };
        let moved = objects(&[("iqn.b", &[SHOWN])]);
        assert_eq!(restored(moved.clone(), &stored(), &of("iqn.b")), moved);
        // What others have stays as it is.
        assert_eq!(restored(hidden(stored()).objects, &stored(), &of("iqn.b")), stored().objects);
        let own = objects(&[("iqn.a", &[SHOWN])]);
        assert_eq!(restored(own, &stored(), &of("iqn.a")), objects(&[("iqn.a", &[DISK])]));
    }
}
