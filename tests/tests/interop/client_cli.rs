//! The output of the client's commands, their failures, and secrets that they never show.

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use lunette_tests::{DEFAULT_TARGET, Ran, Server, lunette, run_at_most};
use serde_json::Value;

const USAGE: i32 = 2;
const CONFIGURATION: i32 = 3;
const DISK: i32 = 5;

const SECRET: &str = "the secret of alice";

fn client(arguments: &[&str]) -> Ran {
    run_at_most(Duration::from_secs(30), lunette().args(arguments).env_remove("LUNETTE_CHAP_PASSWORD"))
}

/// Asserts that the command ends with this code, reports these words and prints nothing.
fn fails(code: i32, words: &[&str], arguments: &[&str]) {
    let ran = client(arguments);
    assert_eq!(ran.code, Some(code), "{ran}");
    assert!(ran.stdout.is_empty(), "{ran}");
    for word in words {
        assert!(ran.stderr.contains(word), "no {word:?} in {ran}");
    }
    assert!(!ran.stderr.contains(SECRET) && !ran.stderr.contains("wrong-wrong"), "{ran}");
}

/// The single line of JSON that a command prints, which must have exactly these keys.
fn printed(arguments: &[&str], keys: &[&str]) -> Value {
    let ran = client(arguments);
    let value: Value = serde_json::from_str(ran.succeeded()).unwrap_or_else(|error| panic!("{error}: {ran}"));
    assert_eq!(ran.stdout.lines().count(), 1, "{ran}");
    has_keys(if let Some(list) = value.as_array() { &list[0] } else { &value }, keys);
    value
}

fn has_keys(value: &Value, keys: &[&str]) {
    let mut found: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let mut keys = keys.to_vec();
    found.sort_unstable();
    keys.sort_unstable();
    assert_eq!(found, keys);
}

#[test]
fn json_has_the_keys_that_the_guide_lists() {
    let server = Server::start(&["mem:16M"]);
    let url = server.url(0);
    let list = printed(&["ls", "--json", &server.portal_url()], &["name", "portals", "luns"]);
    assert_eq!(list[0]["name"], DEFAULT_TARGET);
    has_keys(&list[0]["luns"][0], &["lun", "bytes", "block_bytes", "kind"]);
    assert_eq!(list[0]["luns"][0]["bytes"], 16 << 20);
    let none = printed(&["ls", "--json", "--no-luns", &server.portal_url()], &["name", "portals"]);
    assert_eq!(none.as_array().unwrap().len(), 1);

    let info = [
        "vendor",
        "product",
        "revision",
        "serial_number",
        "name",
        "target_alias",
        "bytes",
        "block_bytes",
        "physical_block_bytes",
        "read_only",
        "removable",
        "volatile_cache",
        "thin",
        "unmap",
        "unmapped_reads_zero",
        "max_transfer_blocks",
        "max_unmap_blocks",
        "max_write_same_blocks",
        "max_compare_and_write_blocks",
        "session",
        "commands",
    ];
    let info = printed(&["info", "--json", "--header-digest", url], &info);
    let session = [
        "HeaderDigest",
        "DataDigest",
        "MaxRecvDataSegmentLength",
        "TargetMaxRecvDataSegmentLength",
        "MaxBurstLength",
        "FirstBurstLength",
        "InitialR2T",
        "ImmediateData",
        "MaxOutstandingR2T",
        "DataPDUInOrder",
        "DataSequenceInOrder",
        "MaxConnections",
        "ErrorRecoveryLevel",
        "DefaultTime2Wait",
        "DefaultTime2Retain",
        "TaskReporting",
        "iSCSIProtocolLevel",
        "OFMarkInt",
        "IFMarkInt",
    ];
    has_keys(&info["session"], &session);
    assert_eq!((&info["session"]["HeaderDigest"], &info["bytes"]), (&"CRC32C".into(), &(16 << 20).into()));
    assert!(info["commands"].as_array().unwrap().iter().any(|command| command == "READ(16)"), "{info}");

    let ping = ["ping", "--json", "-c", "5", "--interval", "0", url];
    let ping = printed(&ping, &["count", "min_us", "p50_us", "p90_us", "p99_us", "max_us"]);
    assert!(ping["min_us"].as_f64() > Some(0.0) && ping["min_us"].as_f64() <= ping["max_us"].as_f64(), "{ping}");
    server.stop();
}

