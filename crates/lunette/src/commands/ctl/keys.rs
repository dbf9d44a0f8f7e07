//! KEY=VALUE arguments: the keys of a document, and their merge into one that is there.

use serde_json::map::Entry;
use serde_json::{Map, Value};

use crate::failure::Failure;

/// The key and the value of each argument. A key may lead into tables (`redirect.permanent`) and into lists of things
/// with a number or a name (`lun.0.read_only`).
pub(super) fn parse(arguments: &[String]) -> Result<Vec<(&str, Value)>, Failure> {
    arguments.iter().map(|text| parse_one(text)).collect()
}

/// Keys whose values are sizes, which the server takes as text: a number of bytes is one, too.
const SIZES: [&str; 7] = [
    "create",
    "scrub_rate",
    "thin_threshold",
    "sanitize_rate",
    "max_recv_data_segment_length",
    "max_burst_length",
    "first_burst_length",
];

fn parse_one(text: &str) -> Result<(&str, Value), Failure> {
    match text.split_once('=') {
        Some((key, value)) if is_key(key) => {
            let mut value = value_of(value);
            sizes_as_text(key.rsplit('.').next().unwrap_or(key), &mut value);
            Ok((key, value))
        }
        _ => Err(Failure::Usage(format!("{text:?}: write KEY=VALUE"))),
    }
}

/// Makes numbers texts where they are sizes, in the value of this key and in the tables of it.
fn sizes_as_text(key: &str, value: &mut Value) {
    match value {
        Value::Number(number) if SIZES.contains(&key) => *value = number.to_string().into(),
        Value::Object(keys) => keys.iter_mut().for_each(|(key, value)| sizes_as_text(key, value)),
        Value::Array(list) => list.iter_mut().for_each(|value| sizes_as_text(key, value)),
        _ => {}
    }
}

/// Whether no part of the key is empty.
fn is_key(key: &str) -> bool {
    !key.is_empty() && key.split('.').all(|part| !part.is_empty())
}

/// A value of TOML, or else text.
fn value_of(text: &str) -> Value {
    let parsed: Result<Map<String, Value>, _> = toml::from_str(&format!("value = {text}"));
    match parsed {
        Ok(mut table) if table.len() == 1 => table.remove("value").unwrap_or_default(),
        _ => text.into(),
    }
}

/// A document of these keys alone.
pub(super) fn document(keys: &[(&str, Value)]) -> Result<Value, Failure> {
    let mut document = Value::Object(Map::new());
    for (key, value) in keys {
        set(&mut document, key, value.clone(), false).map_err(Failure::Usage)?;
    }
    Ok(document)
}

/// Puts a value at a key of a document. A table goes into the table that is there. So do the logical units and the
/// hosts of a target, each into the one with its name. Any other value takes the place of what is there.
pub(super) fn set(document: &mut Value, key: &str, value: Value, is_target: bool) -> Result<(), String> {
    let place = find(document, key, true)?;
    match value {
        Value::Array(parts) if is_target && matches!(key, "lun" | "host") && place.is_array() => {
            if parts.is_empty() {
                return Err(format!(
                    "{key}=[] takes nothing out; write --unset {key} for all of them, or --unset {key}.NAME"
                ));
            }
            for part in parts {
                merge_part(place, part);
            }
        }
        value => merge(place, value),
    }
    Ok(())
}

/// Takes a key out of a document.
pub(super) fn unset(document: &mut Value, key: &str) -> Result<(), String> {
    let (table, last) = match key.rsplit_once('.') {
        Some((table, last)) => (find(document, table, false)?, last),
        None => (document, key),
    };
    let removed = match table {
        Value::Object(keys) => keys.remove(last),
        Value::Array(list) => position(list, last).map(|index| list.remove(index)),
        _ => None,
    };
    removed.map(drop).ok_or_else(|| format!("there is no {key}; `lunette ctl show` lists the keys"))
}

/// The place of a key. Tables on the way are made, if they may be.
fn find<'a>(document: &'a mut Value, key: &str, may_make: bool) -> Result<&'a mut Value, String> {
    let mut place = document;
    for part in key.split('.') {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        place = match place {
            Value::Object(keys) => match keys.entry(part) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(free) if may_make => free.insert(Value::Null),
                Entry::Vacant(_) => return Err(format!("there is no {key}")),
            },
            Value::Array(list) => {
                let index = position(list, part).ok_or_else(|| format!("{key}: there is no {part}; add it first"))?;
                &mut list[index]
            }
            _ => return Err(format!("{key}: what stands before {part} has no keys")),
        };
    }
    Ok(place)
}

/// The name of a part of a list: its `number` or its `name`.
fn name_of(part: &Value) -> Option<String> {
    match (part.get("number"), part.get("name")) {
        (Some(Value::Number(number)), _) => Some(number.to_string()),
        (_, Some(Value::String(name))) => Some(name.clone()),
        _ => None,
    }
}

fn position(list: &[Value], name: &str) -> Option<usize> {
    list.iter().position(|part| name_of(part).as_deref() == Some(name))
}

/// Puts a logical unit or a host into the list of a target.
fn merge_part(list: &mut Value, part: Value) {
    let Value::Array(list) = list else { return };
    match name_of(&part).and_then(|name| position(list, &name)) {
        Some(index) => merge(&mut list[index], part),
        None => list.push(part),
    }
}

