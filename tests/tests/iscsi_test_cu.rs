//! libiscsi's own test suite.
//!
//! Each suite runs in a process of its own: a test that is skipped in the middle (COMPARE AND WRITE of an invalid length,
//! where the command is not there) leaves a hook behind that spoils the CDBs of all later tests of the process.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use lunette_tests::{Server, run};

/// Runs all suites of a family and counts `[SKIPPED]` lines.
fn nothing_fails(family: &str) {
    let server = Server::start(&["mem:1G"]);
    let list = run("iscsi-test-cu", ["-l"]);
    let prefix = format!("{family}.");
    // FAMILY.SUITE has two parts, FAMILY.SUITE.TEST three.
    let suites = list.succeeded().lines().map(str::trim);
    let suites: Vec<&str> = suites.filter(|line| line.starts_with(&prefix) && line.split('.').count() == 2).collect();
    assert!(!suites.is_empty(), "no suite of {family} in {list}");

    let (mut skipped, mut failed) = (0, Vec::new());
    for suite in &suites {
        let ran = run("iscsi-test-cu", ["-d", "-n", "-t", suite, server.url(0)]);
        skipped += ran.stdout.matches("[SKIPPED]").count();
        if !passed(&ran.stdout) {
            failed.push(ran.to_string());
        }
    }
    println!("{family}: {} suites, {skipped} tests skipped", suites.len());
    assert!(failed.is_empty(), "{} of {} suites failed:\n{}", failed.len(), suites.len(), failed.join("\n"));
    server.stop();
}

/// Reads the summary, whose rows are `NAME TOTAL RAN PASSED FAILED INACTIVE`. The tool's exit code says nothing.
///
/// `[FAILED]` lines are not counted: the tool prints them for commands that are meant to fail, too.
fn passed(output: &str) -> bool {
    let row = |name: &str| {
        let line = output.lines().map(str::trim).find(|line| line.starts_with(name))?;
        let [total, ran, passed, failed] = line.split_whitespace().skip(1).collect::<Vec<_>>()[..4] else {
            return None;
        };
        Some((total.to_owned(), ran.to_owned(), passed.to_owned(), failed.to_owned()))
    };
    let clean =
        |name| row(name).is_some_and(|(total, ran, passed, failed)| total == ran && ran == passed && failed == "0");
    clean("tests") && clean("asserts")
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
