//! The end of a successor on its way.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::site::{children, parent};
use crate::process::wait_until;

/// The time for the predecessor to end, if its successor has taken over. Whoever then kills the successor kills the
/// server.
const END_LIMIT: Duration = Duration::from_secs(1);

/// The longest wait for the successor.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A thread that kills the successor of a server.
pub(super) struct Killer {
    thread: JoinHandle<bool>,
    is_over: Arc<AtomicBool>,
}

impl Killer {
    /// Kills the next child of this process, this time after its start, unless it has taken over by then.
    pub(super) fn start(predecessor: u32, delay: Duration) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let seen = Arc::clone(&is_over);
        let kill = move || {
            let started = || {
                let first = children(predecessor).first().copied();
                (first.is_some() || seen.load(Ordering::Acquire)).then_some(first)
            };
            let Some(successor) = wait_until(START_LIMIT, started).flatten() else { return false };
            // The moment is part of the test.
            thread::sleep(delay);
            end(predecessor, successor)
        };
        Self { thread: thread::spawn(kill), is_over }
    }

    /// Whether it has killed the successor. The handover is over.
    pub(super) fn end(self) -> bool {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().expect("it does not panic")
    }
}

/// Stops a successor, and kills it unless it has taken over.
fn end(predecessor: u32, successor: u32) -> bool {
    let pid = i32::try_from(successor).ok().and_then(Pid::from_raw).expect("a number of a process");
    let is_child = || parent(successor) == Some(predecessor);
    if !is_child() || kill_process(pid, Signal::STOP).is_err() {
        return false;
    }
    // A successor that stands can have taken over already. Then the predecessor ends now.
    let has_taken = wait_until(END_LIMIT, || (!is_child() || has_ended(predecessor)).then_some(())).is_some();
    let last = if has_taken { Signal::CONT } else { Signal::KILL };
    kill_process(pid, last).is_ok() && !has_taken
}

fn has_ended(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}
