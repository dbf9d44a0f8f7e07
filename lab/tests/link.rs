//! The tool as users run it: two namespaces, a link, a command. Only root can, on systems that have TUN devices.

mod support;

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use support::is_possible;

const TOOL: &str = env!("CARGO_BIN_EXE_lunette-lab");
const PORT: u16 = 7001;
const ROUND_TRIP: Duration = Duration::from_millis(10);

fn link(options: &[&str], command: &[&str]) -> Command {
    let mut tool = Command::new(TOOL);
    tool.arg("link").args(options);
    if !command.is_empty() {
        tool.arg("--").args(command);
    }
    tool
}

fn output(options: &[&str], command: &[&str]) -> Output {
    link(options, command).output().expect("the tool runs")
}

fn json(text: &[u8]) -> Value {
    let text = String::from_utf8_lossy(text);
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_else(|_| panic!("no report: {text}"))
}

/// Runs in the processes at both ends of the link, which are this program again.
#[test]
fn one_end_of_an_exchange() {
    let (Ok(address), Ok(peer)) = (env::var("LAB_ADDRESS"), env::var("LAB_PEER")) else { return };
    let mut byte = [7];
    if env::var("LAB_TEST_SERVER").is_ok() {
        let (mut stream, _) =
            TcpListener::bind((address, PORT)).and_then(|listener| listener.accept()).expect("a client");
        while stream.read_exact(&mut byte).is_ok() {
            stream.write_all(&byte).expect("the client is there");
        }
        return;
    }
    let began = Instant::now();
    let mut stream = TcpStream::connect((peer, PORT)).expect("the server listens");
    assert!(began.elapsed() >= ROUND_TRIP, "connected after {:?}", began.elapsed());
    for _ in 0..10 {
        let began = Instant::now();
        stream.write_all(&byte).and_then(|()| stream.read_exact(&mut byte)).expect("the server answers");
        assert!(began.elapsed() >= ROUND_TRIP, "answered after {:?}", began.elapsed());
    }
}

#[test]
fn processes_at_both_ends_talk_over_the_delay() {
    if !is_possible() {
        return;
    }
    let program = env::current_exe().expect("it runs").to_str().expect("a path in UTF-8").to_owned();
    let end = "--exact one_end_of_an_exchange --nocapture";
    // Its lines would stand within the line of the report, which is written at the same time.
    let server = format!("LAB_TEST_SERVER=1 exec '{program}' {end} >/dev/null");
    let port = PORT.to_string();
    let options = ["--rtt", "10ms", "--no-check", "--json", "--serve", &server, "--wait-port", &port];
    let command: Vec<&str> = [&*program].into_iter().chain(end.split(' ')).collect();
    let output = output(&options, &command);
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stdout));
    let traffic = &json(&output.stderr)["command"]["traffic"];
    for way in ["there", "back"] {
        // Ten bytes, the handshake, and the end.
        assert!(traffic[way]["arrived"].as_u64() >= Some(12), "{report}");
        assert_eq!(traffic[way]["lost"], 0, "{report}");
    }
}

#[test]
fn an_ethernet_joins_the_ends() {
    if !is_possible() {
        return;
    }
    for offloads in ["on", "off"] {
        let server = format!("exec '{TOOL}' stream --listen $LAB_ADDRESS:{PORT}");
        let client = format!("'{TOOL}' stream $LAB_PEER:{PORT} --time 1; ip -o link show lab0");
        let port = PORT.to_string();
        let options = [
            "--veth",
            "--offloads",
            offloads,
            "--mtu",
            "9000",
            "--pin",
            "--json",
            "--serve",
            &server,
            "--wait-port",
            &port,
        ];
        let output = output(&options, &["sh", "-c", &client]);
        let report = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{report}");
        let said = String::from_utf8_lossy(&output.stdout);
        let (stream, address) = said.trim().split_once('\n').expect("two lines");
        assert!(json(stream.as_bytes())["mb_per_s"].as_f64() > Some(0.0), "{said}");
        assert!(address.contains("mtu 9000") && address.contains("02:00:00:00:00:01"), "{address}");
        assert_eq!(
            json(&output.stderr)["command"]["traffic"],
            Value::Null,
            "no packet passed an emulated link: {report}"
        );
    }
    let refused = output(&["--veth", "--rtt", "10ms"], &["true"]);
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
}

#[test]
fn the_check_finds_the_delay_and_counts_the_losses() {
    if !is_possible() {
        return;
    }
    let output = output(&["--rate", "50M", "--rtt", "4ms", "--loss", "5%/1%", "--json"], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let check = &json(&output.stdout)["check"];
    assert!(check["idle"]["median_ms"].as_f64() >= Some(4.0), "{check}");
    assert!(check["tcp"]["bits_per_second"].as_f64() > Some(0.0), "{check}");
    for (way, asked) in [("there", 0.05), ("back", 0.01)] {
        let loss = &check["loss"][way];
        assert_eq!(loss["asked_share"], asked, "{check}");
        assert_eq!(loss["strange"], false, "{check}");
        assert!(loss["lost"].as_u64() > Some(0) && loss["sent"].as_u64() >= Some(1000), "{check}");
    }
}

#[test]
fn the_status_is_that_of_the_command() {
    if !is_possible() {
        return;
    }
    for (command, status) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -9 $$"], 137),
        (&["/no/such/program"], 127),
        (&["/etc/passwd"], 126),
    ] {
        let output = output(&["--no-check"], command);
        assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let output = output(&["--no-check", "--serve", "exit 3", "--wait-port", "1"], &["true"]);
    assert_eq!(output.status.code(), Some(125), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn nothing_is_left_when_the_tool_is_killed() {
    if !is_possible() {
        return;
    }
    // One of the processes has left its session, and no terminal would reach it.
    let command = "setsid sleep 1000 & readlink /proc/self/ns/net; exec sleep 1000";
    let mut tool = link(&["--no-check", "--serve", "sleep 1000"], &["sh", "-c", command])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the tool runs");
    let mut lines = BufReader::new(tool.stdout.take().expect("it was asked for"));
    let mut namespace = String::new();
    lines.read_line(&mut namespace).expect("a line of the command");
    assert!(namespace.starts_with("net:["), "{namespace}");
    tool.kill().expect("it runs");
    tool.wait().expect("it has ended");
    // All processes of the namespace have this stream, so its end is theirs.
    lines.read_to_end(&mut Vec::new()).expect("the end of the stream");
    let deadline = Instant::now() + Duration::from_secs(30);
    while has_processes(namespace.trim()) {
        assert!(Instant::now() < deadline, "{namespace} is still there");
        std::thread::yield_now();
    }
}

fn has_processes(namespace: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    processes
        .filter_map(|process| fs::read_link(process.path().join("ns/net")).ok())
        .any(|link| link.as_os_str() == namespace)
}
