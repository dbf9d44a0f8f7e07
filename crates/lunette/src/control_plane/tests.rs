//! The control plane in front of a target that runs.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};

use lunette_api::{Document, Key, Kind};
use lunette_initiator::{Initiator, Options, Url, wait};
use lunette_target::{ServerConfig, Stopper};
use tempfile::TempDir;

use super::*;
use crate::config::sources::Files;
use crate::served::Served;

const MAIN: &str =
    "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.a\"\nlun = [{ number = 0, disk = \"mem:1M\" }]";

/// A target that serves a configuration, until it is dropped.
struct Running {
    _place: TempDir,
    url: Url,
    plane: ControlPlane,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        let main = place.path().join("main.toml");
        fs::write(&main, MAIN).unwrap();
        let files = Files::new(main, Vec::new());
        let (sources, config) = files.read().unwrap();
        let served = Served::open(&config).unwrap();
        let server =
            lunette_target::Server::bind(ServerConfig::new(config.portals(), served.target_configs(&config))).unwrap();
        let (control, monitor, stopper) = (server.control(), server.monitor(), server.stopper());
        let url = Url::parse(&format!("iscsi://{}/iqn.a/0", server.portals()[0])).unwrap();
        let reloader =
            Reloader::new(files, (sources, config), served, control.clone(), (Events::default(), Health::default()));
        let plane = ControlPlane::new(reloader, control, monitor);
        let thread = thread::spawn(move || server.run().unwrap());
        Self { _place: place, url, plane, stopper, thread: Some(thread) }
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

#[test]
fn a_mistake_during_a_change_stops_no_session_and_no_later_change() {
    let running = Running::start();
    let initiator = Initiator::start().unwrap();
    let session = wait(running.url.connect(&initiator, Options::new("iqn.i"))).unwrap();
    let mistake: Edit = Box::new(|_| panic!("a mistake, while the lock is held"));
    assert!(catch_unwind(AssertUnwindSafe(|| running.plane.change(mistake))).is_err());
    assert!(running.plane.reloader.is_poisoned(), "else this test shows nothing");
    assert!(wait(session.ping(vec![1, 2, 3])).unwrap());
    let changed = running.plane.change(add("iqn.b")).unwrap();
    assert_eq!(changed.plan.changes[0].change, "target iqn.b added");
    assert_eq!(running.plane.disks().len(), 1);
    running.plane.reload();
    assert_eq!(running.plane.sessions().unwrap().len(), 1);
    assert!(wait(session.ping(vec![1, 2, 3])).unwrap());
}
