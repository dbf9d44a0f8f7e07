//! Answers of the API as text for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use time::OffsetDateTime;

use crate::size::exact;

/// A column: its heading, and its text for an entry.
pub(in crate::commands) type Column = (&'static str, fn(&Value) -> String);

const TARGETS: &[Column] = &[
    ("TARGET", |entry| text(&entry["name"])),
    ("FILE", |entry| text(&entry["origin"])),
    ("LUNS", |entry| count(&entry["object"]["lun"])),
    ("HOSTS", |entry| count(&entry["object"]["host"])),
    ("ALIAS", |entry| text(&entry["object"]["alias"])),
];

const PORTALS: &[Column] = &[
    ("PORTAL", |entry| text(&entry["name"])),
    ("FILE", |entry| text(&entry["origin"])),
    ("GROUP", |entry| text(&entry["object"]["group"])),
];

const DISKS: &[Column] = &[
    ("TARGET", |disk| text(&disk["target"])),
    ("LUN", |disk| text(&disk["number"])),
    ("SIZE", |disk| size(&disk["size_bytes"])),
    ("BLOCK", |disk| text(&disk["block_size"])),
    ("SERIAL", |disk| text(&disk["serial"])),
];

const LUNS: &[Column] = &[
    ("LUN", |lun| text(&lun["number"])),
    ("DISK", |lun| text(&lun["disk"])),
    ("CREATE", |lun| text(&lun["create"])),
    ("READ ONLY", |lun| text(&lun["read_only"])),
];

const HOSTS: &[Column] = &[
    ("HOST", |host| text(&host["name"])),
    ("INITIATORS", |host| list_of(&host["initiators"])),
    ("NETWORKS", |host| list_of(&host["networks"])),
    ("LUNS", |host| count(&host["lun"])),
    ("READ ONLY", |host| text(&host["read_only"])),
];

const SESSIONS: &[Column] = &[
    ("SESSION", |session| text(&session["id"])),
    ("TARGET", |session| text(&session["target"])),
    ("INITIATOR", |session| text(&session["initiator"])),
    ("HOST", |session| text(&session["host"])),
    ("FROM", |session| list_of(&session["peers"])),
    ("AGE", |session| age(&session["age_seconds"])),
    ("COMMANDS", |session| text(&session["commands"])),
    ("HEADER", |session| text(&session["header_digest"])),
    ("DATA", |session| text(&session["data_digest"])),
];

const JOBS: &[Column] = &[
    ("JOB", |job| text(&job["id"])),
    ("KIND", |job| text(&job["kind"])),
    ("OBJECT", |job| text(&job["object"])),
    ("BY", |job| text(&job["started_by"])),
    ("DONE", |job| percent(&job["progress"])),
    ("STATE", |job| if job["cancelling"] == true { "cancelling".into() } else { text(&job["state"]) }),
    ("MESSAGE", |job| text(&job["message"])),
];

/// A list of things of this kind, `kind` being the last part of its path; `luns` are disks, unless they are those of a
/// target.
pub(super) fn list(kind: &str, value: &Value) -> String {
    let entries = value.as_array().map_or(&[][..], Vec::as_slice);
    let is_of_target = entries.first().is_some_and(|entry| entry.get("disk").is_some());
    let columns = match kind {
        "targets" => TARGETS,
        "portals" => PORTALS,
        "sessions" => SESSIONS,
        "jobs" => JOBS,
        "hosts" => HOSTS,
        "luns" if is_of_target => LUNS,
        "luns" => DISKS,
        _ => return value.to_string(),
    };
    table(columns, entries)
}

/// The objects that are not served as the configuration says: a line for each.
pub(super) fn troubles(value: &Value) -> String {
    let mut all = String::new();
    for trouble in value.as_array().into_iter().flatten() {
        let of = trouble.get("target").map_or(String::new(), |target| format!(" of {}", text(target)));
        // Writing to a string cannot fail.
        let _ = writeln!(
            all,
            "not served as configured: {} {}{of}: {}",
            text(&trouble["kind"]),
            text(&trouble["name"]),
            text(&trouble["text"])
        );
    }
    all
}

/// An object, as its file has it. TOML has no null, so keys without a value are left out.
pub(in crate::commands) fn object(value: &Value) -> String {
    let known = value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    toml::to_string(&known.collect::<BTreeMap<_, _>>()).unwrap_or_else(|_| value.to_string())
}

/// The changes, and the sessions that notice them.
pub(super) fn plan(value: &Value) -> String {
    let changes = value["changes"].as_array().map_or(&[][..], Vec::as_slice);
    if changes.is_empty() {
        return "nothing changes\n".into();
    }
    let mut all = String::new();
    for change in changes {
        // Writing to a string cannot fail.
        let _ = writeln!(all, "{}", text(&change["change"]));
        if let Some(why) = change["obstacle"].as_str() {
            let _ = writeln!(all, "    would fail now: {why}");
        }
        for session in change["sessions"].as_array().into_iter().flatten() {
            let (id, initiator) = (text(&session["session"]), text(&session["initiator"]));
            let _ = writeln!(all, "    session {id} of {initiator}: {}", text(&session["notices"]));
        }
    }
    if value["needs_force"] == true {
        all.push_str("sessions use what goes: --force is needed\n");
    }
    all
}

/// The audit log: a line for each entry, and one for each object.
pub(super) fn audit(value: &Value) -> String {
    let mut all = String::new();
    for entry in value.as_array().into_iter().flatten() {
        let time = moment_of(&entry["time"]);
        let [who, from, action, outcome] = ["who", "from", "action", "outcome"].map(|key| text(&entry[key]));
        // Writing to a string cannot fail.
        let _ = writeln!(all, "{time}  {who} from {from}: {action}: {outcome}");
        for change in entry["changes"].as_array().into_iter().flatten() {
            let shown = |key| change.get(key).map_or("nothing".into(), |value: &Value| text(value));
            let _ = writeln!(all, "    {}: {} -> {}", text(&change["object"]), shown("old"), shown("new"));
        }
    }
    if all.is_empty() { "nothing was changed yet\n".into() } else { all }
}

/// A length in bytes as people write it.
pub(in crate::commands) fn size(value: &Value) -> String {
    value.as_u64().map_or("-".into(), exact)
}

/// A time in seconds since 1970, as RFC 3339 has it.
pub(in crate::commands) fn moment_of(value: &Value) -> String {
    let time = value.as_i64().and_then(|time| OffsetDateTime::from_unix_timestamp(time).ok());
    time.map_or_else(|| "-".into(), moment)
}

fn moment(time: OffsetDateTime) -> String {
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.to_hms();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", u8::from(month))
}

/// An event in one line.
pub(super) fn event(value: &Value) -> String {
    format!("{}: {}", text(&value["kind"]), text(&value["text"]))
}

/// A job in one line.
pub(super) fn job(job: &Value) -> String {
    let [id, kind, object, state] = ["id", "kind", "object", "state"].map(|key| text(&job[key]));
    let message = job["message"].as_str().filter(|message| !message.is_empty());
    let message = message.map_or(String::new(), |message| format!(": {}", text(&message.into())));
    format!("job {id}, {kind} of {object}: {state}{message}")
}

pub(in crate::commands) fn table(columns: &[Column], entries: &[Value]) -> String {
    let heading: Vec<String> = columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
    let rows = entries.iter().map(|entry| columns.iter().map(|(_, cell)| cell(entry)).collect());
    let rows: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
    let width = |index: usize| rows.iter().map(|row| row[index].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

pub(in crate::commands) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) if text.is_empty() => "-".into(),
        Value::String(text) => lunette_pdu::text::printable(text).to_string(),
        other => lunette_pdu::text::printable(&other.to_string()).to_string(),
    }
}

