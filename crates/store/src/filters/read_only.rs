//! A filter that refuses changes.

use std::sync::Arc;

use crate::{Capabilities, Completion, CopySource, FileIo, Geometry, Op, Outcome, Space, Store};

/// Refuses everything but reads and flushes with [`StoreError::ReadOnly`](crate::StoreError::ReadOnly).
pub struct ReadOnly {
    inner: Arc<dyn Store>,
}

impl ReadOnly {
    /// A read-only view of `inner`.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner }
    }
}

impl Store for ReadOnly {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        Capabilities {
            read_only: true,
            unmap: false,
            unmap_zeroes: false,
            anchors: false,
            write_zeroes: false,
            ..inner
        }
    }

    fn space(&self) -> std::io::Result<Option<Space>> {
        self.inner.space()
    }

    fn copy_source(&self) -> Option<CopySource> {
        self.inner.copy_source()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        match op.check(self.geometry().len_bytes, true) {
            Ok(()) => self.inner.submit(op, io, done),
            Err(error) => done.complete(Outcome::of(op, Err(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryStore, StoreError, execute};

    #[test]
    fn nothing_changes() {
        let memory = Arc::new(MemoryStore::new(4096).unwrap());
        memory.write(0, b"kept").unwrap();
        let store = ReadOnly::new(Arc::<MemoryStore>::clone(&memory));
        assert!(store.capabilities().read_only);
        for op in [
            Op::Write { offset: 0, from: lunette_buffer::Pool::new(4096).take(4).unwrap(), fua: false },
            Op::WriteZeroes { offset: 0, len: 4, may_unmap: true, fua: false },
            Op::Unmap { offset: 0, len: 4 },
        ] {
            assert!(matches!(execute(&store, op).result, Err(StoreError::ReadOnly)));
        }
        let into = lunette_buffer::Pool::new(4096).take(4).unwrap();
        let outcome = execute(&store, Op::Read { offset: 0, into });
        assert!(outcome.result.is_ok());
        assert_eq!(&outcome.buffer.unwrap()[..], b"kept");
        assert!(execute(&store, Op::Flush).result.is_ok());
    }
}
