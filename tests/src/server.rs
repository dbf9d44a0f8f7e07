//! A `lunette serve` for a single test.

use std::borrow::BorrowMut;
use std::env;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, set_child_subreaper};
use serde::Deserialize;

use crate::configured::Configured;
use crate::process::{Process, wait_until};
use crate::tool::run_at_most;

/// The default name of the target.
pub const DEFAULT_TARGET: &str = "iqn.2026-11.lunette:disk";

/// The longest time from the start of the command to its last line.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The time from SIGTERM to the end that the server promises.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The command, not started yet, without input.
pub fn lunette() -> Command {
    let mut command = Command::new(binary());
    command.stdin(Stdio::null());
    command
}

fn binary() -> PathBuf {
    if let Some(path) = env::var_os("LUNETTE_BIN") {
        return path.into();
    }
    // The test program is in target/debug/deps.
    let this = env::current_exe().expect("a running program has a path");
    let binary = this.ancestors().nth(2).expect("target/debug/deps").join("lunette");
    assert!(
        binary.is_file(),
        "{} is missing; build it (cargo build --package lunette), or name another in LUNETTE_BIN",
        binary.display()
    );
    binary
}

/// The command that serves what is in `place`, with `socket` as the only one that a service manager passes. `runner`
/// runs it: a program that ends by executing its arguments.
pub fn passing_socket(mut runner: Command, place: &Configured, socket: impl Into<OwnedFd>) -> Command {
    runner.args(["sh", "-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" 3<&0 </dev/null", "sh"]).arg(binary());
    runner.args(["serve", "--config"]).arg(place.file("config")).stdin(socket.into());
    runner
}

/// The longest time of a handover, with the start of the successor.
const UPGRADE_LIMIT: Duration = Duration::from_mins(1);

/// A handover, as `lunette upgrade --json` reports it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Upgrade {
    /// The process that goes on.
    pub pid: u32,
    /// The sessions that go on.
    pub sessions: usize,
    /// The sessions that have ended.
    pub lost: usize,
    /// The longest pause that an initiator has noticed, in microseconds.
    pub pause_us: u64,
    /// The time of the command.
    #[serde(skip)]
    pub took: Duration,
}

/// A server that listens. Dropping it without [`Server::stop`] kills it.
pub struct Server {
    process: Process,
    urls: Vec<String>,
    log: Arc<Mutex<String>>,
    /// The thread that reads the log, and ends with it.
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves one disk on a port of the system's choice. `arguments` may hold anything except `--listen`.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", arguments, 1)
    }

    /// Serves `luns` disks at `listen`.
    pub fn start_at(listen: &str, arguments: &[&str], luns: usize) -> Self {
        Self::spawn(lunette().args(["serve", "--listen", listen]).args(arguments), luns)
    }

    /// Starts `command`, with the input that it has, and reads the URLs of `luns` logical units.
    pub fn spawn(mut command: impl BorrowMut<Command>, luns: usize) -> Self {
        let command = command.borrow_mut();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let lines = lines(child.stdout.take().expect("the pipe was asked for"));
        let mut stderr = child.stderr.take().expect("the pipe was asked for");
        let log: Arc<Mutex<String>> = Arc::default();
        let shared = Arc::clone(&log);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // After an error, the log is what was read before.
            while let Ok(len @ 1..) = stderr.read(&mut bytes) {
                shared.lock().expect("no thread panics with it").push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        });
        let mut server = Self { process: child.into(), urls: Vec::new(), log, reader: Some(reader) };
        while server.urls.len() < luns {
            match lines.recv_timeout(START_LIMIT) {
                Ok(line) => server.urls.push(line),
                Err(error) => {
                    let log = server.end_by_force();
                    panic!("{command:?} printed {:?} and then {error}\n{log}", server.urls);
                }
            }
        }
        server
    }

    /// The URL of the n-th logical unit.
    pub fn url(&self, n: usize) -> &str {
        &self.urls[n]
    }

    /// All URLs, in the order in which they were printed.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        let rest = self.url(0).strip_prefix("iscsi://").expect("an iSCSI URL");
        rest.split('/').next().expect("split gives one part at least").parse().expect("HOST:PORT")
    }

    /// The URL of the portal, for discovery.
    pub fn portal_url(&self) -> String {
        format!("iscsi://{}", self.address())
    }

    /// The first URL with a user and password, and more parameters.
    pub fn url_with(&self, credentials: &str, parameters: &str) -> String {
        self.url(0).replacen("iscsi://", &format!("iscsi://{credentials}"), 1) + parameters
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The memory of the process in KiB.
    pub fn memory_kib(&self) -> u64 {
        self.process.memory_kib()
    }

    /// Has the program at the server's path take its place, as another process. Panics when it does not.
    pub fn upgrade(&mut self) -> Upgrade {
        self.try_upgrade().unwrap_or_else(|reason| panic!("{reason}\n{}", self.log()))
    }

    /// Like [`upgrade`](Self::upgrade), for a program that may not take its place. Then there is the message of
    /// `lunette upgrade`, and the server is the one from before.
    pub fn try_upgrade(&mut self) -> Result<Upgrade, String> {
        // The successor is a child of the predecessor, whose orphans then are children of this program.
        set_child_subreaper(Some(Pid::INIT)).expect("Linux has subreapers");
        let id = self.process.id().to_string();
        let began = Instant::now();
        let ran = run_at_most(UPGRADE_LIMIT, lunette().args(["upgrade", "--json", "--pid", &id]));
        if ran.code == Some(1) {
            return Err(ran.failed());
        }
        let upgrade: Upgrade = serde_json::from_str(ran.succeeded()).unwrap_or_else(|error| panic!("{error}: {ran}"));
        let upgrade = Upgrade { took: began.elapsed(), ..upgrade };
        let status = self.process.end_within(STOP_LIMIT).expect("the predecessor ends");
        assert!(status.success(), "the predecessor ended with {status}\n{}", self.log());
        self.process = Process::of(upgrade.pid);
        Ok(upgrade)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Sends SIGHUP and waits, as [`Server::ask`] does.
    pub fn hang_up(&self, answers: &[&str]) -> String {
        self.ask(Signal::HUP, answers)
    }

    /// Sends `asked` and waits until it logs one of `answers`. Returns the log since the signal.
    pub fn ask(&self, asked: Signal, answers: &[&str]) -> String {
        let before = self.log().len();
        self.signal(asked);
        let logged = || {
            let log = self.log().split_off(before);
            let whole_line = log.ends_with('\n') && answers.iter().any(|answer| log.contains(answer));
            whole_line.then_some(log)
        };
        let log = wait_until(START_LIMIT, logged);
        log.unwrap_or_else(|| panic!("none of {answers:?} is logged after {asked:?}:\n{}", self.log()))
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("no thread panics with it").clone()
    }

    /// Waits until `text` has been logged this many times.
    pub fn await_log(&self, text: &str, times: usize) {
        let logged = || (self.log().matches(text).count() >= times).then_some(());
        let is_logged = wait_until(START_LIMIT, logged).is_some();
        assert!(is_logged, "{text:?} is not logged {times} times:\n{}", self.log());
    }

    /// Sends SIGTERM without waiting.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGKILL without waiting, while other threads use the server.
    pub fn kill_now(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for its end and returns the exit status and the log.
    pub fn wait(mut self, limit: Duration) -> (ExitStatus, String) {
        let status = self.process.end_within(limit);
        let log = self.end_by_force();
        (status.unwrap_or_else(|| panic!("the server does not end within {limit:?}\n{log}")), log)
    }

    /// Stops it in an orderly way, and returns the log. Panics when that fails.
    pub fn stop(self) -> String {
        self.terminate();
        let (status, log) = self.wait(STOP_LIMIT);
        assert!(status.success(), "the server ended with {status}\n{log}");
        assert!(!log.contains("panicked"), "{log}");
        log
    }

    /// Kills it (SIGKILL).
    pub fn kill(mut self) {
        self.end_by_force();
    }

    fn end_by_force(&mut self) -> String {
        self.process.kill();
        if let Some(reader) = self.reader.take() {
            reader.join().expect("a reader does not panic");
        }
        self.log()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let log = self.end_by_force();
        if thread::panicking() {
            eprintln!("the server's log:\n{log}");
        }
    }
}

fn lines(stdout: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // The receiver is gone once the server has started.
            let _ = sender.send(line);
        }
    });
    receiver
}