#[test]
fn json_of_a_load_has_the_keys_that_the_guide_lists() {
    let server = Server::start(&["mem:16M"]);
    let url = server.url(0);
    let keys = [
        "rw",
        "bs",
        "depth",
        "jobs",
        "seconds",
        "reads",
        "writes",
        "verified",
        "iops",
        "gb_per_s",
        "latency_us",
        "cpu_us_per_io",
        "uncounted",
        "event_loop",
        "recoveries",
    ];
    // As much in flight as the disk has, which is the most that may be.
    let whole = ["--size", "64K", "--depth", "8"];
    let bench = ["bench", "--json", "--rw", "randrw", "--jobs", "2", "--time", "1", url];
    let bench = printed(&[&bench[..], &whole].concat(), &keys);
    let counts = [
        "batches",
        "system_calls",
        "received_bytes",
        "direct_bytes",
        "sent_bytes",
        "received_pdus",
        "sent_pdus",
        "copies",
        "copied_bytes",
        "digested_copies",
        "digested_copied_bytes",
        "direct_receives",
    ];
    has_keys(&bench["event_loop"], &counts);
    assert!(bench["event_loop"]["received_pdus"].as_u64() >= bench["reads"].as_u64(), "{bench}");
    has_keys(&bench["latency_us"], &["mean", "p50", "p90", "p99", "p999", "max"]);
    assert!(bench["reads"].as_u64() > Some(0) && bench["writes"].as_u64() > Some(0), "{bench}");
    assert_eq!(bench["uncounted"], 0, "{bench}");

    let bench = ["bench", "--json", "--rw", "write", "--warm-up", "0.2", "--time", "1", "--depth", "2", url];
    let bench = printed(&bench, &keys);
    assert!(bench["uncounted"].as_u64() > Some(0) && bench["writes"].as_u64() > Some(0), "{bench}");
    let sent = bench["writes"].as_u64().zip(bench["uncounted"].as_u64()).map(|(counted, others)| counted + others);
    // The event loop counts at the end of a turn, so the last requests may have ended before: as many as are under way.
    let counted = bench["event_loop"]["sent_pdus"].as_u64().map(|pdus| pdus + 2);
    assert!(counted >= sent, "each request is counted once: {bench}");
    server.stop();
}

#[test]
fn tune_tells_what_limits_a_path_and_what_lifts_the_limit() {
    let path = ["tune", "--json", "--rtt", "50ms", "--rate", "155M", "--request", "64K", "--depth", "1"];
    let tune = printed(&path, &["delay_bandwidth_bytes", "today", "tuned", "paste"]);
    let row = [
        "request_bytes",
        "depth",
        "connections",
        "first_burst_bytes",
        "max_burst_bytes",
        "max_outstanding_r2t",
        "read",
        "write",
    ];
    has_keys(&tune["today"], &row);
    has_keys(&tune["tuned"], &row);
    let rate = |row: &str, way: &str| tune[row][way]["bytes_per_second"].as_f64().unwrap();
    let limit = tune["today"]["read"]["limit"].as_str().unwrap();
    assert!(limit.contains("1 request of 64.00 KiB in flight"), "{limit}");
    for way in ["read", "write"] {
        assert!(rate("tuned", way) > 10.0 * rate("today", way), "{tune}");
    }
    let pasted = tune["paste"].to_string();
    assert!(pasted.contains("?max_burst_length=") && pasted.contains("node.session.cmds_max"), "{pasted}");
}

#[test]
fn a_missing_target_is_reported_with_its_address() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let url = format!("iscsi://{address}/{DEFAULT_TARGET}/0");
    for command in ["ls", "info", "ping", "bench"] {
        fails(DISK, &[&address, "refused", "listen"], &[command, &url]);
    }
    fails(DISK, &[&address, "refused"], &["cp", &url, "-"]);
    fails(DISK, &[&address, "refused"], &["nbd", &url, "--listen", "127.0.0.1:0"]);
}

