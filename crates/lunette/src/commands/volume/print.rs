//! Pools, volumes and snapshots as text for people.

use serde_json::Value;

pub(super) use super::super::ctl::print::object;
use super::super::ctl::print::{Column, moment_of, size, table, text};

const POOLS: &[Column] = &[
    ("POOL", |pool| text(&pool["name"])),
    ("PLACE", |pool| text(&pool["place"])),
    ("VOLUMES", |pool| text(&pool["volumes"])),
    ("COMMITTED", |pool| size(&pool["committed_bytes"])),
    ("TOTAL", |pool| size(&pool["total_bytes"])),
    ("USED", |pool| size(&pool["used_bytes"])),
    ("FREE", |pool| size(&pool["free_bytes"])),
    ("STATE", |pool| match (pool["trouble"].as_str(), pool["is_low"] == true) {
        (Some(_), _) => "unusable".into(),
        (None, true) => "low".into(),
        (None, false) => "ok".into(),
    }),
];

const VOLUMES: &[Column] = &[
    ("VOLUME", |volume| format!("{}/{}", text(&volume["pool"]), text(&volume["name"]))),
    ("SIZE", |volume| size(&volume["size_bytes"])),
    ("ORIGIN", |volume| text(&volume["origin"])),
    ("LUNS", |volume| joined(&volume["luns"])),
    ("STATE", |volume| if volume["filling"] == true { "filling".into() } else { "ok".into() }),
    ("CREATED", |volume| moment_of(&volume["created"])),
    ("LABELS", |volume| labels(&volume["labels"])),
];

const SNAPSHOTS: &[Column] = &[
    ("SNAPSHOT", |snapshot| {
        format!("{}/{}@{}", text(&snapshot["pool"]), text(&snapshot["volume"]), text(&snapshot["name"]))
    }),
    ("SIZE", |snapshot| size(&snapshot["size_bytes"])),
    ("LUNS", |snapshot| joined(&snapshot["luns"])),
    ("TAKEN", |snapshot| moment_of(&snapshot["created"])),
    ("LABELS", |snapshot| labels(&snapshot["labels"])),
];

/// The pools, the quotas of the client, and why some pools cannot be used.
pub(super) fn pools(value: &Value) -> String {
    let entries = list(value);
    let quota = |pool: &Value| {
        let [quota, used] = ["quota_bytes", "quota_used_bytes"].map(|key| &pool[key]);
        quota.is_u64().then(|| {
            format!("pool {}: {} of your quota of {} are used\n", text(&pool["name"]), size(used), size(quota))
        })
    };
    let trouble = |pool: &Value| Some(format!("pool {}: {}\n", text(&pool["name"]), pool["trouble"].as_str()?));
    let notes = entries.iter().filter_map(quota).chain(entries.iter().filter_map(trouble));
    table(POOLS, entries) + &notes.collect::<String>()
}

pub(super) fn volumes(value: &Value) -> String {
    table(VOLUMES, list(value))
}

pub(super) fn snapshots(value: &Value) -> String {
    table(SNAPSHOTS, list(value))
}

/// Snapshots that were taken, and how long requests waited for them.
pub(super) fn taken(value: &Value) -> String {
    let pause_us = value["pause_us"].as_u64().unwrap_or(0);
    snapshots(&value["snapshots"])
        + &format!("requests waited for {}.{:03} ms at most\n", pause_us / 1000, pause_us % 1000)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn joined(value: &Value) -> String {
    match list(value) {
        [] => "-".into(),
        all => all.iter().map(text).collect::<Vec<_>>().join(","),
    }
}

fn labels(value: &Value) -> String {
    let all = value.as_object().into_iter().flatten();
    let all: Vec<_> = all.map(|(key, value)| format!("{}={}", text(&key.as_str().into()), text(value))).collect();
    if all.is_empty() { "-".into() } else { all.join(",") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pool_that_cannot_be_used_says_why() {
        let pool = |name: &str, trouble: Value| {
            json!({ "name": name, "place": "/srv", "volumes": 1, "committed_bytes": 2048, "total_bytes": 1024,
                    "used_bytes": 0, "free_bytes": 1024, "is_low": true, "trouble": trouble })
        };
        let shown = pools(&json!([pool("a", Value::Null), pool("b", json!("no such folder"))]));
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[1], "a     /srv   1        2K         1K     0     1K    low");
        assert!(lines[2].ends_with("unusable") && lines[3] == "pool b: no such folder", "{shown}");
    }

    #[test]
    fn a_volume_that_is_filled_says_so() {
        let volume = |filling| json!({ "pool": "p", "name": "v", "size_bytes": 512, "luns": [], "filling": filling });
        let shown = volumes(&json!([volume(false), volume(true)]));
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines[1].contains(" ok ") && lines[2].contains(" filling "), "{shown}");
    }

    #[test]
    fn a_pool_tells_the_quota_of_the_client() {
        let pool = |name: &str, quota: Value, used: Value| json!({ "name": name, "quota_bytes": quota, "quota_used_bytes": used });
        let shown = pools(&json!([pool("a", json!(2_u64 << 30), json!(0)), pool("b", Value::Null, Value::Null)]));
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[3..], ["pool a: 0 of your quota of 2G are used"], "{shown}");
    }

    #[test]
    fn snapshots_tell_the_pause() {
        let snapshot = json!({ "pool": "p", "volume": "v", "name": "s", "size_bytes": 512, "created": 0, "labels": { "a": "b" }, "luns": [] });
        let shown = taken(&json!({ "snapshots": [snapshot], "pause_us": 1234 }));
        assert!(shown.contains("p/v@s") && shown.contains("1970-01-01T00:00:00Z  a=b"), "{shown}");
        assert!(shown.ends_with("requests waited for 1.234 ms at most\n"), "{shown}");
    }
}
