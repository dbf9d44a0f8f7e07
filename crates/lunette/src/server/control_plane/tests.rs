//! The control plane in front of a target that runs.

mod clients;
mod degraded;
mod files;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lunette_api::edits::{self, Precondition};
use lunette_api::{Document, Key, Kind, Objects};
use lunette_initiator::{Initiator, Options, Url, wait};
use lunette_target::{ServerConfig, Stopper};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::config::sources::Files;
use crate::server::reload::Spares;
use crate::server::served::Served;

const MAIN: &str =
    "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.a\"\nlun = [{ number = 0, disk = \"mem:1M\" }]";

/// A target that serves a configuration, until it is dropped.
struct Running {
    place: TempDir,
    url: Url,
    plane: ControlPlane,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start() -> Self {
        Self::of(tempfile::tempdir().unwrap(), MAIN)
    }

    /// Serves what `text` says, which may name files in `place`.
    fn of(place: TempDir, text: &str) -> Self {
        Self::within(None, place, text)
    }

    /// Serves a configuration whose disks have this time at the start.
    fn within(limit: Option<Duration>, place: TempDir, text: &str) -> Self {
        let main = place.path().join("main.toml");
        fs::write(&main, text).unwrap();
        let files = Files::new(main, Vec::new(), false);
        let read = files.read(None).unwrap();
        let config = read.config.clone();
        let served = Served::open_within(&config, limit, &mut Spares::default()).unwrap();
        let portals = ServerConfig::new(config.portals(), served.target_configs(&config));
        let server = lunette_target::Server::bind(ServerConfig { leaves_closed: true, ..portals }).unwrap();
        let health = Health::default();
        crate::server::reload::report_portals(&health, server.closed_portals(), &config);
        let (control, monitor, stopper) = (server.control(), server.monitor(), server.stopper());
        let url = Url::parse(&format!("iscsi://{}/iqn.a/0", server.portals()[0])).unwrap();
        let reloader = Reloader::new(files, read, served, control.clone(), (Events::default(), health));
        let plane = ControlPlane::new(reloader, control, monitor, AuditLog::default());
        let thread = thread::spawn(move || server.run().unwrap());
        Self { place, url, plane, stopper, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Adds a target without logical units.
fn add(name: &'static str) -> Edit {
    Box::new(move |catalog| {
        let mut objects = catalog.objects.clone();
        objects.put(Key::new(Kind::Target, name).unwrap(), Document::new())?;
        Ok(objects)
    })
}

fn order(edit: Edit) -> Order {
    Order { edit, caller: Caller::admin("a test", "here"), force: false }
}

/// Takes away all that `conf.d` has.
fn take_all() -> Edit {
    Box::new(|_| Ok(Objects::default()))
}

#[test]
fn what_sessions_use_goes_by_force_alone() {
    let running = Running::start();
    let change = |edit| running.plane.change(order(edit));
    let url = |target: &str| Url::parse(&running.url.to_string().replace("iqn.a", target)).unwrap();
    let lun = json!({ "name": "iqn.b", "allow": ["*"], "lun": [{ "number": 0, "disk": "mem:1M" }, { "number": 1, "disk": "mem:1M" }] });
    let put = |document: Value| -> Edit {
        let Value::Object(document) = document else { unreachable!() };
        Box::new(move |catalog| {
            edits::put(catalog, &Key::new(Kind::Target, "iqn.b").unwrap(), document, &Precondition::default())
        })
    };
    change(put(lun.clone())).unwrap();
    let initiator = Initiator::start().unwrap();
    let session = wait(url("iqn.b").connect(&initiator, Options::new("iqn.i"))).unwrap();
    let mut fewer = lun.clone();
    fewer["lun"].as_array_mut().unwrap().pop();
    let (mut other_disk, mut other_initiators) = (lun.clone(), lun.clone());
    other_disk["lun"][0]["disk"] = running.place.path().join("other").display().to_string().into();
    other_disk["lun"][0]["create"] = "1M".into();
    other_initiators["allow"] = json!(["iqn.other"]);
    for (what, edit) in [
        ("target iqn.b removed", take_all()),
        ("LUN 1 removed", put(fewer.clone())),
        ("LUN 0 replaced", put(other_disk)),
        ("allow changed", put(other_initiators)),
    ] {
        let refused = change(edit).unwrap_err();
        assert_eq!((refused.status, refused.title.as_str()), (409, Problem::IN_USE));
        assert!(refused.detail.contains(what) && refused.detail.contains("of iqn.i"), "{refused}");
    }
    assert!(wait(session.ping(vec![1])).unwrap());
    assert!(running.plane.plan(order(put(fewer.clone()))).unwrap().needs_force);
    running.plane.change(Order { force: true, ..order(put(fewer)) }).unwrap();
    assert_eq!(running.plane.disks().len(), 2);
    let entry = &running.plane.audit().last(1)[0];
    assert_eq!((entry.who.as_str(), entry.outcome.as_str(), entry.changes.len()), ("a test", "done", 1));
    assert_eq!(entry.changes[0].old.as_ref().unwrap(), &lun);
    let refused = &running.plane.audit().last(2)[1];
    assert!(refused.outcome.contains("in use") && refused.changes.is_empty());
}

#[test]
fn while_a_change_is_made_the_others_are_answered() {
    let running = Running::start();
    let plane = running.plane.clone();
    let (begun, wait_for_change) = channel();
    let (finish, finished) = channel::<()>();
    let slow: Edit = Box::new(move |catalog| {
        begun.send(()).unwrap();
        finished.recv().unwrap();
        Ok(catalog.objects.clone())
    });
    let change = thread::spawn(move || plane.change(order(slow)).unwrap());
    wait_for_change.recv().unwrap();
    assert_eq!(running.plane.disks().len(), 1);
    assert!(running.plane.sessions().unwrap().is_empty());
    assert!(running.plane.metrics().unwrap().contains("lunette_"));
    assert_eq!(running.plane.catalog().main.len(), 2);
    finish.send(()).unwrap();
    change.join().unwrap();
}

#[test]
fn a_mistake_during_a_change_stops_no_session_and_no_later_change() {
    let running = Running::start();
    let initiator = Initiator::start().unwrap();
    let session = wait(running.url.connect(&initiator, Options::new("iqn.i"))).unwrap();
    let mistake: Edit = Box::new(|_| panic!("a mistake, while the lock is held"));
    assert!(catch_unwind(AssertUnwindSafe(|| running.plane.change(order(mistake)))).is_err());
    assert!(running.plane.reloader.is_poisoned(), "else this test shows nothing");
    assert!(wait(session.ping(vec![1, 2, 3])).unwrap());
    let changed = running.plane.change(order(add("iqn.b"))).unwrap();
    assert_eq!(changed.plan.changes[0].change, "target iqn.b added");
    assert_eq!(running.plane.disks().len(), 1);
    running.plane.reload();
    assert_eq!(running.plane.sessions().unwrap().len(), 1);
    assert!(wait(session.ping(vec![1, 2, 3])).unwrap());
}
