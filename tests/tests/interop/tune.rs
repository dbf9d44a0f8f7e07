//! `lunette tune URL`: what it measures, proves and leaves alone, on targets that agree to much, to little, or vanish.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use lunette_tests::{Foreign, Ran, Server, lunette, run_at_most, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(1);

const USAGE: i32 = 2;
const DISK: i32 = 5;
const LOST: i32 = 8;

fn tune(url: &str, arguments: &[&str]) -> Ran {
    run_at_most(LIMIT, lunette().args(["tune", "--time", "3", url]).args(arguments))
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(ran.succeeded()).unwrap_or_else(|error| panic!("{error}: {ran}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn trials(report: &Value) -> &[Value] {
    report["trials"].as_array().unwrap()
}

/// Asserts what holds for every complete report.
fn is_sound(report: &Value) {
    assert_eq!(report["complete"], true, "{report}");
    let verdict = &report["verdict"];
    for way in ["read_bytes_per_second", "write_bytes_per_second"] {
        if !verdict["before"][way].is_null() {
            assert!(number(&verdict["after"][way]) >= number(&verdict["before"][way]), "{verdict}");
            assert!(number(&verdict["before"][way]) > 0.0, "{verdict}");
        }
    }
    assert_eq!(trials(report)[0]["stage"], "defaults");
    assert!((2..=20).contains(&trials(report).len()), "{report}");
    assert_eq!(report["limits"].as_array().unwrap().len(), 3);
    assert!(number(&report["path"]["round_trip_us"]) > 0.0, "{report}");
    assert!(number(&report["target"]["command_latency_us"]) > 0.0, "{report}");
}

#[test]
fn what_it_measures_is_reported_with_before_and_after() {
    let server = Server::start(&["mem:64M"]);
    let report = json(&tune(server.url(0), &["--json"]));
    is_sound(&report);
    assert_eq!(report["target"]["connections"], 8);
    assert_eq!(report["target"]["negotiated"]["InitialR2T"], false);
    assert!(number(&report["target"]["command_window"]) >= 128.0, "{report}");
    assert!(trials(&report).iter().all(|trial| trial["write"].is_null()), "{report}");
    let pasted = report["paste"].to_string();
    for words in ["lunette cp --bs", "max_burst_length = ", "node.session.cmds_max", "net.ipv4.tcp_rmem"] {
        assert!(pasted.contains(words), "{pasted}");
    }
    let text = tune(server.url(0), &[]);
    for words in ["round trip", "short commands a second", "limit: ", "trials:", "defaults "] {
        assert!(text.succeeded().contains(words), "{text}");
    }
    assert!(text.stderr.is_empty(), "progress is for terminals: {text}");
}

#[test]
fn what_it_recommends_can_be_used() {
    let server = Server::start(&["mem:64M"]);
    let report = json(&tune(server.url(0), &["--json"]));
    let verdict = &report["verdict"];
    let url = format!("{}?{}", server.url(0), verdict["url_parameters"].as_str().unwrap());
    let arguments = verdict["arguments"].as_str().unwrap().split_whitespace();
    let bench = run_at_most(LIMIT, lunette().args(["bench", "--rw", "read", "--time", "1", &url]).args(arguments));
    bench.succeeded();
}

#[test]
fn the_settings_of_today_are_measured_too() {
    let server = Server::start(&["mem:64M"]);
    let url = format!("{}?initial_r2t=yes&congestion_control=reno", server.url(0));
    let report = json(&tune(&url, &["--json", "--request", "16K", "--depth", "1"]));
    is_sound(&report);
    let today = trials(&report).iter().find(|trial| trial["stage"] == "today").unwrap();
    assert_eq!((&today["settings"]["request_bytes"], &today["settings"]["depth"]), (&16384.into(), &1.into()));
    assert_eq!(today["settings"]["initial_r2t"], true);
    assert_eq!(today["settings"]["congestion_control"], "reno");
    assert!(report["limits"][0].as_str().unwrap().contains("16.00 KiB"), "{report}");
    // The load decides: no other length is tried.
    let report = json(&tune(server.url(0), &["--json", "--request", "16K", "--fixed-request"]));
    assert!(trials(&report).iter().all(|trial| trial["settings"]["request_bytes"] == 16384), "{report}");
}

#[test]
fn writes_stay_in_their_range_and_reads_change_nothing() {
    overwrites_its_range_alone(512, &[], &[]);
}

#[test]
fn writes_of_blocks_that_are_no_power_of_two_stay_in_their_range() {
    overwrites_its_range_alone(4160, &["--quantum", "4096"], &[]);
}

#[test]
fn todays_requests_that_halve_to_no_whole_blocks_can_be_tuned() {
    overwrites_its_range_alone(4096, &["--block-size", "4096"], &["--request", "132K"]);
}

/// Tunes a disk with a known content, first without `--write`.
fn overwrites_its_range_alone(block_len: usize, serve: &[&str], arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let content: Vec<u8> = (0..8192 * block_len.max(4096)).map(|at| (at % 251) as u8).collect();
    fs::write(&disk, &content).unwrap();
    let server = Server::start(&[&[disk.to_str().unwrap()], serve].concat());
    let report = json(&tune(server.url(0), &[&["--json"], arguments].concat()));
    is_sound(&report);
    assert!(trials(&report).iter().all(|trial| !trial["read"].is_null()), "a trial failed: {report}");
    assert!(fs::read(&disk).unwrap() == content, "reads have changed the disk");

    // Where no request of the tuner begins or ends.
    let (from, to) = (1031 * block_len.max(4096), 3067 * block_len.max(4096));
    let range = format!("{from}..{to}");
    let ran = tune(server.url(0), &[&["--json", "--write", &range], arguments].concat());
    assert!(ran.stderr.contains(&format!("overwriting bytes {from} to {to}")), "{ran}");
    let report = json(&ran);
    is_sound(&report);
    assert!(trials(&report).iter().all(|trial| trial["write"]["bytes_per_second"].as_f64() > Some(0.0)), "{report}");
    let after = fs::read(&disk).unwrap();
    assert!(after[..from] == content[..from] && after[to..] == content[to..], "the rest of the disk has changed");
    assert!(after[from..to] != content[from..to], "nothing was written");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::write(&disk, vec![0; 16 << 20]).unwrap();
    let server = Server::start(&[disk.to_str().unwrap(), "--read-only"]);
    for (code, words, arguments) in [
        (DISK, "read only", &["--write", "0..8M"][..]),
        (USAGE, "FROM..TO", &["--write", "8M"]),
        (USAGE, "--request 1000", &["--request", "1000"]),
        (USAGE, "--request SIZE", &["--fixed-request"]),
        (USAGE, "--rtt", &["--rtt", "1ms"]),
    ] {
        let ran = tune(server.url(0), arguments);
        assert!(ran.code == Some(code) && ran.stderr.contains(words) && ran.stdout.is_empty(), "{ran}");
    }
    let strange = tune(&format!("{}?congestion_control=dctcp", server.url(0)), &[]);
    assert!(strange.code == Some(USAGE) && strange.stderr.contains("dctcp"), "{strange}");
    let server = Server::start(&["mem:16M"]);
    for (words, range) in
        [("the disk ends at 16777216", "8M..17M"), ("blocks of 512", "1..8M"), ("less than 1048576", "0..64K")]
    {
        let ran = tune(server.url(0), &["--write", range]);
        assert!(ran.code == Some(USAGE) && ran.stderr.contains(words) && ran.stdout.is_empty(), "{ran}");
    }
}

#[test]
fn bytes_are_bounded() {
    let server = Server::start(&["mem:64M"]);
    for arguments in [&["--max-bytes", "20M"][..], &["--max-bytes", "40M", "--write", "0..8M"]] {
        let ran = tune(server.url(0), arguments);
        assert!(ran.code == Some(USAGE) && ran.stderr.contains("are needed") && ran.stdout.is_empty(), "{ran}");
    }
    let report = json(&tune(server.url(0), &["--json", "--max-bytes", "64M"]));
    is_sound(&report);
    let moved: f64 = trials(&report).iter().map(|trial| number(&trial["read"]["bytes"])).sum();
    assert!(moved <= f64::from(64 << 20), "{report}");
}

/// The agreement of LIO unless it is told otherwise.
const LIO_LIKE: &str = r#"
[[portal]]
address = "127.0.0.1:0"

[[target]]
name = "iqn.2026-11.org.example:lio"
max_connections = 1

[target.session]
initial_r2t = true
immediate_data = true
max_outstanding_r2t = 1
first_burst_length = "64K"
max_burst_length = "256K"
max_recv_data_segment_length = "8K"

[[target.lun]]
number = 0
disk = "mem:64M"
"#;

#[test]
fn a_target_with_the_offers_of_lio_gets_what_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lunette.toml");
    fs::write(&file, LIO_LIKE).unwrap();
    let server = Server::spawn(lunette().args(["serve", "--config"]).arg(&file), 1);
    let report = json(&tune(server.url(0), &["--json", "--write", "0..32M"]));
    is_sound(&report);
    let negotiated = &report["target"]["negotiated"];
    assert_eq!((&negotiated["InitialR2T"], &negotiated["MaxOutstandingR2T"]), (&true.into(), &1.into()));
    assert_eq!(negotiated["TargetMaxRecvDataSegmentLength"], 8192);
    for trial in trials(&report) {
        let settings = &trial["settings"];
        assert_eq!((&settings["connections"], &settings["initial_r2t"]), (&1.into(), &true.into()), "{trial}");
        assert_eq!((&settings["first_burst_bytes"], &settings["max_burst_bytes"]), (&65536.into(), &262_144.into()));
    }
    let pasted = report["paste"].to_string();
    assert!(pasted.contains("node.session.iscsi.InitialR2T = Yes"), "{pasted}");
}

#[test]
fn tgt_is_tuned() {
    let tgt = Foreign::tgt(32, false);
    let report = json(&tune(&tgt.url(), &["--json", "--write", "0..16M"]));
    is_sound(&report);
    assert_eq!(report["target"]["connections"], 1);
}

/// Starts a run that is long enough to be interrupted, and waits until the first trial is over: then the second one has
/// logged in.
fn in_the_middle(server: &Server, time: &str) -> Child {
    let mut command = lunette();
    command.args(["tune", "--json", "--time", time, server.url(0)]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Eight connections of the survey, one of the defaults, and the first of the next trial.
    let so = wait_until(LIMIT, || (server.log().matches("logged in").count() >= 10).then_some(()));
    assert!(so.is_some(), "{}", server.log());
    child
}

fn was_lost(child: Child) {
    let output = child.wait_with_output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(LOST), "{stdout}\n{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}\n{stderr}"));
    assert_eq!(report["complete"], false);
    assert!(stderr.contains(report["error"].as_str().unwrap()), "{stderr}");
    assert_eq!(trials(&report)[0]["stage"], "defaults");
    let verdict = &report["verdict"];
    assert_eq!(verdict["proven"], false);
    let rate = |side: &str| number(&verdict[side]["read_bytes_per_second"]);
    assert!(rate("after") >= rate("before") && rate("before") > 0.0, "{verdict}");
}

#[test]
fn a_target_that_vanishes_leaves_what_is_known_and_an_exit_code() {
    let server = Server::start(&["mem:64M"]);
    let child = in_the_middle(&server, "20");
    server.kill();
    was_lost(child);
}

#[test]
fn a_target_that_falls_silent_does_not_hold_up_the_report() {
    let server = Server::start(&["mem:64M"]);
    let child = in_the_middle(&server, "4");
    server.signal(Signal::STOP);
    was_lost(child);
    server.kill();
}

#[test]
fn a_target_that_is_not_there_is_reported_as_by_the_other_commands() {
    let server = Server::start(&["mem:16M"]);
    let url = server.url(0).to_owned();
    server.kill();
    let ran = tune(&url, &["--json"]);
    assert!(ran.code == Some(DISK) && ran.stderr.contains("refused") && ran.stdout.is_empty(), "{ran}");
}
