//! The objects and parts of objects that a client writes.

use lunette_api::edits::Part;
use lunette_api::{Document, Key, Kind, Objects, Subject};
use serde_json::Value;

/// The objects, logical units and hosts in which a change puts something. Those from which it only takes something are
/// none of them: it may be the way to mend them.
pub(super) struct Written(Vec<Subject>);

impl Written {
    /// The subjects that differ between the objects before and after a change.
    pub(super) fn of(before: &Objects, after: &Objects) -> Self {
        let nothing = Document::new();
        let mut written = Vec::new();
        for key in before.changed(after) {
            let Some(now) = after.get(key) else { continue };
            let old = before.get(key).unwrap_or(&nothing);
            if only_removes(old, now) {
                continue;
            }
            written.push(subject(key));
            if key.kind == Kind::Target {
                written.extend(parts(&key.name, old, now));
            }
        }
        Self(written)
    }

    pub(super) fn has(&self, subject: &Subject) -> bool {
        self.0.contains(subject)
    }
}

fn subject(key: &Key) -> Subject {
    match key.kind {
        Kind::Portal => Subject::Portal(key.name.clone()),
        Kind::Target => Subject::Target(key.name.clone()),
    }
}

/// Whether all that a document has was in it before.
fn only_removes(old: &Document, now: &Document) -> bool {
    now.iter().all(|(key, value)| match (old.get(key), value) {
        (Some(Value::Array(old)), Value::Array(now)) => now.iter().all(|one| old.contains(one)),
        // A target that loses its last host gets it.
        (None, Value::Array(now)) => now.is_empty(),
        (old, now) => old == Some(now),
    })
}

/// The parts of a target that were not in it before.
fn parts(target: &str, old: &Document, now: &Document) -> Vec<Subject> {
    let new = |part: Part| part.all(now).iter().filter(move |one| !part.all(old).contains(one));
    let number = |lun: &Value| u16::try_from(lun.get("number")?.as_u64()?).ok();
    let luns = new(Part::Lun).filter_map(|lun| Some(Subject::lun(target, number(lun)?)));
    let hosts = new(Part::Host).filter_map(|host| Some(Subject::host(target, host.get("name")?.as_str()?)));
    luns.chain(hosts).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(before: &Value, after: &Value) -> Vec<String> {
        let objects = |value: &Value| {
            let mut objects = Objects::default();
            if let Value::Object(document) = value {
                objects.put(Key::new(Kind::Target, "iqn.a").unwrap(), document.clone()).unwrap();
            }
            objects
        };
        Written::of(&objects(before), &objects(after)).0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_taken_away_is_not_written() {
        let before = json!({ "alias": "x", "lun": [{ "number": 0 }, { "number": 1 }], "host": [{ "name": "h" }] });
        for after in [
            Value::Null,
            json!({ "lun": [{ "number": 1 }], "host": [{ "name": "h" }] }),
            json!({ "alias": "x", "lun": [], "allow": [] }),
        ] {
            assert_eq!(written(&before, &after), [""; 0], "{after}");
        }
    }

    #[test]
    fn an_object_is_written_with_the_parts_that_are_new() {
        let before = json!({ "lun": [{ "number": 0 }, { "number": 1 }], "host": [{ "name": "h" }] });
        let after = json!({ "lun": [{ "number": 0 }, { "number": 1, "disk": "/d" }], "host": [{ "name": "i" }] });
        assert_eq!(written(&before, &after), ["target iqn.a", "target iqn.a: LUN 1", "target iqn.a: host i"]);
        assert_eq!(written(&before, &json!({ "alias": "y" })), ["target iqn.a"]);
        assert_eq!(written(&Value::Null, &json!({ "lun": [{ "number": 2 }] })).len(), 2);
    }
}
