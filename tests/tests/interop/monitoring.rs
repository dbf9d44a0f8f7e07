//! The dashboard and the alerts of contrib/, against a scrape of a server by Prometheus.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lunette_tests::{Configured, Owned, Server, attach, lunette, run, wait_until};
use rustix::process::Signal;
use serde_json::Value;

/// The longest time for an expression to find something.
const LIMIT: Duration = Duration::from_mins(1);

fn contrib(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib").join(path)
}

/// Sends a request of HTTP/1.0, whose answer ends with the connection.
fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |encoded, byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => encoded + &char::from(byte).to_string(),
        other => encoded + &format!("%{other:02X}"),
    })
}

fn scrape(server: &Server) -> String {
    let log = server.ask(Signal::USR1, &["process_start_time_seconds "]);
    log[log.find("# HELP").unwrap()..].to_owned()
}

/// Answers each connection with the metrics of the server by now.
fn serve_metrics(listener: &TcpListener, server: &Server, ended: &AtomicBool) {
    for stream in listener.incoming() {
        if ended.load(Ordering::Acquire) {
            return;
        }
        let (mut stream, body) = (stream.unwrap(), scrape(server));
        let _ = stream.read(&mut [0; 4096]);
        let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n";
        let _ = stream.write_all((head.to_owned() + &body).as_bytes());
    }
}

/// A Prometheus that is killed at the end.
struct Prometheus {
    _process: Owned,
    address: SocketAddr,
}

impl Prometheus {
    fn start(folder: &Path, scraped: SocketAddr) -> Self {
        let config = format!(
            "global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}\nscrape_configs:\n- job_name: lunette\n  static_configs: [{{targets: ['{scraped}']}}]\n"
        );
        fs::write(folder.join("prometheus.yml"), config).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stderr(Stdio::null());
        Self { _process: Owned::start(command), address }
    }

    /// The result of an expression.
    fn query(&self, expression: &str) -> Option<Value> {
        let body = get(self.address, &format!("/api/v1/query?query={}", encoded(expression)))?;
        let answer: Value = serde_json::from_str(&body).ok()?;
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        Some(answer["data"]["result"].clone())
    }
}

/// The expressions of the dashboard, with its variables replaced as for all servers and targets.
fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_slice(&fs::read(contrib("grafana/lunette.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let all = |text: &str| text.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$target", ".*");
    targets.map(|target| all(target["expr"].as_str().unwrap())).collect()
}

/// The expressions of the alerts: what follows `expr: ` to the end of the line.
fn alerts() -> Vec<String> {
    let rules = fs::read_to_string(contrib("prometheus/lunette.rules.yml")).unwrap();
    rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ").map(str::to_owned)).collect()
}

/// The metrics that an expression names.
fn metrics_in(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words.filter(|word| word.starts_with("lunette_"))
}

/// Metrics that are in a scrape when something has gone wrong.
const FAULTS: [&str; 2] = ["lunette_lun_errors_total", "lunette_trouble_info"];

/// Metrics of pools, which the API tells and SIGUSR1 does not.
const POOLS: [&str; 4] =
    ["lunette_pool_up", "lunette_pool_free_bytes", "lunette_pool_total_bytes", "lunette_schedule_failures_total"];

#[test]
fn every_expression_finds_something_in_a_scrape() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.img");
    let config = folder.path().join("lunette.toml");
    let ca = folder.path().join("ca").display().to_string();
    let tls = |arguments: &[&str]| run(lunette().get_program(), [&["tls"], arguments].concat());
    tls(&["ca", &ca]).succeeded();
    tls(&["issue", &ca, "gw1", "--host", "127.0.0.1"]).succeeded();
    let portal = format!("[[portal]]\naddress = \"127.0.0.1:0\"\ngroup = 2\ntls = \"{ca}/gw1\"\n");
    let text = "listen = [\"127.0.0.1:0\"]\n@[[target]]\nname = \"iqn.2026-11.test:monitored\"\n[[target.lun]]\nnumber = 0\ncreate = \"16M\"\nthin_threshold = \"1M\"\ndisk = ";
    fs::write(&config, format!("{}{disk:?}\n", text.replacen('@', &portal, 1))).unwrap();
    let server = Server::spawn(lunette().args(["serve", "--prometheus", "--config"]).arg(&config), 1);
    let mut session = attach(&server, &[]);
    let mut work = || {
        session.write(0, 0, vec![7; 4096]).good();
        session.read(0, 0, 8).good();
    };
    work();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, ended) = (listener.local_addr().unwrap(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| serve_metrics(&listener, &server, &ended));
        let prometheus = Prometheus::start(folder.path(), address);
        let expressions = dashboard();
        assert!(expressions.len() > 20);
        let mut empty = expressions;
        let found_all = wait_until(LIMIT, || {
            work();
            let finds = |expression: &String| {
                prometheus
                    .query(expression)
                    .is_some_and(|found| found.as_array().is_some_and(|found| !found.is_empty()))
            };
            empty.retain(|expression| !finds(expression));
            empty.is_empty().then_some(())
        });
        for expression in alerts() {
            assert!(prometheus.query(&expression).is_some(), "{expression}");
        }
        ended.store(true, Ordering::Release);
        drop(TcpStream::connect(address));
        assert!(found_all.is_some(), "these find nothing: {empty:#?}");
    });
    let scrape = scrape(&server);
    let known: BTreeSet<_> = scrape.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    for expression in alerts() {
        for name in metrics_in(&expression) {
            let is_elsewhere = FAULTS.contains(&name) || POOLS.contains(&name);
            assert!(known.contains(name) || is_elsewhere, "{name} of an alert is not in a scrape");
        }
    }
    drop(session);
    server.stop();
}

