//! The connections of this process to clusters, and its end.
//!
//! librados has static destructors, which `exit` runs. They crash when a thread still works in librados, for instance
//! one that closes an image in the background. So a process ends when no connection is left, or without the
//! destructors.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How many there are, and word of each that goes.
#[derive(Default)]
pub(super) struct Presence {
    count: Mutex<usize>,
    changed: Condvar,
}

/// A count of present calls, until it is dropped.
pub(super) struct Present<'a>(&'a Presence);

/// The connections of this process.
static CONNECTIONS: Presence = Presence { count: Mutex::new(0), changed: Condvar::new() };

/// The time that connections have to end before the process does.
const DISCONNECT_LIMIT: Duration = Duration::from_secs(5);

impl Presence {
    pub(super) fn enter(&self) -> Present<'_> {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Present(self)
    }

    /// Waits until all are gone, for at most `limit`. Whether they are.
    fn wait_until_empty(&self, limit: Duration) -> bool {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(count, limit, |count| *count > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.changed.notify_all();
    }
}

/// Counts a connection. What it gives must be dropped when nothing of the connection is left.
pub(super) fn enter() -> Present<'static> {
    CONNECTIONS.enter()
}

/// Ends the process with this exit code, when all connections to clusters have ended, or after five seconds without
/// running the destructors of the libraries, which connections still use.
pub fn exit(code: u8) -> ! {
    if CONNECTIONS.wait_until_empty(DISCONNECT_LIMIT) {
        std::process::exit(code.into());
    }
    exit_now(code)
}

/// Ends the process with this exit code at once, whatever it is doing.
pub fn exit_now(code: u8) -> ! {
    // SAFETY: it only ends the process.
    unsafe { libc::_exit(code.into()) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn the_end_waits_for_the_last_connection() {
        let presence = Presence::default();
        assert!(presence.wait_until_empty(Duration::ZERO));
        let (first, second) = (presence.enter(), presence.enter());
        drop(first);
        assert!(!presence.wait_until_empty(Duration::ZERO));
        let (ends, ended) = channel();
        thread::scope(|scope| {
            scope.spawn(|| ends.send(presence.wait_until_empty(Duration::MAX)).unwrap());
            assert!(ended.try_recv().is_err(), "one is left");
            drop(second);
            assert_eq!(ended.recv(), Ok(true));
        });
    }
}
