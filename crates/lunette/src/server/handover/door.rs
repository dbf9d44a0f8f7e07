//! The place where a running server is asked for a handover: a Unix socket in the abstract namespace.
//!
//! The number of the process is in its name. Root and the user of the process may ask.

use std::fmt;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::leaving::{Leaving, program_was_replaced};
use crate::failure::Failure;

/// The beginning of the names of the sockets.
const PREFIX: &str = "lunette/";

/// The questions of a client.
const ALWAYS: &str = "hand over";
const IF_REPLACED: &str = "hand over if the program was replaced";

/// The most bytes of a question.
const MAX_QUESTION_BYTES: u64 = 100;

/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The time that a client has to ask.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// The time that a handover may take, all its limits together.
const LIMIT: Duration = Duration::from_mins(2);

/// The time that a new process has until it can be asked in its turn.
const DOOR_LIMIT: Duration = Duration::from_secs(5);

/// The interval at which it is looked whether it can.
const DOOR_LOOK: Duration = Duration::from_millis(5);

/// How a handover has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Another process has the sessions.
    Taken {
        /// The number of the process.
        pid: u32,
        /// The sessions that go on.
        sessions: usize,
        /// The sessions that have ended.
        lost: usize,
        /// The longest pause that an initiator has noticed, in microseconds.
        pause_us: u64,
    },
    /// The program was not replaced, and everything goes on as it was.
    NotReplaced,
    /// Everything goes on as it was.
    Refused {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { pid, sessions, lost, pause_us } => {
                let pause_ms = pause_us.div_ceil(1000);
                write!(f, "process {pid} goes on with {sessions} sessions after a pause of {pause_ms} ms")?;
                if *lost > 0 { write!(f, "; {lost} sessions have ended") } else { Ok(()) }
            }
            Self::NotReplaced => f.write_str("the program is the one that runs; the server goes on as it was"),
            Self::Refused { reason } => f.write_str(reason),
        }
    }
}

fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{PREFIX}{pid}"))
}

/// Opens the socket, where one can be opened. A server without it is as good as any until its upgrade.
pub(crate) fn open(leaving: Leaving) {
    if let Err(error) = start(leaving) {
        tracing::warn!(%error, "lunette upgrade cannot reach this process");
    }
}

/// Answers those that ask, until the process ends.
fn start(leaving: Leaving) -> io::Result<()> {
    let listener = UnixListener::bind_addr(&address(process::id())?)?;
    let answer = move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => answer(&stream, &leaving),
                // Descriptors may be short for a while.
                Err(_) => thread::sleep(ACCEPT_PAUSE),
            }
        }
    };
    thread::Builder::new().name("lunette-handover".into()).spawn(answer).map(drop)
}

fn answer(stream: &UnixStream, leaving: &Leaving) {
    let may_ask = socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid());
    if !may_ask {
        return tracing::debug!("another user has asked for a handover");
    }
    let finish = |outcome: &Outcome| finish(stream, outcome);
    match question(stream).as_deref() {
        Ok(ALWAYS) => leaving.hand_over(finish),
        Ok(IF_REPLACED) if program_was_replaced() => leaving.hand_over(finish),
        Ok(IF_REPLACED) => finish(&Outcome::NotReplaced),
        _ => {}
    }
}

/// Tells how a handover has ended. This process ends if another one has everything.
fn finish(mut stream: &UnixStream, outcome: &Outcome) {
    let mut line = serde_json::to_vec(outcome).unwrap_or_default();
    line.push(b'\n');
    // Whoever has asked may have gone.
    let _ = stream.write_all(&line);
    if matches!(outcome, Outcome::Taken { .. }) {
        // Nothing may be closed, flushed or unlocked: it is another process's.
        lunette_rbd::exit_now(0);
    }
}

fn question(stream: &UnixStream) -> io::Result<String> {
    stream.set_read_timeout(Some(ASK_LIMIT))?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_QUESTION_BYTES)).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// Asks a server for a handover, and waits for its end.
pub(crate) fn ask(pid: u32, if_replaced: bool) -> Result<Outcome, Failure> {
    let failed = |error: io::Error| Failure::other(format!("process {pid} does not answer: {error}"));
    let mut stream = address(pid).and_then(|address| UnixStream::connect_addr(&address)).map_err(failed)?;
    if !is_of(&stream, pid) {
        return Err(Failure::other(format!("another process than {pid} answers for it")));
    }
    let question = if if_replaced { IF_REPLACED } else { ALWAYS };
    stream.write_all(format!("{question}\n").as_bytes()).map_err(failed)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(failed)?;
    let outcome = serde_json::from_str(&line);
    let outcome = outcome.map_err(|_| Failure::other(format!("process {pid} has ended, or says nothing known")))?;
    if let Outcome::Taken { pid, .. } = &outcome {
        await_door(*pid);
    }
    Ok(outcome)
}

/// Waits until a new process can be asked in its turn.
fn await_door(pid: u32) {
    let limit = Instant::now() + DOOR_LIMIT;
    while !listens(pid) && Instant::now() < limit {
        thread::sleep(DOOR_LOOK);
    }
}

/// Whether the process of that number can be asked.
fn listens(pid: u32) -> bool {
    let stream = address(pid).and_then(|address| UnixStream::connect_addr(&address));
    stream.is_ok_and(|stream| is_of(&stream, pid))
}

/// The servers of this machine that can be asked.
pub(crate) fn servers() -> io::Result<Vec<u32>> {
    let sockets = fs::read_to_string("/proc/net/unix")?;
    let pid = |line: &str| line.rsplit_once('@')?.1.strip_prefix(PREFIX)?.parse().ok();
    let mut pids: Vec<u32> = sockets.lines().filter_map(pid).collect();
    pids.sort_unstable();
    pids.dedup();
    // Any user may choose such a name.
    pids.retain(|pid| listens(*pid));
    Ok(pids)
}

/// Whether the process of that number listens at the other end.
fn is_of(stream: &UnixStream, pid: u32) -> bool {
    socket_peercred(stream).is_ok_and(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()) == Ok(pid))
}
