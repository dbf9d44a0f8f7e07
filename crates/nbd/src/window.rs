//! Back-pressure: how many requests, and how many bytes of buffers, a connection may have under way.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::limits::{MAX_REQUEST_BYTES, MAX_REQUESTS};

/// Counts requests and their bytes. The reading half waits here for room; the writing half gives it back after each
/// reply.
#[derive(Debug, Default)]
pub(crate) struct Window {
    used: Mutex<Used>,
    given_back: Condvar,
}

#[derive(Debug, Default, Clone, Copy)]
struct Used {
    requests: usize,
    bytes: usize,
    closed: bool,
    /// Threads that wait for others to leave.
    waiting: usize,
}

impl Window {
    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more request with a buffer of `bytes` fits. False when the window is closed. `before_wait` is
    /// called when it has to wait.
    pub(crate) fn enter(&self, bytes: usize, before_wait: impl FnOnce()) -> bool {
        let is_full =
            |used: &mut Used| !used.closed && (used.requests >= MAX_REQUESTS || used.bytes + bytes > MAX_REQUEST_BYTES);
        let mut used = self.lock();
        if is_full(&mut used) {
            drop(used);
            before_wait();
            used = self.wait_while(is_full);
        }
        if used.closed {
            return false;
        }
        used.requests += 1;
        used.bytes += bytes;
        true
    }

    /// Closes the window to new requests, because replies cannot be written.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.given_back.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Returns the room of requests that entered with `bytes` in all.
    pub(crate) fn leave(&self, requests: usize, bytes: usize) {
        let mut used = self.lock();
        used.requests -= requests;
        used.bytes -= bytes;
        // To wake is a system call, also when there is no thread to be woken.
        let is_awaited = used.waiting > 0;
        drop(used);
        if is_awaited {
            self.given_back.notify_all();
        }
    }

    /// Waits until no request is under way.
    pub(crate) fn drain(&self) {
        drop(self.wait_while(|used| used.requests > 0));
    }

    fn wait_while(&self, condition: impl FnMut(&mut Used) -> bool) -> MutexGuard<'_, Used> {
        let mut used = self.lock();
        used.waiting += 1;
        let mut used = self.given_back.wait_while(used, condition).unwrap_or_else(PoisonError::into_inner);
        used.waiting -= 1;
        used
    }
}
