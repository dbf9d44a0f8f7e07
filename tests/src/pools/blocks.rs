//! The blocks of a volume or snapshot, where its pool says that they are.

use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::{Buffer, Pool};
use lunette_pools::Place;
use lunette_rbd::{Closer, RbdStore};
use lunette_store::filters::{Gated, WriteGate};
use lunette_store::{FileStore, Op, OpenOptions, Outcome, Store, execute};

/// The most bytes of one request.
const MAX_BYTES: usize = 1 << 20;

/// The time for the closing of an image.
const CLOSE_LIMIT: Duration = Duration::from_mins(1);

/// An open volume or snapshot. Its requests must succeed. It is closed when it is dropped.
pub struct Blocks {
    store: Arc<dyn Store>,
    /// Closes an image, which a store only begins to do when it is dropped.
    closer: Option<Closer>,
}

impl Blocks {
    /// Opens a volume for reading and writing.
    pub fn open(place: &Place) -> Self {
        Self::open_as(place, false)
    }

    /// Opens a snapshot, or a volume that is not to be changed.
    pub fn open_to_read(place: &Place) -> Self {
        Self::open_as(place, true)
    }

    fn open_as(place: &Place, read_only: bool) -> Self {
        match place {
            Place::File(path) => {
                let options = OpenOptions { read_only, ..OpenOptions::default() };
                let store = Arc::new(FileStore::open(path, &options).expect("the file of a volume"));
                Self { store, closer: None }
            }
            Place::Image(url) => {
                let store = RbdStore::open(url, read_only).expect("the image of a volume");
                Self { closer: Some(store.closer()), store: Arc::new(store) }
            }
        }
    }

    /// Puts the blocks behind a gate.
    #[must_use]
    pub fn behind(mut self, gate: &Arc<WriteGate>) -> Self {
        self.store = Arc::new(Gated::new(Arc::clone(&self.store), Arc::clone(gate)));
        self
    }

    /// The length in bytes that the store serves.
    pub fn len_bytes(&self) -> u64 {
        self.store.geometry().len_bytes
    }

    /// The bytes from an offset on.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut read = Vec::with_capacity(len);
        while read.len() < len {
            let into = buffer(MAX_BYTES.min(len - read.len()));
            let outcome = self.execute(Op::Read { offset: offset + read.len() as u64, into });
            read.extend_from_slice(&outcome.buffer.expect("it comes back"));
        }
        read
    }

    /// Writes bytes, perhaps to a cache.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let mut from = buffer(bytes.len());
        from.copy_from_slice(bytes);
        self.execute(Op::Write { offset, from, fua: false });
    }

    /// Declares bytes unused.
    pub fn unmap(&self, offset: u64, len: u64) {
        self.execute(Op::Unmap { offset, len });
    }

    fn execute(&self, op: Op) -> Outcome {
        let mut outcome = execute(&*self.store, op);
        std::mem::replace(&mut outcome.result, Ok(())).expect("a request of a test");
        outcome
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        if let Some(closer) = &self.closer {
            closer.close(CLOSE_LIMIT).expect("the image closes");
        }
    }
}

fn buffer(len: usize) -> Buffer {
    Pool::new(MAX_BYTES).take(len).expect("room in the pool")
}
