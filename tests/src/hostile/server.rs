//! A server under attack, and its requirements.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::fault::{Fault, Kind};
use super::witness;
use crate::process::wait_until;
use crate::{Server, lunette};

/// Short time limits, so that walks reach them, and few buffers, so that a crowd fills them.
const LIMITS: &str = "limits = { buffers = \"32M\", data_timeout = 3, login_timeout = 5 }";

/// A small request without an answer by then is starved. Hostile initiators may hold their buffers for longer.
pub(super) const STARVED_AFTER: Duration = Duration::from_secs(6);

/// The longest time from the end of all peers to a server that holds nothing. A connection that failed lingers for 5 s;
/// then its tasks wait for 22 s when the initiator has sent no times: the defaults of DefaultTime2Wait and
/// DefaultTime2Retain (RFC 7143 sections 13.15 and 13.16).
const SETTLED_AFTER: Duration = Duration::from_secs(35);

/// The longest time from SIGTERM to the end.
const STOP_LIMIT: Duration = Duration::from_secs(12);

/// The most memory of a server: its buffers (256 MiB), its disks (144 MiB), and the needs of sessions, sockets and the
/// allocator.
const MEMORY_CAP_KIB: u64 = 640 << 10;

const SHARED: &str = "iqn.2026-11.org.example:shared";
const OTHER: &str = "iqn.2026-11.org.example:other";
const PRIVATE: &str = "iqn.2026-11.org.example:private";

/// The targets that hostile initiators use, the more interesting one more often.
pub(super) const TARGETS: &[&str] = &[SHARED, SHARED, OTHER];

/// A server with a target for all, another one, and one for the witness alone.
pub(super) struct Besieged {
    server: Server,
    pub(super) address: SocketAddr,
    _folder: TempDir,
}

impl Besieged {
    /// Starts a server. Every second one has two cores.
    pub(super) fn start(number: u64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("lunette.toml");
        fs::write(&file, configuration(1 + number % 2)).expect("room for a file");
        let mut command = lunette();
        command.args(["serve", "--json", "--config"]).arg(&file).env("RUST_LOG", "error");
        let server = Server::spawn(&mut command, 6);
        let address = server.address();
        Self { server, address, _folder: folder }
    }

    pub(super) fn private_session(&self, stop: &dyn Fn() -> bool) -> Result<(), witness::Complaint> {
        witness::private_session(self.address, PRIVATE, stop)
    }

    pub(super) fn shared_session(&self, stop: &dyn Fn() -> bool) -> Result<(), witness::Complaint> {
        witness::shared_session(self.address, SHARED, PRIVATE, stop)
    }

    /// Whether a login and TEST UNIT READY are answered.
    pub(super) fn answers(&self) -> Result<(), witness::Complaint> {
        witness::Witness::attach(self.address, PRIVATE).map(drop)
    }

    /// Checks for faults that may show at any time: an end, a panic, an error in the log, too much memory.
    pub(super) fn look(&self) -> Option<Fault> {
        if fs::metadata(format!("/proc/{}/task", self.server.process().id())).is_err() || self.is_dead() {
            return Some(Fault::new(Kind::Panic, format!("the server has ended\n{}", self.complaints())));
        }
        let complaints = self.complaints();
        if complaints.contains("panicked") {
            return Some(Fault::new(Kind::Panic, complaints));
        }
        if !complaints.is_empty() {
            return Some(Fault::new(Kind::Other, format!("the server logs an error\n{complaints}")));
        }
        let memory_kib = self.server.memory_kib();
        (memory_kib > MEMORY_CAP_KIB)
            .then(|| Fault::new(Kind::Other, format!("the server has {memory_kib} KiB of memory")))
    }

    /// Whether the process has ended. A child that was not waited for is then a zombie, which has no memory.
    fn is_dead(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.process().id())).unwrap_or_default();
        status.contains("State:\tZ") || !status.contains("RssAnon:")
    }

    /// Lines of its log, without its statistics.
    fn complaints(&self) -> String {
        self.server.log().lines().filter(|line| !line.starts_with('{')).collect::<Vec<_>>().join("\n")
    }

    /// Waits until the server holds nothing, once all peers are gone.
    pub(super) fn settle(&self) -> Option<Fault> {
        let mut last = Value::Null;
        let is_empty = || {
            std::thread::sleep(Duration::from_millis(100));
            last = self.counts()?;
            let is_zero = |key: &str| last[key].as_u64() == Some(0);
            ["sessions", "connections", "lost_connections", "commands", "buffer_bytes"]
                .into_iter()
                .all(is_zero)
                .then_some(())
        };
        let settled = wait_until(SETTLED_AFTER, is_empty);
        settled
            .is_none()
            .then(|| Fault::new(Kind::Other, format!("{SETTLED_AFTER:?} after the last peer is gone: {last}")))
    }

    /// The server's statistics, which SIGUSR1 asks for.
    fn counts(&self) -> Option<Value> {
        let before = self.server.log().len();
        self.server.signal(Signal::USR1);
        wait_until(Duration::from_secs(5), || {
            let log = self.server.log().split_off(before);
            let line = log.lines().find(|line| line.starts_with('{') && line.ends_with('}'))?;
            serde_json::from_str::<Value>(line).ok().map(|counts| counts["now"].clone())
        })
    }

    /// Sends SIGTERM and waits for the end that must follow.
    pub(super) fn stop(self) -> Option<Fault> {
        self.server.terminate();
        let ended = wait_until(STOP_LIMIT, || self.is_dead().then_some(()));
        if ended.is_none() {
            self.server.kill();
            return Some(Fault::new(Kind::Hang, format!("SIGTERM does not end the server within {STOP_LIMIT:?}")));
        }
        let (status, _) = self.server.wait(STOP_LIMIT);
        (!status.success()).then(|| Fault::new(Kind::Other, format!("after SIGTERM the server ends with {status}")))
    }
}

fn configuration(cores: u64) -> String {
    let session = "session = { error_recovery_level = 2, max_burst_length = \"4M\", data_pdu_in_order = false, \
                   data_sequence_in_order = false, default_time2retain = 3, max_time2wait = 3 }";
    let name = witness::NAME;
    format!(
        "listen = [\"127.0.0.1:0\"]\ncores = {cores}\n{LIMITS}\n\
         [[target]]\nname = \"{SHARED}\"\n{session}\n\
         lun = [{{ number = 0, disk = \"mem:64M\" }}, {{ number = 1, disk = \"mem:32M\" }}, \
         {{ number = 2, disk = \"mem:16M\", block_size = 4096 }}]\n\
         [[target]]\nname = \"{OTHER}\"\nmarker_interval = 1024\n\
         lun = [{{ number = 0, disk = \"mem:16M\" }}, {{ number = 1, disk = \"mem:8M\", read_only = true }}]\n\
         [[target]]\nname = \"{PRIVATE}\"\nallow = [\"{name}\"]\nlun = [{{ number = 0, disk = \"mem:8M\" }}]\n"
    )
}
