//! A store that stops its core.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use lunette_store::{Capabilities, Completion, FileIo, Geometry, MemoryStore, Op, OpKind, Store};

/// A store with a mistake in it: a write holds up the thread that it is asked for on until it is told to go on, and
/// ends it when its sender is gone.
pub(crate) struct Faulty {
    inner: MemoryStore,
    asked: Sender<()>,
    told: Mutex<Receiver<()>>,
}

impl Store for Faulty {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        if op.kind() == OpKind::Write {
            self.asked.send(()).unwrap();
            self.told.lock().unwrap().recv().expect("on purpose");
        }
        self.inner.submit(op, io, done);
    }
}

impl Faulty {
    /// Beside it: what tells that it has been asked for a write, and what tells it to go on.
    pub(crate) fn new() -> (Self, Receiver<()>, Sender<()>) {
        let ((asked, is_asked), (tell, told)) = (channel(), channel());
        (Self { inner: MemoryStore::new(1 << 20).unwrap(), asked, told: Mutex::new(told) }, is_asked, tell)
    }
}