#[test]
fn a_refused_login_is_reported_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret").to_str().unwrap().to_owned();
    fs::write(&secret, SECRET).unwrap();
    let server = Server::start(&["mem:16M", "--chap", &format!("alice:{secret}")]);
    let address = server.address().to_string();
    let wrong = server.url_with("alice%wrong-wrong-wrong@", "");
    for command in ["info", "ping", "bench"] {
        fails(DISK, &[&address, "authentication", "secret"], &[command, &wrong]);
        fails(DISK, &[&address, "USER@"], &[command, server.url(0)]);
        fails(CONFIGURATION, &["LUNETTE_CHAP_PASSWORD"], &[command, &server.url_with("alice@", "")]);
    }
    let missing = server.url_with("alice@", "?chap_secret_file=/nowhere/secret");
    fails(CONFIGURATION, &["/nowhere/secret"], &["info", &missing]);
    // The secret is shown nowhere, not even in the log at its most verbose level.
    let mut loud = lunette();
    loud.env("LUNETTE_CHAP_PASSWORD", SECRET).env("RUST_LOG", "trace").env("LUNETTE_LOG", "trace");
    let loud = run_at_most(Duration::from_secs(30), loud.args(["info", &server.url_with("alice@", "")]));
    assert!(!loud.succeeded().contains(SECRET) && !loud.stderr.contains(SECRET), "{loud}");
    server.stop();
}

#[test]
fn a_missing_disk_is_reported_with_the_command_that_lists_disks() {
    let server = Server::start(&["mem:16M"]);
    let portal = server.portal_url();
    let (no_lun, no_target) =
        (format!("{portal}/{DEFAULT_TARGET}/7"), format!("{portal}/iqn.2026-11.org.example:no/0"));
    for command in ["info", "bench"] {
        fails(DISK, &["LUN 7", "lunette ls"], &[command, &no_lun]);
        fails(DISK, &["lunette ls"], &[command, &no_target]);
        fails(USAGE, &["names no target"], &[command, &portal]);
    }
    fails(DISK, &["LUN 7"], &["cp", &no_lun, "-"]);
    server.stop();
}

#[test]
fn bad_usage_is_reported() {
    let server = Server::start(&["mem:16M"]);
    let url = server.url(0);
    fails(USAGE, &["URL"], &["ls"]);
    fails(USAGE, &["iscsi://"], &["info", "http://192.0.2.1/"]);
    fails(USAGE, &["header_digest", "crc32c"], &["info", "iscsi://192.0.2.1/?header_digest=md5"]);
    fails(USAGE, &["70000"], &["ls", "iscsi://192.0.2.1:70000"]);
    fails(USAGE, &["--rw"], &["bench", "--rw", "sideways", url]);
    fails(USAGE, &["--warm-up"], &["bench", "--warm-up", "soon", url]);
    fails(USAGE, &["--bs 1000"], &["bench", "--bs", "1000", url]);
    fails(USAGE, &["too few"], &["bench", "--size", "64K", "--depth", "17", url]);
    fails(USAGE, &["too few"], &["bench", "--rw", "verify", "--size", "64K", "--depth", "16", url]);
    fails(USAGE, &["not a rate"], &["tune", "--rtt", "50ms", "--rate", "fast"]);
    fails(USAGE, &["--count"], &["ping", "-c", "0", url]);
    server.stop();
}

#[test]
fn a_closed_standard_output_does_not_cause_a_panic() {
    let server = Server::start(&["mem:16M"]);
    let binary = lunette().get_program().to_str().unwrap().to_owned();
    let url = server.url(0);
    for arguments in [
        format!("info {url}"),
        format!("ls {}", server.portal_url()),
        format!("ping -c 200 --interval 0 {url}"),
        format!("cp {url} -"),
        "bench --help".into(),
    ] {
        let line = format!("{binary} {arguments} | head -c 1 > /dev/null");
        let ran = run_at_most(Duration::from_secs(30), Command::new("sh").args(["-c", &line]));
        assert!(!ran.stderr.contains("panicked"), "{ran}");
    }
    server.stop();
}
