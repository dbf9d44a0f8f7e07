//! A disk in memory whose second half takes its time, and whose first half answers every other short request within the
//! call.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lunette_target::store::{
    Capabilities, Completion, FileIo, Geometry, InlineIo, MemoryStore, Op, OpKind, Outcome, Store, StoreError,
};

/// Bytes of the disk.
const DISK_LEN: u64 = 16 << 20;

/// Requests from this byte on are held until they are released.
pub(super) const HELD_FROM: u64 = DISK_LEN / 2;

/// The disk.
pub(crate) struct HeldStore {
    disk: MemoryStore,
    held: Mutex<Held>,
    /// Requests that it was asked to answer within the call.
    asked_at_once: AtomicUsize,
    /// Nothing is answered within the call.
    later: AtomicBool,
}

#[derive(Default)]
struct Held {
    requests: Vec<(Op, Completion)>,
    /// Nothing is held any more.
    open: bool,
}

impl HeldStore {
    pub(super) fn new() -> Self {
        Self {
            disk: MemoryStore::new(DISK_LEN).expect("a small disk"),
            held: Mutex::default(),
            asked_at_once: AtomicUsize::new(0),
            later: AtomicBool::new(false),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the `n`-th request that is held end; with `fail` by an error.
    pub(crate) fn release(&self, n: usize, fail: bool) {
        let mut held = self.held();
        if held.requests.is_empty() {
            return;
        }
        let at = n % held.requests.len();
        let (op, done) = held.requests.remove(at);
        drop(held);
        if fail {
            let error = StoreError::Io(io::Error::other("the input says so"));
            done.complete(Outcome::new(Err(error), op.into_buffer()));
        } else {
            self.disk.submit(op, &InlineIo, done);
        }
    }

    /// Lets all requests end that are held.
    pub(crate) fn release_all(&self) {
        for (op, done) in std::mem::take(&mut self.held().requests) {
            self.disk.submit(op, &InlineIo, done);
        }
    }

    /// Whether a request of that many bytes is answered within the call: every other one, so that both ways are taken.
    fn takes_at_once(&self, offset: u64, len: usize) -> bool {
        let is_its_turn = self.asked_at_once.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        is_its_turn && offset.saturating_add(len as u64) <= HELD_FROM
    }

    /// Requests that it was asked to answer within the call.
    #[cfg(test)]
    pub(super) fn asked_at_once(&self) -> usize {
        self.asked_at_once.load(Ordering::Relaxed)
    }

    /// Answers nothing within the call from now on.
    pub(super) fn answer_later(&self) {
        self.later.store(true, Ordering::Relaxed);
    }

    /// Holds nothing from now on.
    pub(super) fn open(&self) {
        self.held().open = true;
        self.release_all();
    }
}

impl Store for HeldStore {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.disk.capabilities()
    }

    fn answers_at_once(&self, kind: OpKind) -> bool {
        !self.later.load(Ordering::Relaxed) && self.disk.answers_at_once(kind)
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool {
        self.takes_at_once(offset, into.len()) && self.disk.read_at_once(offset, into)
    }

    fn write_at_once(&self, offset: u64, from: &[u8], fua: bool) -> bool {
        self.takes_at_once(offset, from.len()) && self.disk.write_at_once(offset, from, fua)
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let mut held = self.held();
        if op.range().0 >= HELD_FROM && !held.open {
            held.requests.push((op, done));
        } else {
            drop(held);
            self.disk.submit(op, io, done);
        }
    }
}
