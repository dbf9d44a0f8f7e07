//! csi-sanity, the tests of the Container Storage Interface, over the controller that ships and a model of a node.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use clap::Parser;
use lunette_csi::{Driver, Options, serve};

use crate::configured::Configured;
use crate::process::{Owned, wait_until};
use crate::tool::run_at_most;
use machine::Machine;

#[path = "../../crates/csi/tests/node/machine.rs"]
#[allow(dead_code, clippy::unwrap_used, unreachable_pub, reason = "the tests of the crate use the rest")]
mod machine;

/// The version of csi-sanity. Go fetches a newer toolchain by itself if it has to.
const SANITY: (&str, &str) = ("github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity", "v5.6.0");

/// The longest time for its build, with what has to be fetched for it.
const BUILD_LIMIT: Duration = Duration::from_mins(10);

/// The longest time for one run of it.
const LIMIT: Duration = Duration::from_mins(5);

/// The longest time from the start of a driver to its socket.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Specifications of csi-sanity that run together.
pub struct Sanity {
    /// The kind of volumes: `mount` or `block`.
    pub access: &'static str,
    /// The specifications whose names have this; all of them if it is empty.
    pub focus: &'static str,
    /// How many of them there are for this driver at least.
    pub passed: usize,
}

impl Sanity {
    /// All specifications, with file systems.
    pub const ALL: Self = Self { access: "mount", focus: "", passed: 83 };

    /// The specifications of the node, with block devices.
    pub const OF_BLOCK_NODES: Self = Self { access: "block", focus: "Node Service", passed: 24 };
}

/// Runs csi-sanity over the server of a folder, whose API is at `api.sock` in it, and whose pool is `tank`. Panics when
/// a specification fails, or fewer run than there are.
pub fn check_sanity(place: &Configured, portal: SocketAddr, runs: &[Sanity]) {
    let mut controller = Command::new(built().join("lunette-csi"));
    controller.args(options(place, portal, "controller")).stdin(Stdio::null());
    let _controller = Owned::start(controller);
    // The node is of this process, because its system is a model.
    let machine = Machine::default();
    let node = options(place, portal, "node").into_iter().chain(["--reachable-pools=tank".to_owned()]);
    let options = Options::try_parse_from(std::iter::once("lunette-csi".to_owned()).chain(node)).expect("options");
    let served = machine.clone();
    thread::spawn(move || serve(&options.endpoint, Driver::new(&options, served).expect("a node")).expect("a socket"));
    let sockets = ["node", "controller"].map(|mode| place.file(&format!("{mode}.sock")));
    for socket in &sockets {
        wait_until(START_LIMIT, || UnixStream::connect(socket).ok()).expect("a driver");
    }
    for run in runs {
        let mut sanity = Command::new(csi_sanity());
        sanity.args([
            format!("--csi.endpoint=unix://{}", sockets[0].display()),
            format!("--csi.controllerendpoint=unix://{}", sockets[1].display()),
            format!("--csi.mountdir={}", place.file("mount").display()),
            format!("--csi.stagingdir={}", place.file("stage").display()),
            format!("--csi.testvolumesize={}", 16 << 20),
            format!("--csi.testvolumeexpandsize={}", 32 << 20),
            format!("--csi.testvolumeaccesstype={}", run.access),
            format!("--ginkgo.focus={}", run.focus),
            "--ginkgo.no-color".into(),
        ]);
        let ran = run_at_most(LIMIT, &mut sanity);
        let report = ran.succeeded();
        let summary = report.lines().find(|line| line.contains(" Passed | ")).unwrap_or_default();
        println!("{}: {summary}", run.access);
        assert!(summary.contains("-- ") && summary.contains("| 0 Failed"), "{report}");
        let passed: usize = summary.split(' ').nth(2).and_then(|count| count.parse().ok()).expect("a number");
        assert!(passed >= run.passed, "fewer specifications ran than there are for this driver: {report}");
        assert!(machine.mounted().is_empty(), "{}: {:?}", run.access, machine.mounted());
    }
}

fn options(place: &Configured, portal: SocketAddr, mode: &str) -> Vec<String> {
    vec![
        format!("--endpoint=unix://{}", place.file(&format!("{mode}.sock")).display()),
        format!("--api=unix:{}", place.file("api.sock").display()),
        format!("--portals={portal}"),
        format!("--mode={mode}"),
        "--topology".into(),
    ]
}

/// The folder of the programs that were built with this one, which is in it or in the folder `deps` of it.
fn built() -> PathBuf {
    let this = std::env::current_exe().expect("the path of this program");
    let folder = this.parent().expect("target/debug");
    if folder.ends_with("deps") { folder.parent().expect("target/debug").to_owned() } else { folder.to_owned() }
}

/// csi-sanity, built once below the folder of all builds.
pub fn csi_sanity() -> PathBuf {
    let (package, version) = SANITY;
    let folder = built().parent().map(Path::to_owned).expect("target").join(format!("csi-sanity-{version}"));
    let program = folder.join("csi-sanity");
    fs::create_dir_all(&folder).expect("a folder of our own");
    // Another test program may need it at the same time.
    let lock = File::create(folder.join("lock")).expect("a folder of our own");
    lock.lock().expect("a lock");
    if !program.exists() {
        let new = folder.join("new");
        let mut go = Command::new("go");
        go.args(["install", "-ldflags=-s -w", &format!("{package}@{version}")])
            .env("GOBIN", &new)
            .env("CGO_ENABLED", "0");
        run_at_most(BUILD_LIMIT, &mut go).succeeded();
        // As a whole or not at all.
        fs::rename(new.join("csi-sanity"), &program).expect("a folder of our own");
    }
    program
}
