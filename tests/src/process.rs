//! Processes: signals, ends, memory.

use std::borrow::BorrowMut;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The interval at which a condition is polled.
const POLL: Duration = Duration::from_millis(5);

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

/// The anonymous resident memory of `child`, in KiB: pages of files do not count.
pub fn memory_kib(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux counts RssAnon");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number of KiB")
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
