//! SIGUSR1: a running server prints its statistics.

use std::io::Write;
use std::process::{Command, Stdio};

use lunette_tests::{Server, attach};
use rustix::process::Signal;
use serde_json::Value;

/// The object that the server prints.
fn ask(server: &Server) -> Value {
    let log = server.ask(Signal::USR1, &["since_start"]);
    serde_json::from_str(log.lines().find(|line| line.starts_with('{')).unwrap()).unwrap()
}

#[test]
fn statistics_count_since_the_start_and_since_the_last_print() {
    let server = Server::start(&["mem:16M", "--cores", "2", "--json"]);
    let before = ask(&server);
    assert_eq!((&before["now"]["sessions"], &before["since_start"]["received_pdus"]), (&0.into(), &0.into()));

    let mut sessions: Vec<_> = (0..2).map(|_| attach(&server, &[])).collect();
    for session in &mut sessions {
        session.write(0, 0, vec![7; 4096]).good();
        session.read(0, 0, 8).good();
        // What was sent is counted then, and may be here before: it is counted when the next command is answered.
        session.test_unit_ready(0).good();
    }
    let busy = ask(&server);
    assert_eq!((&busy["now"]["sessions"], &busy["now"]["connections"]), (&2.into(), &2.into()));
    for (count, least) in [
        ("received_pdus", 6),
        ("sent_pdus", 6),
        ("received_bytes", 8192),
        ("sent_bytes", 8192),
        ("copied_bytes", 8192),
        ("batches", 6),
        ("system_calls", 6),
    ] {
        assert!(busy["since_start"][count].as_u64().unwrap() >= least, "{count}: {busy}");
    }

    let disk = &busy["disks"][0];
    let of_disk = ["reads", "read_bytes", "writes", "written_bytes", "errors", "in_flight"].map(|count| &disk[count]);
    assert_eq!(of_disk, [2, 8192, 2, 8192, 0, 0], "{disk}");

    let received = |counts: &Value| counts["received_pdus"].as_u64().unwrap();
    sessions[0].read(0, 0, 8).good();
    let last = ask(&server);
    assert_eq!(received(&last["since_last"]), 1, "{last}");
    assert_eq!(received(&last["since_start"]), received(&busy["since_start"]) + 1, "{last}");
    drop(sessions);
    server.stop();
}

/// Needs Debian's package `prometheus`.
#[test]
fn metrics_are_of_the_same_counters_and_promtool_accepts_them() {
    let server = Server::start(&["mem:16M", "--cores", "2", "--prometheus"]);
    let mut session = attach(&server, &[]);
    session.write(0, 0, vec![7; 4096]).good();
    session.read(0, 0, 8).good();
    let log = server.ask(Signal::USR1, &["process_start_time_seconds "]);
    let metrics: String = log[log.find("# HELP").unwrap()..].to_owned();
    let disk = "{target=\"iqn.2026-11.lunette:disk\",lun=\"0\"";
    for line in [
        format!("lunette_lun_read_bytes_total{disk}}} 4096"),
        format!("lunette_lun_written_bytes_total{disk}}} 4096"),
        format!("lunette_lun_commands_total{disk},op=\"read\"}} 1"),
        format!("lunette_lun_command_duration_seconds_count{disk},op=\"write\"}} 1"),
        "lunette_sessions{target=\"iqn.2026-11.lunette:disk\"} 1".to_owned(),
        "lunette_logins_total{target=\"iqn.2026-11.lunette:disk\",result=\"accepted\"} 1".to_owned(),
    ] {
        assert!(metrics.contains(&format!("\n{line}\n")), "{line} is not in\n{metrics}");
    }
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("install Debian's package prometheus: it has promtool");
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    drop(session);
    server.stop();
}

#[test]
fn the_table_is_for_people() {
    let server = Server::start(&["mem:16M"]);
    let table = server.ask(Signal::USR1, &["bytes of buffers"]);
    assert!(table.contains("since the start") && table.contains("PDUs received"), "{table}");
    server.stop();
}
