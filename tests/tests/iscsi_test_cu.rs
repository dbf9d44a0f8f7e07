//! libiscsi's own test suite.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use lunette_tests::{Server, run};

/// Runs all tests of a family and counts `[SKIPPED]` lines.
fn nothing_fails(family: &str) {
    let server = Server::start(&["mem:1G"]);
    let ran = run("iscsi-test-cu", ["-d", "-n", "-t", family, server.url(0)]);
    println!("{family}: {} lines [SKIPPED]", ran.stdout.matches("[SKIPPED]").count());
    assert!(passed(&ran.stdout), "{ran}");
    server.stop();
}

/// Reads the summary, whose rows are `NAME TOTAL RAN PASSED FAILED INACTIVE`. The tool's exit code says nothing.
///
/// `[FAILED]` lines are not counted: the tool prints them for commands that are meant to fail, too.
fn passed(output: &str) -> bool {
    let clean = |name: &str| {
        let row = output.lines().map(str::trim).find(|line| line.starts_with(name))?;
        let numbers: Vec<u32> = row.split_whitespace().skip(1).map_while(|number| number.parse().ok()).collect();
        let [total, ran, passed, failed, ..] = numbers[..] else { return None };
        Some(total > 0 && total == ran && ran == passed && failed == 0)
    };
    clean("tests") == Some(true) && clean("asserts") == Some(true)
}

#[test]
fn a_summary_is_read() {
    let summary = |tests: &str, asserts: &str| {
        format!(
            "Type  Total    Ran Passed Failed Inactive\nsuites 4 4 n/a 0 0\ntests {tests} 0\nasserts {asserts} n/a\n"
        )
    };
    assert!(passed(&summary("15 15 15 0", "232 232 232 0")));
    assert!(!passed(&summary("15 15 14 1", "232 232 231 1")));
    assert!(!passed(&summary("15 14 14 0", "232 232 232 0")));
    assert!(!passed(&summary("0 0 0 0", "0 0 0 0")));
    assert!(!passed("the tool ended before its summary"));
}

#[test]
fn the_iscsi_tests_pass() {
    nothing_fails("iSCSI");
}

#[test]
fn the_scsi_tests_pass() {
    nothing_fails("SCSI");
}