fn merge(now: &mut Value, new: Value) {
    match (now, new) {
        (Value::Object(now), Value::Object(new)) => {
            for (key, value) in new {
                merge(now.entry(key).or_insert(Value::Null), value);
            }
        }
        (now, new) => *now = new,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document_of(arguments: &[&str]) -> Result<Value, String> {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let keys = parse(&arguments).map_err(|failure| failure.to_string())?;
        document(&keys).map_err(|failure| failure.to_string())
    }

    #[test]
    fn values_are_those_of_toml_or_else_text() {
        for (text, expected) in [
            ("10G", json!("10G")),
            ("4096", json!(4096)),
            ("true", json!(true)),
            ("\"4096\"", json!("4096")),
            ("/srv/a b", json!("/srv/a b")),
            ("[\"iqn.a\"]", json!(["iqn.a"])),
            ("{ to = [\"192.0.2.1\"] }", json!({ "to": ["192.0.2.1"] })),
            ("1\nother = 2", json!("1\nother = 2")),
        ] {
            assert_eq!(value_of(text), expected, "{text}");
        }
        for wrong in ["alias", "=x", ".a=1", "a.=1", "a..b=1"] {
            assert!(document_of(&[wrong]).is_err(), "{wrong}");
        }
        assert_eq!(document_of(&["alias=a=b"]), Ok(json!({ "alias": "a=b" })));
        for (size, expected) in [
            ("create=10G", json!({ "create": "10G" })),
            ("create=1073741824", json!({ "create": "1073741824" })),
            ("create=\"1GiB\"", json!({ "create": "1GiB" })),
            ("session.max_burst_length=65536", json!({ "session": { "max_burst_length": "65536" } })),
            ("lun=[{ number = 0, create = 4096 }]", json!({ "lun": [{ "number": 0, "create": "4096" }] })),
        ] {
            assert_eq!(document_of(&[size]), Ok(expected), "{size}");
        }
        assert_eq!(document_of(&["a.b=1", "a.c=2"]), Ok(json!({ "a": { "b": 1, "c": 2 } })));
        assert!(document_of(&["alias=x", "alias.y=1"]).unwrap_err().contains("has no keys"));
    }

    fn target() -> Value {
        json!({
            "alias": "old",
            "redirect": { "to": ["a"], "permanent": true },
            "lun": [{ "number": 0, "disk": "/a" }, { "number": 7, "disk": "/b", "read_only": true }],
            "host": [{ "name": "h", "initiators": ["iqn.i"], "lun": [{ "number": 7 }] }],
        })
    }

    /// The target after `set`, where it differs.
    fn after(argument: &str) -> Value {
        let (mut document, arguments) = (target(), [argument.to_owned()]);
        for (key, value) in parse(&arguments).unwrap() {
            set(&mut document, key, value, true).unwrap();
        }
        document
    }

    #[test]
    fn a_key_changes_and_the_others_stay() {
        for (argument, pointer, expected) in [
            ("alias=new", "/alias", json!("new")),
            ("redirect={ permanent = false }", "/redirect", json!({ "to": ["a"], "permanent": false })),
            ("redirect.permanent=false", "/redirect", json!({ "to": ["a"], "permanent": false })),
            ("session.max_burst_length=8192", "/session", json!({ "max_burst_length": "8192" })),
            ("lun.7.read_only=false", "/lun/1", json!({ "number": 7, "disk": "/b", "read_only": false })),
            ("host.h.lun.7.read_only=true", "/host/0/lun", json!([{ "number": 7, "read_only": true }])),
            ("lun=[{ number = 7, disk = \"/c\" }]", "/lun/1", json!({ "number": 7, "disk": "/c", "read_only": true })),
            ("lun=[{ number = 9, disk = \"/c\" }]", "/lun/2", json!({ "number": 9, "disk": "/c" })),
            // What a host sees is as it is said, and no more.
            (
                "host=[{ name = \"h\", lun = [] }]",
                "/host/0",
                json!({ "name": "h", "initiators": ["iqn.i"], "lun": [] }),
            ),
        ] {
            let document = after(argument);
            assert_eq!(document.pointer(pointer), Some(&expected), "{argument}");
            let (mut rest, mut before) = (document, target());
            let key = pointer[1..].split('/').next().unwrap();
            (rest[key], before[key]) = (Value::Null, Value::Null);
            assert_eq!(rest, before, "{argument}");
        }
    }

    #[test]
    fn logical_units_and_hosts_do_not_go_by_omission() {
        assert_eq!(after("lun=[{ number = 0, disk = \"/a\" }]"), target());
        for key in ["lun", "host"] {
            let mut document = target();
            let error = set(&mut document, key, json!([]), true).unwrap_err();
            assert!(error.starts_with(&format!("{key}=[] takes nothing out; write --unset {key}")), "{error}");
            assert_eq!(document, target());
        }
    }

    #[test]
    fn a_host_sees_what_is_said_last() {
        let mut host = json!({ "name": "h", "lun": [{ "number": 0 }, { "number": 7 }] });
        set(&mut host, "lun", json!([{ "number": 7 }]), false).unwrap();
        assert_eq!(host, json!({ "name": "h", "lun": [{ "number": 7 }] }));
    }

    #[test]
    fn keys_are_taken_out_by_their_names() {
        for (key, pointer) in [
            ("alias", "/alias"),
            ("redirect.permanent", "/redirect/permanent"),
            ("lun.7", "/lun/1"),
            ("lun.7.read_only", "/lun/1/read_only"),
        ] {
            let mut document = target();
            unset(&mut document, key).unwrap();
            assert_eq!(document.pointer(pointer), None, "{key}");
        }
        for key in ["colour", "lun.8", "redirect.colour", "alias.x", "session.x"] {
            let mut document = target();
            assert!(unset(&mut document, key).is_err(), "{key}");
            assert_eq!(document, target());
        }
        let mut document = target();
        assert!(set(&mut document, "lun.8.disk", json!("/x"), true).unwrap_err().contains("there is no 8"));
    }
}
