//! A client whose target is killed and started again: the load continues without wrong data.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use lunette_tests::{Owned, Server, lunette, wait_at_most, wait_until};
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(1);

const RESTARTS: u32 = 5;

/// Waits until the load has written something since `before`.
fn written_since(disk: &Path, before: SystemTime) -> Option<()> {
    wait_until(LIMIT, || (fs::metadata(disk).unwrap().modified().unwrap() > before).then_some(()))
}

#[test]
fn a_load_survives_five_kills_of_its_target() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let arguments = [disk.to_str().unwrap(), "--create", "64M"];
    let mut server = Server::start(&arguments);
    let address = server.address().to_string();
    let mut bench = lunette();
    bench.args(["bench", "--rw", "verify", "--time", "6", "--json", "--data-digest", server.url(0)]);
    let mut bench = Owned::start(bench.stdout(Stdio::piped()));
    for restart in 0..RESTARTS {
        assert!(written_since(&disk, SystemTime::now()).is_some(), "nothing is written after {restart} restarts");
        assert!(bench.try_wait().unwrap().is_none(), "the load ended after {restart} restarts");
        server.kill();
        server = Server::start_at(&address, &arguments, 1);
    }
    assert!(written_since(&disk, SystemTime::now()).is_some(), "nothing is written after the last restart");
    let status = wait_at_most(&mut bench, LIMIT);
    assert_eq!(status.map(|status| status.code()), Some(Some(0)));
    let report: Value = serde_json::from_reader(bench.stdout.take().unwrap()).unwrap();
    assert!(report["verified"].as_u64() > Some(0), "{report}");
    server.stop();
}
