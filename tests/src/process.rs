//! Processes: signals, ends, memory.

use std::borrow::BorrowMut;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// The interval at which a condition is polled.
const POLL: Duration = Duration::from_millis(5);

/// The time that the system has to end a process.
const KILL_LIMIT: Duration = Duration::from_secs(20);

/// Polls `condition` until it gives something, for at most `limit`.
pub fn wait_until<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// A process that does not outlive its owner: it is killed when the owner is dropped, by a test that fails too.
pub struct Owned(Child);

impl Owned {
    /// Starts `command`. Panics when it cannot be started.
    pub fn start(mut command: impl BorrowMut<Command>) -> Self {
        let command = command.borrow_mut();
        command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")).into()
    }
}

impl From<Child> for Owned {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Deref for Owned {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that this program waits for: a child, or the child of one that has ended.
pub struct Process {
    pid: Pid,
    ended: Option<ExitStatus>,
}

impl From<Child> for Process {
    fn from(child: Child) -> Self {
        Self::of(child.id())
    }
}

impl Process {
    /// The process with this number. Its parent is this program, or has ended below a program that
    /// [takes orphans](rustix::process::set_child_subreaper).
    pub fn of(id: u32) -> Self {
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw).expect("a number of a process");
        Self { pid, ended: None }
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal. It has no effect on a process that has ended.
    pub fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            kill_process(self.pid, signal).expect("a process that was not waited for can be signalled");
        }
    }

    /// The exit status, if it has ended.
    pub fn end(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            let (_, status) = waitpid(Some(self.pid), WaitOptions::NOHANG).expect("a process of this program")?;
            self.ended = Some(ExitStatus::from_raw(status.as_raw()));
        }
        self.ended
    }

    /// The exit status, if it ends within `limit`.
    pub fn end_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        wait_until(limit, || self.end())
    }

    /// Kills it (SIGKILL), unless it has ended.
    pub fn kill(&mut self) {
        if self.end().is_none() {
            self.signal(Signal::KILL);
            self.end_within(KILL_LIMIT).expect("nothing outlives SIGKILL");
        }
    }

    /// The anonymous resident memory in KiB: pages of files do not count.
    pub fn memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).expect("the process is there");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux counts RssAnon");
        line.trim().trim_end_matches("kB").trim().parse().expect("a number of KiB")
    }

    /// The open descriptors.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.id())).expect("the process is there").count()
    }
}

/// The exit status of `child`, when it ends within `limit`.
pub fn wait_at_most(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    wait_until(limit, || child.try_wait().expect("a child can be waited for"))
}

/// Sends a signal.
pub fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child has a process number");
    kill_process(pid, signal).expect("a child that was not waited for can be signalled");
}

/// Asks a program to stop, and kills it when it does not.
pub fn stop(child: &mut Child) {
    if child.try_wait().is_ok_and(|status| status.is_some()) {
        return;
    }
    signal(child, Signal::TERM);
    if wait_at_most(child, Duration::from_secs(5)).is_none() {
        // The program may have ended meanwhile.
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_process_ends_with_a_test_that_fails() {
        let mut process = PathBuf::new();
        let failing = || {
            let sleeps = Owned::start(Command::new("sleep").arg("infinity"));
            process = format!("/proc/{}", sleeps.id()).into();
            assert!(!process.exists(), "an assertion fails");
        };
        assert!(catch_unwind(AssertUnwindSafe(failing)).is_err());
        assert!(!process.exists());
    }
}
