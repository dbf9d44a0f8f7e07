//! Requests for volumes: which tokens may send them, and which client the server hears of.

use std::sync::Arc;

use lunette_api::jobs::Job;
use lunette_api::volumes::{
    Changes, FillOrder, Filling, FillingEnd, FillingStep, NewVolume, Pool, Snapshot, SnapshotOrder, SnapshotPath,
    Taken, Volume, VolumeChange, VolumePath, Volumes,
};
use lunette_api::{Caller, Problem};

use super::{Port, Served, TOKEN, statuses};

/// Pools that refuse each change, and say whose it is.
pub(super) struct Refusing;

fn refuse<T>(caller: &Caller) -> Result<T, Problem> {
    Err(Problem::over_quota(format!("asked by {}, named {}, as {}", caller.name, caller.is_named, caller.role)))
}

impl Volumes for Refusing {
    fn pools(&self, caller: &Caller) -> Vec<Pool> {
        let place = format!("asked by {}, named {}, as {}", caller.name, caller.is_named, caller.role);
        let (name, trouble) = ("tank".into(), None);
        let (volumes, committed_bytes, total_bytes, used_bytes, free_bytes) = (0, 0, 0, 0, 0);
        let (is_low, quota_bytes, quota_used_bytes) = (false, None, None);
        vec![Pool {
            name,
            place,
            trouble,
            volumes,
            committed_bytes,
            total_bytes,
            used_bytes,
            free_bytes,
            is_low,
            quota_bytes,
            quota_used_bytes,
        }]
    }

    fn volumes(&self, _: Option<&str>) -> Result<Vec<Volume>, Problem> {
        Ok(Vec::new())
    }

    fn volume(&self, _: &VolumePath) -> Result<Volume, Problem> {
        Err(Problem::not_found("volume"))
    }

    fn snapshots(&self, _: &VolumePath) -> Result<Vec<Snapshot>, Problem> {
        Ok(Vec::new())
    }

    fn create(&self, _: &VolumePath, _: NewVolume, caller: &Caller) -> Result<Volume, Problem> {
        refuse(caller)
    }

    fn change(&self, _: &VolumePath, _: VolumeChange, caller: &Caller) -> Result<Volume, Problem> {
        refuse(caller)
    }

    fn remove(&self, _: &VolumePath, caller: &Caller) -> Result<(), Problem> {
        refuse(caller)
    }

    fn snapshot(&self, _: SnapshotOrder, caller: &Caller) -> Result<Taken, Problem> {
        refuse(caller)
    }

    fn remove_snapshot(&self, _: &SnapshotPath, caller: &Caller) -> Result<(), Problem> {
        refuse(caller)
    }

    fn roll_back(&self, _: &SnapshotPath, caller: &Caller) -> Result<Arc<Job>, Problem> {
        refuse(caller)
    }

    fn flatten(&self, _: &VolumePath, caller: &Caller) -> Result<Arc<Job>, Problem> {
        refuse(caller)
    }

    fn changes(&self, _: &SnapshotPath, _: Option<&str>, _: u64) -> Result<Changes, Problem> {
        Err(Problem::not_found("snapshot"))
    }

    fn fill(&self, _: &VolumePath, _: FillOrder, caller: &Caller) -> Result<Filling, Problem> {
        refuse(caller)
    }

    fn keep_filling(&self, _: &VolumePath, _: FillingStep, caller: &Caller) -> Result<(), Problem> {
        refuse(caller)
    }

    fn end_filling(&self, _: &VolumePath, _: FillingEnd, caller: &Caller) -> Result<Volume, Problem> {
        refuse(caller)
    }

    fn undo_filling(&self, _: &VolumePath, _: &str, caller: &Caller) -> Result<(), Problem> {
        refuse(caller)
    }
}

/// The requests that change volumes: the method, the path, and the body.
const CHANGES: [(&str, &str, &str); 11] = [
    ("POST", "/v1/volumes/tank/db", r#"{"size_bytes":512}"#),
    ("PATCH", "/v1/volumes/tank/db", r#"{"size_bytes":512}"#),
    ("DELETE", "/v1/volumes/tank/db", ""),
    ("POST", "/v1/volumes/tank/db/actions/flatten", ""),
    ("POST", "/v1/snapshots", r#"{"volumes":["tank/db"],"name":"s"}"#),
    ("DELETE", "/v1/volumes/tank/db/snapshots/s", ""),
    ("POST", "/v1/volumes/tank/db/snapshots/s/actions/rollback", ""),
    ("POST", "/v1/volumes/tank/db/filling", r#"{"size_bytes":512}"#),
    ("PATCH", "/v1/volumes/tank/db/filling", r#"{"token":"t","done_bytes":0}"#),
    ("POST", "/v1/volumes/tank/db/filling/actions/end", r#"{"token":"t"}"#),
    ("DELETE", "/v1/volumes/tank/db/filling?token=t", ""),
];

/// The tokens of the file, and what the server hears of each. A token without that gets no further.
const TOKENS: [(&str, Option<&str>); 6] = [
    ("", Some("asked by token of line 1, named false, as admin")),
    ("-a role=operate name=cinder", Some("asked by cinder, named true, as operate")),
    ("-b role=operate", Some("asked by token of line 3, named false, as operate")),
    ("-c role=read name=reader", None),
    ("-d role=operate name=some targets=iqn.a", None),
    ("-e name=all targets=iqn.a", None),
];

fn port() -> Port {
    Port::new(&TOKENS.map(|(line, _)| format!("{TOKEN}{line}")).join("\n"))
}

#[test]
fn the_server_hears_which_client_changes_a_volume() {
    let port = port();
    for (line, heard) in TOKENS {
        let token = format!("{TOKEN}{}", line.split(' ').next().unwrap());
        for (method, path, body) in CHANGES {
            let more = match body {
                "" => String::new(),
                _ => format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()),
            };
            let header = format!("Authorization: Bearer {token}\r\n{more}\r\n{body}");
            let answer = port.ask(&format!("{method} {path}"), &header);
            let (status, expected) = heard.map_or(("403", "use a"), |heard| ("409", heard));
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(expected),
                "{line:?}: {method} {path}: {answer}"
            );
        }
    }
}

#[test]
fn pools_are_shown_as_to_their_client() {
    let port = port();
    for (line, heard) in TOKENS {
        let token = format!("{TOKEN}{}", line.split(' ').next().unwrap());
        let answer = port.ask("GET /v1/pools", &format!("Authorization: Bearer {token}\r\n"));
        let expected = match (heard, line.contains("targets")) {
            (Some(heard), _) => heard,
            (None, true) => "use a token or certificate for all targets",
            (None, false) => "asked by reader, named true, as read",
        };
        assert!(answer.contains(expected), "{line:?}: {answer}");
        assert!(heard.is_none() || answer.contains(r#""quota_bytes":null"#), "{answer}");
    }
}

#[test]
fn the_description_says_that_changes_of_volumes_may_be_refused_by_the_quota() {
    let description = Served::new().get("/openapi.json");
    for (method, path, _) in CHANGES {
        let path = path.replace("/tank/db", "/{pool}/{volume}").replace("/snapshots/s", "/snapshots/{snapshot}");
        let path = path.split('?').next().unwrap();
        let known = statuses(&description, path, &method.to_lowercase());
        assert!(known.contains(&"403") && known.contains(&"409"), "{method} {path}: {known:?}");
    }
}
