//! Back-pressure: how many requests, and how many bytes of buffers, a connection may have in hand.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::limits::{MAX_REQUEST_BYTES, MAX_REQUESTS};

/// Counts what is in hand. Who reads waits here; who has written a reply gives back.
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
}

impl Window {
    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more request with a buffer of `bytes` fits. False when none may enter any more.
    pub(crate) fn enter(&self, bytes: usize) -> bool {
        let is_full =
            |used: &mut Used| !used.closed && (used.requests >= MAX_REQUESTS || used.bytes + bytes > MAX_REQUEST_BYTES);
        let mut used = self.given_back.wait_while(self.lock(), is_full).unwrap_or_else(PoisonError::into_inner);
        if used.closed {
            return false;
        }
        used.requests += 1;
        used.bytes += bytes;
        true
    }

    /// Lets nobody in any more: replies cannot be written.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.given_back.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// A request that entered with `bytes` is over.
    pub(crate) fn leave(&self, bytes: usize) {
        let mut used = self.lock();
        used.requests -= 1;
        used.bytes -= bytes;
        drop(used);
        self.given_back.notify_all();
    }

    /// Waits until nothing is in hand.
    pub(crate) fn drain(&self) {
        drop(self.given_back.wait_while(self.lock(), |used| used.requests > 0));
    }
}
