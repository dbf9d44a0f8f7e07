//! Campaigns over programs that misbehave: one that fails costs its cell, and leaves nothing that disturbs the next.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use support::is_possible;

/// Runs one cell of each table with a shell script in place of `lunette`.
fn campaign(folder: &Path, script: &str) -> Output {
    let program = folder.join("lunette");
    fs::write(&program, script).expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a script that can be run");
    let mut tool = Command::new(env!("CARGO_BIN_EXE_lunette-lab"));
    tool.args(["wan", "--smallest", "--lunette"]).arg(&program);
    tool.arg("--results").arg(folder.join("results.jsonl")).arg("--output").arg(folder.join("report"));
    tool.output().expect("the tool runs")
}

/// The first server ends before it listens. The client fails when the first process, which is the tool, still has its
/// relay.
#[test]
fn a_server_that_does_not_start_costs_one_attempt() {
    const SCRIPT: &str = r#"#!/bin/sh
case $1 in
    serve)
        if mkdir "${0%/*}/failed" 2>/dev/null; then exit 3; fi
        exec lunette-lab stream --listen "$LAB_ADDRESS:3260"
        ;;
    bench)
        test "$(cat /proc/1/task/*/comm | grep -c '^relay$')" = 1 || exit 1
        echo '{"gb_per_s": 0.01, "reads": 1, "writes": 0, "uncounted": 0, "event_loop": {"received_pdus": 1}}'
        ;;
esac
"#;
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = campaign(folder.path(), SCRIPT);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(folder.path().join("failed").exists(), "a server has failed");
}

/// The server ignores SIGTERM. The client counts servers, and fails when there is more than its own.
#[test]
fn a_server_that_ignores_signals_is_gone_before_the_next_cell() {
    const SCRIPT: &str = r#"#!/bin/sh
case $1 in
    serve)
        trap '' TERM
        exec lunette-lab stream --listen "$LAB_ADDRESS:3260"
        ;;
    bench)
        test "$(cat /proc/[0-9]*/comm | grep -c '^lunette-lab$')" = 1 || exit 1
        echo '{"gb_per_s": 0.01, "reads": 1, "writes": 0, "uncounted": 0, "event_loop": {"received_pdus": 1}}'
        ;;
esac
"#;
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = campaign(folder.path(), SCRIPT);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
