//! The commands at the two ends, and the orphans that they leave to the first process of the namespace.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait, waitpid};

use crate::net::End;

use super::BY_SIGNAL;

/// How long a server may take until it listens.
const START: Duration = Duration::from_secs(10);
/// How long a group may take until it ends, after SIGTERM and again after SIGKILL.
const END: Duration = Duration::from_secs(2);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// The unit in which /proc counts CPU time: `USER_HZ` is 100 on Linux.
const MS_PER_TICK: u64 = 10;
/// The state of a socket that listens, in /proc/net/tcp.
const LISTENS: &str = "0A";

/// Starts a command at that end of the link.
pub(crate) fn start(end: &End, command: Command) -> io::Result<Pid> {
    spawn(end, command).map(|child| Pid::from_child(&child))
}

/// Starts a command at that end of the link, for a caller that waits for it.
pub(crate) fn spawn(end: &End, mut command: Command) -> io::Result<Child> {
    command.env("LAB_ADDRESS", end.address.to_string()).env("LAB_PEER", end.peer.to_string());
    end.namespace.run(move || command.spawn())
}

/// The processes that a command and its children are, unless they leave its process group. Dropping it ends them.
pub(crate) struct Group(Pid);

impl Group {
    /// Starts a command at that end of the link, as the first process of a group.
    pub(crate) fn start(end: &End, mut command: Command) -> io::Result<Self> {
        command.process_group(0);
        start(end, command).map(Self)
    }

    /// The CPU time of its processes, and of children that these have waited for.
    pub(crate) fn cpu(&self) -> Duration {
        let group = self.0.as_raw_nonzero().get();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let stats = processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
        stats.filter_map(|stat| cpu_of(&stat, group)).sum()
    }

    /// Sends all processes a signal until none is left. False if some are left after a while.
    fn end_with(&self, signal: Signal) -> bool {
        let began = Instant::now();
        // Once they are all gone there is no such group.
        while kill_process_group(self.0, signal).is_ok() {
            if began.elapsed() > END {
                return false;
            }
            // A child whose parent has ended before is this process's, and counts for the group until it is reaped.
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            thread::sleep(LOOK);
        }
        true
    }
}

/// The CPU time in a line of /proc/PID/stat, if the process is in that group.
fn cpu_of(stat: &str, group: i32) -> Option<Duration> {
    // Behind the name, which may have spaces: state, parent, group, ..., and the times as the 12th to 15th.
    let columns: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (columns.get(2)?.parse() == Ok(group)).then_some(())?;
    let ticks: u64 = columns.get(11..15)?.iter().filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(ticks * MS_PER_TICK))
}

/// Asks them to end, and kills what does not: a campaign goes on in the same process namespace.
impl Drop for Group {
    fn drop(&mut self) {
        if !self.end_with(Signal::TERM) && !self.end_with(Signal::KILL) {
            eprintln!("warning: processes of a server are left, which SIGKILL does not end");
        }
    }
}

/// The CPU time of all processes that this one has waited for.
pub(crate) fn waited_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let columns = stat.rsplit_once(')').map_or("", |(_, columns)| columns).split_whitespace();
    let ticks: u64 = columns.skip(13).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * MS_PER_TICK)
}

/// The command with its arguments.
pub(crate) fn command(words: &[OsString]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// The server: a line for the shell, whose output goes to standard error.
pub(crate) fn server(line: &str) -> Result<Command> {
    let mut command = Command::new("sh");
    let output = io::stderr().as_fd().try_clone_to_owned()?;
    command.args(["-c", line]).stdin(Stdio::null()).stdout(output);
    Ok(command)
}

/// Waits until something at that end listens on a port.
pub(crate) fn await_listener(end: &End, server: &Group, port: u16) -> Result<()> {
    let began = Instant::now();
    loop {
        if end.namespace.run(move || listens(port)) {
            return Ok(());
        }
        if let Some((_, status)) = waitpid(Some(server.0), WaitOptions::NOHANG)? {
            bail!("the command of --serve ended before it listened on port {port}, with status {}", code(status));
        }
        if began.elapsed() > START {
            bail!("nothing at the other end listens on TCP port {port} after {START:?}");
        }
        thread::sleep(LOOK);
    }
}

fn listens(port: u16) -> bool {
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].map(fs::read_to_string);
    tables.into_iter().flatten().any(|table| table.lines().skip(1).any(|line| is_listener(line, port)))
}

/// A line of /proc/net/tcp: number, local address and port, remote address and port, state, ...
fn is_listener(line: &str, port: u16) -> bool {
    let mut columns = line.split_whitespace();
    let local = columns.nth(1).and_then(|address| address.rsplit_once(':'));
    local.is_some_and(|(_, hex)| u16::from_str_radix(hex, 16) == Ok(port)) && columns.nth(1) == Some(LISTENS)
}

/// Waits for the end of a process, and reaps all others that end meanwhile. Returns its exit status.
pub(crate) fn await_end(pid: Pid) -> Result<i32> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if ended == pid => return Ok(code(status)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for the command"),
        }
    }
}

fn code(status: WaitStatus) -> i32 {
    let by_signal = || status.terminating_signal().map(|signal| BY_SIGNAL + signal);
    status.exit_status().or_else(by_signal).unwrap_or(BY_SIGNAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_are_those_of_the_group() {
        let stat = "17 (a (b) c) S 1 9 9 0 -1 4194560 1 0 0 0 3 4 50 60 20 0 1 0 1 1 1";
        assert_eq!(cpu_of(stat, 9), Some(Duration::from_millis(1170)));
        assert_eq!(cpu_of(stat, 8), None);
        assert_eq!(cpu_of("17 (cut", 9), None);
    }

    #[test]
    fn listeners_are_found_in_both_tables() {
        let listener = "   0: 0200C612:0CBC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1";
        assert!(is_listener(listener, 3260));
        assert!(!is_listener(listener, 3261));
        let connection = listener.replace(" 0A ", " 01 ");
        assert!(!is_listener(&connection, 3260));
        let any =
            "   0: 00000000000000000000000000000000:1451 00000000000000000000000000000000:0000 0A 00000000:00000000";
        assert!(is_listener(any, 5201));
        assert!(!is_listener("", 0));
    }
}