#[test]
fn every_alert_fires_on_what_it_is_for() {
    for arguments in [["check", "rules", "lunette.rules.yml"], ["test", "rules", "lunette.rules.test.yml"]] {
        let promtool = Command::new("promtool").args(arguments).current_dir(contrib("prometheus")).output();
        let output = promtool.expect("install Debian's package prometheus: it has promtool");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Disks whose metrics together are longer than what a socket takes before it is read.
const DISKS: usize = 300;

/// Readers of the metrics at once, as many as leave room for others.
const READERS: usize = 48;

/// Scrapes beside I/O.
const SCRAPES: usize = 1000;

/// A server with an API and many disks.
fn with_api() -> (Configured, Server) {
    let luns: Vec<String> = (0..DISKS).map(|number| format!("{{ number = {number}, disk = \"mem:1M\" }}")).collect();
    let api = "listen = [\"127.0.0.1:0\"]\n[api]\nlisten = [\"unix:@/api.sock\"]\n";
    let target = format!("[[target]]\nname = \"iqn.2026-11.org.example:a\"\nlun = [{}]", luns.join(", "));
    Configured::serve(&format!("{api}{target}"), DISKS)
}

/// Asks for the metrics, and reads nothing yet.
fn ask_for_metrics(place: &Configured) -> UnixStream {
    let mut stream = UnixStream::connect(place.file("api.sock")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    stream
}

fn read_metrics(mut stream: UnixStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{}", answer.lines().next().unwrap_or_default());
    answer
}

#[test]
fn readers_of_the_metrics_that_stop_half_way_hold_up_no_session() {
    let (place, server) = with_api();
    let mut session = attach(&server, &[]);
    let begin = |_| {
        let mut stream = ask_for_metrics(&place);
        stream.read_exact(&mut [0; 1000]).unwrap();
        stream
    };
    let stopped: Vec<UnixStream> = (0..READERS).map(begin).collect();
    for _ in 0..100 {
        session.write(0, 0, vec![7; 4096]).good();
        session.read(0, 0, 8).good();
    }
    let whole = read_metrics(ask_for_metrics(&place));
    assert!(whole.len() > 256 << 10, "{} bytes fit into the buffers of a socket", whole.len());
    // What was begun goes on when it is read.
    for mut stream in stopped {
        assert!(stream.read_to_end(&mut Vec::new()).unwrap() > 256 << 10);
    }
    drop(session);
    server.stop();
}

#[test]
fn a_thousand_scrapes_beside_a_session_lose_none_of_its_commands() {
    let (place, server) = with_api();
    let mut session = attach(&server, &[]);
    let scrapers = 4;
    let mut written = 0;
    thread::scope(|scope| {
        let scrape = || (0..SCRAPES / scrapers).for_each(|_| drop(read_metrics(ask_for_metrics(&place))));
        let scraping: Vec<_> = (0..scrapers).map(|_| scope.spawn(scrape)).collect();
        while written == 0 || scraping.iter().any(|scraper| !scraper.is_finished()) {
            session.write(0, 0, vec![7; 4096]).good();
            written += 1;
        }
    });
    let writes = "lunette_lun_commands_total{target=\"iqn.2026-11.org.example:a\",lun=\"0\",op=\"write\"}";
    let metrics = read_metrics(ask_for_metrics(&place));
    assert!(metrics.contains(&format!("{writes} {written}\n")), "{written} were written");
    drop(session);
    server.stop();
}
