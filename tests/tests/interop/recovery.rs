//! Recovery level 2 between two processes: connections are killed under a load that compares every byte.

use std::env;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use lunette_testkit::Relay;
use lunette_tests::{Owned, Server, lunette, wait_at_most};
use serde_json::Value;

/// The time from one kill to the next.
const PACE: Duration = Duration::from_millis(200);

/// The duration of the load in seconds; `LUNETTE_RECOVERY_SECONDS` makes it longer.
const SECONDS: u64 = 3;

/// The longest time for the load to end, once its time is over.
const LIMIT: Duration = Duration::from_secs(30);

const CONFIGURATION: &str = r#"
listen = ["127.0.0.1:0"]

[[target]]
name = "iqn.2026-11.lunette:disk"
session = { error_recovery_level = 2 }
lun = [{ number = 0, disk = "mem:64M" }]
"#;

fn seconds() -> u64 {
    env::var("LUNETTE_RECOVERY_SECONDS").map_or(SECONDS, |seconds| seconds.parse().expect("a number of seconds"))
}

/// Kills one of `connections` at each pace, and returns the report of the load.
fn load(connections: usize) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let configuration = folder.path().join("config");
    fs::write(&configuration, CONFIGURATION).unwrap();
    let server = Server::spawn(lunette().args(["serve", "--config"]).arg(&configuration), 1);
    let relay = Relay::to(server.address());
    let mut bench = lunette();
    bench
        .args(["bench", "--rw", "verify", "--bs", "16k", "--json", "--data-digest", "--connections"])
        .args([connections.to_string(), "--time".into(), seconds().to_string()])
        .arg(format!("{}?error_recovery_level=2", relay.url(server.url(0))))
        .stdout(Stdio::piped());
    let mut bench = Owned::start(bench);
    let mut kills = 0;
    // The pace is part of the test: a kill may come while the connection before is being recovered.
    while wait_at_most(&mut bench, PACE).is_none() {
        assert!(kills < 10 * seconds(), "the load does not end");
        relay.cut_any(kills as usize * 5);
        kills += 1;
    }
    let status = wait_at_most(&mut bench, LIMIT);
    assert_eq!(status.map(|status| status.code()), Some(Some(0)), "{kills} kills\n{}", server.log());
    let report: Value = serde_json::from_reader(bench.stdout.take().unwrap()).unwrap();
    assert!(report["verified"].as_u64() > Some(0), "{report}");
    // How many kills meet a connection that is being recovered is a matter of the machine.
    assert!(report["recoveries"]["connections"].as_u64() > Some(0), "{kills} kills: {report}");
    server.stop();
    report
}

#[test]
fn a_load_survives_the_kill_of_any_of_eight_connections_every_200_ms() {
    load(8);
}

#[test]
fn a_load_survives_the_kill_of_its_only_connection_every_200_ms() {
    load(1);
}
