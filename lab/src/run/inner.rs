//! The process that works: the first one of its process namespace.

use std::fs;
use std::io::ErrorKind;
use std::process::{ExitCode, exit};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::check;
use crate::net::sys::{self, Unshared};
use crate::options::Options;

use super::exchange::{self, Exchange};
use super::report::Report;
use super::{BY_SIGNAL, children, exit_code};

/// The exit statuses for commands that cannot be started, as shells have them.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Makes this process the one that works. `parent` is the process that started it.
pub(crate) fn enter(parent: u32) -> Result<Running> {
    end_with(parent)?;
    let running = Running::default();
    pass_signals_on(&running)?;
    mount_processes().context("cannot mount /proc for the process namespace")?;
    Ok(running)
}

/// Does what the options of `lunette-lab link` say.
pub(crate) fn link(options: &Options, running: &Running) -> Result<ExitCode> {
    let link = options.link()?;
    let pair = exchange::ends(options)?;
    let mut report = Report::new(&link, options.mtu, options.seed, options.json, options.command.is_empty());
    if !options.no_check && !options.veth {
        report.checked(
            check::run(&pair, &link, options.mtu).context("the link cannot be measured (--no-check does without)")?,
        );
    }
    if options.command.is_empty() {
        report.print();
        return Ok(ExitCode::SUCCESS);
    }
    let exchange = Exchange::start(options, pair)?;
    let began = Instant::now();
    let command = match children::start(&exchange.pair.near, children::command(&options.command)) {
        Ok(pid) => pid,
        Err(error) => {
            eprintln!("error: cannot run {}: {error}", options.command[0].display());
            let missing = error.kind() == ErrorKind::NotFound;
            return Ok(ExitCode::from(if missing { NOT_FOUND } else { NOT_EXECUTABLE }));
        }
    };
    running.set(Some(command));
    let status = children::await_end(command)?;
    running.set(None);
    let elapsed = began.elapsed();
    report.ran(status, elapsed, exchange.finish()?);
    report.print();
    Ok(exit_code(status))
}

/// Makes the kernel end this process when its parent dies.
fn end_with(parent: u32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // If the parent died before, another process has this one now. /proc is still that of the parent's namespace.
    let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let now = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok());
    ensure!(now == Some(parent), "this is the part of `lunette-lab` that the tool starts by itself");
    Ok(())
}

/// A /proc with the processes of this namespace, which only they see.
fn mount_processes() -> Result<()> {
    sys::unshare(Unshared::Mounts)?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
    Ok(())
}

/// The command, as long as it runs.
#[derive(Clone, Default)]
pub(crate) struct Running(Arc<Mutex<Option<Pid>>>);

impl Running {
    fn set(&self, command: Option<Pid>) {
        *self.0.lock().expect("its holders do not panic") = command;
    }

    /// Sends the command a signal. False if there is no command.
    fn signal(&self, signal: Signal) -> bool {
        let command = self.0.lock().expect("its holders do not panic");
        // It may have ended just now; then there is nothing to do.
        command.map(|pid| kill_process(pid, signal)).is_some()
    }
}

/// The first process of a namespace gets no signal that it does not handle: this ends it, or the command if there is
/// one.
fn pass_signals_on(running: &Running) -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let running = running.clone();
    thread::Builder::new().name("signals".into()).spawn(move || {
        for number in signals.forever() {
            let is_running = match number {
                SIGHUP => running.signal(Signal::HUP),
                SIGTERM => running.signal(Signal::TERM),
                // The terminal sends it to the command, too, which decides.
                _ => running.0.lock().expect("its holders do not panic").is_some(),
            };
            if !is_running {
                exit(BY_SIGNAL + number);
            }
        }
    })?;
    Ok(())
}
