//! A `lunette serve` of one's own.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{memory_kib, signal, wait_at_most, wait_until};

/// The target's name when nothing else is said.
pub const DEFAULT_TARGET: &str = "iqn.2026-11.lunette:disk";

/// From the start of the command to its last line.
const START_LIMIT: Duration = Duration::from_secs(20);

/// From SIGTERM to the end, as promised.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The command, not started yet.
pub fn lunette() -> Command {
    Command::new(binary())
}

fn binary() -> PathBuf {
    if let Some(path) = env::var_os("LUNETTE_BIN") {
        return path.into();
    }
    // This runs from target/debug/deps.
    let this = env::current_exe().expect("a running program has a path");
    let binary = this.ancestors().nth(3).expect("target/debug/deps").join("checks/lunette");
    assert!(
        binary.is_file(),
        "{} is missing; build it (cargo build --profile checks --package lunette), or name another in LUNETTE_BIN",
        binary.display()
    );
    binary
}

/// A server that listens. Dropped before [`Server::stop`], it is killed.
pub struct Server {
    child: Option<Child>,
    urls: Vec<String>,
    log: Arc<Mutex<String>>,
    /// Ends with the log.
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves one disk on a port of the system's choice. `arguments` may hold anything beside `--listen`.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", arguments, 1)
    }

    /// Serves `luns` disks at `listen`.
    pub fn start_at(listen: &str, arguments: &[&str], luns: usize) -> Self {
        Self::spawn(lunette().args(["serve", "--listen", listen]).args(arguments), luns)
    }

    /// Starts `command` and reads the URLs of `luns` logical units.
    pub fn spawn(command: &mut Command, luns: usize) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let lines = lines(child.stdout.take().expect("the pipe was asked for"));
        let mut stderr = child.stderr.take().expect("the pipe was asked for");
        let log: Arc<Mutex<String>> = Arc::default();
        let shared = Arc::clone(&log);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // What was read until an error is what there is to show.
            while let Ok(len @ 1..) = stderr.read(&mut bytes) {
                shared.lock().expect("nobody panics here").push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        });
        let mut server = Self { child: Some(child), urls: Vec::new(), log, reader: Some(reader) };
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        let rest = self.url(0).strip_prefix("iscsi://").expect("an iSCSI URL");
        rest.split('/').next().expect("split gives one part at least").parse().expect("HOST:PORT")
    }

    /// The URL of the portal, as discovery wants it.
    pub fn portal_url(&self) -> String {
        format!("iscsi://{}", self.address())
    }

    /// The first URL with a user and password, and more parameters.
    pub fn url_with(&self, credentials: &str, parameters: &str) -> String {
        self.url(0).replacen("iscsi://", &format!("iscsi://{credentials}"), 1) + parameters
    }

    /// The process.
    pub fn process(&self) -> &Child {
        self.child.as_ref().expect("the server runs until it is stopped")
    }

    /// Its memory in KiB.
    pub fn memory_kib(&self) -> u64 {
        memory_kib(self.process())
    }

    /// Sends SIGHUP, as [`Server::ask`] does.
    pub fn hang_up(&self, answers: &[&str]) -> String {
        self.ask(Signal::HUP, answers)
    }

    /// Sends `asked` and waits until it logs one of `answers`. Gives what it has logged since the signal.
    pub fn ask(&self, asked: Signal, answers: &[&str]) -> String {
        let before = self.log().len();
        signal(self.process(), asked);
        let logged = || {
            let log = self.log().split_off(before);
            let whole_line = log.ends_with('\n') && answers.iter().any(|answer| log.contains(answer));
            whole_line.then_some(log)
        };
        let log = wait_until(START_LIMIT, logged);
        log.unwrap_or_else(|| panic!("none of {answers:?} is logged after {asked:?}:\n{}", self.log()))
    }

    /// What it has logged until now.
    pub fn log(&self) -> String {
        self.log.lock().expect("nobody panics here").clone()
    }

    /// Sends SIGTERM and nothing more.
    pub fn terminate(&self) {
        signal(self.process(), Signal::TERM);
    }

    /// Sends SIGKILL while others use it. It is not waited for.
    pub fn kill_now(&self) {
        signal(self.process(), Signal::KILL);
    }

    /// Waits for its end and gives the exit status and the log.
    pub fn wait(mut self, limit: Duration) -> (ExitStatus, String) {
        let status = self.child.as_mut().and_then(|child| wait_at_most(child, limit));
        let log = self.end_by_force();
        (status.unwrap_or_else(|| panic!("the server does not end within {limit:?}\n{log}")), log)
    }

    /// Stops it in good order. Panics when that fails. Gives the log.
    pub fn stop(self) -> String {
        self.terminate();
        let (status, log) = self.wait(STOP_LIMIT);
        assert!(status.success(), "the server ended with {status}\n{log}");
        assert!(!log.contains("panicked"), "{log}");
        log
    }

    /// Ends it at once (SIGKILL).
    pub fn kill(mut self) {
        self.end_by_force();
    }

    fn end_by_force(&mut self) -> String {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
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
            // Nobody listens once the server has started.
            let _ = sender.send(line);
        }
    });
    receiver
}
