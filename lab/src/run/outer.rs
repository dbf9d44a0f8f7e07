//! The process that was started: it waits for the one that works, and passes signals on.

use std::env;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::net::sys::{self, Unshared};

use super::{BY_SIGNAL, FAILED, exit_code};

/// The program as it runs, even if its file was replaced.
const PROGRAM: &str = "/proc/self/exe";

/// Runs the same tool with the same options in a process namespace, and returns its status.
pub(crate) fn run() -> Result<ExitCode> {
    let mut hangups = passed_on(SIGHUP)?;
    let mut terminations = passed_on(SIGTERM)?;
    // The terminal sends this one to all processes.
    signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)))?;
    sys::unshare(Unshared::Processes)
        .context("cannot make a process namespace: run this as root (a container needs CAP_SYS_ADMIN)")?;
    let tool: Vec<OsString> = env::args_os().skip(1).collect();
    let parent = std::process::id().to_string();
    let mut inner = Command::new(PROGRAM)
        .args(["inside", &parent])
        .args(tool)
        .spawn()
        .context("cannot start this program a second time")?;
    wait(&mut inner, &mut [(&mut hangups, Signal::HUP), (&mut terminations, Signal::TERM)])?;
    let status = inner.wait()?;
    let code = status.code().or_else(|| status.signal().map(|signal| BY_SIGNAL + signal));
    Ok(code.map_or(ExitCode::from(FAILED), exit_code))
}

/// A stream that has a byte for each signal.
fn passed_on(signal: i32) -> Result<UnixStream> {
    let (stream, handler) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(signal, handler)?;
    Ok(stream)
}

/// Waits for the end of the child. There can be no threads beside it in this process.
fn wait(inner: &mut Child, signals: &mut [(&mut UnixStream, Signal); 2]) -> Result<()> {
    let pid = Pid::from_child(inner);
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        let mut ready = [
            PollFd::new(&ended, PollFlags::IN),
            PollFd::new(&*signals[0].0, PollFlags::IN),
            PollFd::new(&*signals[1].0, PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let events = ready.map(|stream| stream.revents());
        if !events[0].is_empty() {
            return Ok(());
        }
        for ((stream, signal), event) in signals.iter_mut().zip(&events[1..]) {
            if !event.is_empty() {
                stream.read_exact(&mut [0])?;
                // It may have ended meanwhile.
                let _ = kill_process(pid, *signal);
            }
        }
    }
}
