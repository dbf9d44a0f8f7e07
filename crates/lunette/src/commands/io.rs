//! Threads for stores that wait for the kernel.

use std::sync::Arc;

use lunette_reactor::{Flow, ThreadPool};
use lunette_store::{Completion, FileIo, FileOp, FileOpKind, Outcome};

use crate::failure::Failure;

/// The number of threads for file operations. They wait for the medium, not for a core.
const FILE_THREADS: usize = 8;

/// The most file operations that wait for a thread. Beyond that the submitter does them itself.
const MAX_QUEUED: usize = 4096;

/// The longest read that is done on the submitter's thread when its bytes are in the page cache.
const MAX_INLINE_BYTES: usize = 16 << 10;

/// File operations on a pool of threads; clones share it.
#[derive(Clone)]
pub(crate) struct PoolIo(Arc<ThreadPool>);

impl PoolIo {
    pub(crate) fn start() -> Result<Self, Failure> {
        let pool = ThreadPool::new("lunette-file", FILE_THREADS, MAX_QUEUED).map_err(Failure::no_thread)?;
        Ok(Self(Arc::new(pool)))
    }
}

impl FileIo for PoolIo {
    fn submit(&self, op: FileOp, done: Completion) {
        let op = match at_once(op) {
            Ok(outcome) => return done.complete(outcome),
            Err(op) => op,
        };
        if let Err(job) = self.0.spawn(Flow::default(), Box::new(move || done.complete(op.run()))) {
            job();
        }
    }
}

/// Does a short read of bytes that are in the page cache; returns any other operation.
fn at_once(op: FileOp) -> Result<Outcome, FileOp> {
    match &op.kind {
        FileOpKind::Read { into, .. } if into.len() <= MAX_INLINE_BYTES => op.read_cached(),
        _ => Err(op),
    }
}
