//! Threads for stores that wait for the kernel.

use std::sync::Arc;

use lunette_reactor::ThreadPool;
use lunette_store::{Completion, FileIo, FileOp};

use crate::failure::Failure;

/// Threads for file operations. They wait for the medium, not for a core.
const FILE_THREADS: usize = 8;

/// File operations that wait for a thread. Beyond it the submitter does them itself.
const MAX_QUEUED: usize = 4096;

/// File operations on a pool of threads; clones share it.
#[derive(Clone)]
pub(crate) struct PoolIo(Arc<ThreadPool>);

impl PoolIo {
    pub(crate) fn start() -> Result<Self, Failure> {
        let pool = ThreadPool::new("lunette-file", FILE_THREADS, MAX_QUEUED).map_err(Failure::other)?;
        Ok(Self(Arc::new(pool)))
    }
}

impl FileIo for PoolIo {
    fn submit(&self, op: FileOp, done: Completion) {
        if let Err(job) = self.0.spawn(Box::new(move || done.complete(op.run()))) {
            job();
        }
    }
}