/// A time in its two largest units.
fn age(value: &Value) -> String {
    let Some(seconds) = value.as_u64() else { return "-".into() };
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (0, hours, minutes, _) => format!("{hours}h{minutes}m"),
        (days, hours, ..) => format!("{days}d{hours}h"),
    }
}

/// How far work has come. Nothing of no bytes is all of it.
pub(in crate::commands) fn percent(progress: &Value) -> String {
    let [done, total] = ["done_bytes", "total_bytes"].map(|key| progress[key].as_u64().unwrap_or(0));
    let percent = (u128::from(done) * 100).checked_div(total.into()).unwrap_or(100);
    format!("{percent}%")
}

fn count(value: &Value) -> String {
    value.as_array().map_or(0, Vec::len).to_string()
}

fn list_of(value: &Value) -> String {
    match value.as_array() {
        None => "all".into(),
        Some(list) => list.iter().map(text).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_text() {
        let entries = json!([
            { "name": "iqn.a", "origin": "main", "object": { "lun": [1, 2] } },
            { "name": "iqn.longer", "origin": "conf.d", "object": { "alias": "x" } },
        ]);
        let expected = "TARGET      FILE    LUNS  HOSTS  ALIAS\n\
                        iqn.a       main    2     0      -\n\
                        iqn.longer  conf.d  0     0      x\n";
        assert_eq!(list("targets", &entries), expected);
    }

    #[test]
    fn sizes_are_as_they_are_written() {
        let disk = |bytes: u64| json!({ "target": "iqn.a", "number": 0, "size_bytes": bytes, "block_size": 512, "serial": "s" });
        let expected = "TARGET  LUN  SIZE  BLOCK  SERIAL\niqn.a   0    10G   512    s\niqn.a   0    1000  512    s\n";
        assert_eq!(list("luns", &json!([disk(10 << 30), disk(1000)])), expected);
    }

    #[test]
    fn a_plan_names_who_notices_what() {
        let notice = json!({ "session": 3, "initiator": "iqn.i", "notices": "is asked to log out" });
        let value = json!({ "changes": [{ "change": "target iqn.a removed", "sessions": [notice] }] });
        assert_eq!(plan(&value), "target iqn.a removed\n    session 3 of iqn.i: is asked to log out\n");
        assert_eq!(plan(&json!({ "changes": [] })), "nothing changes\n");
    }

    #[test]
    fn the_audit_log_says_who_what_and_when() {
        let change = json!({ "object": "target iqn.a", "old": { "alias": "x" } });
        let entry = json!({ "time": 0, "who": "ops", "from": "192.0.2.7:1", "action": "change", "outcome": "done", "changes": [change] });
        let expected = "1970-01-01T00:00:00Z  ops from 192.0.2.7:1: change: done\n    target iqn.a: {\"alias\":\"x\"} -> nothing\n";
        assert_eq!(audit(&json!([entry])), expected);
        assert_eq!(audit(&json!([])), "nothing was changed yet\n");
    }

    #[test]
    fn troubles_name_their_subject() {
        let all = json!([
            { "kind": "lun", "name": "0", "target": "iqn.a", "cause": "not_opened", "text": "no such file", "since": 1 },
            { "kind": "portal", "name": "192.0.2.1:1", "cause": "not_opened", "text": "no such address", "since": 1 },
        ]);
        let expected = "not served as configured: lun 0 of iqn.a: no such file\n\
                        not served as configured: portal 192.0.2.1:1: no such address\n";
        assert_eq!(troubles(&all), expected);
    }

    #[test]
    fn jobs_show_how_far_they_are() {
        let job = |done: u64, total: u64, cancelling: bool| {
            json!({ "id": 7, "kind": "scrub", "object": "targets/iqn.a/luns/0", "started_by": "ops", "state": "running",
                    "cancelling": cancelling, "progress": { "done_bytes": done, "total_bytes": total }, "message": "" })
        };
        let expected = "JOB  KIND   OBJECT                BY   DONE  STATE       MESSAGE\n\
                        7    scrub  targets/iqn.a/luns/0  ops  33%   running     -\n\
                        7    scrub  targets/iqn.a/luns/0  ops  100%  cancelling  -\n";
        assert_eq!(list("jobs", &json!([job(1, 3, false), job(u64::MAX, u64::MAX, true)])), expected);
        assert_eq!(percent(&json!({ "done_bytes": 0, "total_bytes": 0 })), "100%");
    }

    #[test]
    fn ages_have_two_units() {
        for (seconds, expected) in [(0, "0s"), (59, "59s"), (61, "1m1s"), (3660, "1h1m"), (90_000, "1d1h")] {
            assert_eq!(age(&json!(seconds)), expected);
        }
    }

    #[test]
    fn what_has_no_value_is_not_shown() {
        assert_eq!(object(&json!({ "id": 7, "user": null, "host": "h" })), "host = \"h\"\nid = 7\n");
    }

    #[test]
    fn names_from_a_peer_do_not_control_the_terminal() {
        assert!(!list("sessions", &json!([{ "initiator": "iqn.\u{1b}[2J" }])).contains('\u{1b}'));
    }
}
