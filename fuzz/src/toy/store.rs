//! A disk in memory whose second half takes its time.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lunette_target::store::{
    Capabilities, Completion, FileIo, Geometry, InlineIo, MemoryStore, Op, Outcome, Store, StoreError,
};

/// Bytes of the disk.
const DISK_LEN: u64 = 16 << 20;

/// Requests from this byte on are held until they are released.
pub(super) const HELD_FROM: u64 = DISK_LEN / 2;

/// The disk.
pub(crate) struct HeldStore {
    disk: MemoryStore,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    requests: Vec<(Op, Completion)>,
    /// Nothing is held any more.
    open: bool,
}

impl HeldStore {
    pub(super) fn new() -> Self {
        Self { disk: MemoryStore::new(DISK_LEN).expect("a small disk"), held: Mutex::default() }
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
