//! A connection that flips bits, at recovery level 2: no wrong byte, no failed command.

use std::fs;
use std::time::Duration;

use lunette_testkit::Relay;
use lunette_tests::{Server, lunette, run_at_most};
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(2);

/// The average number of bytes between two flipped bits: several flips in each second of a load.
const EVERY: u64 = 512 << 10;

/// The duration of the load; `LUNETTE_DAMAGE_SECONDS` makes it longer.
fn seconds() -> String {
    std::env::var("LUNETTE_DAMAGE_SECONDS").unwrap_or_else(|_| "4".into())
}

fn server(folder: &tempfile::TempDir) -> Server {
    let file = folder.path().join("lunette.toml");
    let text = r#"
        portal = [{ address = "127.0.0.1:0" }]

        [[target]]
        name = "iqn.2026-11.org.example:damaged"
        lun = [{ number = 0, disk = "mem:64M" }]
        session = { error_recovery_level = 2 }
    "#;
    fs::write(&file, text).unwrap();
    Server::spawn(lunette().arg("serve").arg("--config").arg(&file), 1)
}

/// Loads the disk through a damaging relay and returns the report.
fn load(arguments: &[&str]) -> (Value, u64) {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let relay = Relay::damaging(server.address(), EVERY);
    let url = format!("{}?error_recovery_level=2", relay.url(server.url(0)));
    let mut bench = lunette();
    bench.args(["bench", "--rw", "verify", "--header-digest", "--data-digest", "--json", "--time", &seconds(), &url]);
    let ran = run_at_most(LIMIT, bench.args(arguments));
    let report: Value = serde_json::from_str(ran.succeeded()).unwrap();
    // The requests would have survived a lost session too, because the client opens another one.
    assert!(!ran.stderr.contains("session lost"), "{ran}");
    server.stop();
    (report, relay.flipped_bits())
}

#[test]
fn flipped_bits_cost_repetitions_and_nothing_else() {
    for arguments in [&["--bs", "4k"][..], &["--bs", "64k"], &["--bs", "64k", "--connections", "4"]] {
        let (report, flipped) = load(arguments);
        assert!(flipped > 0 && report["verified"].as_u64() > Some(0), "{flipped} bits, {report}");
        let recoveries = report["recoveries"].as_object().expect("recoveries are counted");
        let recovered: u64 = recoveries.values().filter_map(Value::as_u64).sum();
        assert!(recovered > 0, "{flipped} bits, {report}");
    }
}
