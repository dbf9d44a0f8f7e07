//! File operations: at once, on the reactor's ring, or on a pool of threads.

use std::cell::RefCell;
use std::io;
use std::thread;

use lunette_reactor::{Context, FileCall, FileRequest, Flow, Job, Key, Slab, ThreadPool, Work};
use lunette_store::{Completion, FileIo, FileOp, FileOpKind};

use crate::limits::MAX_INLINE_FILE_BYTES;

/// The work of the threads.
pub(crate) enum FileWork {
    /// For a store.
    Op(FileOp, Completion),
    /// For a task.
    Job(Job),
}

impl Work for FileWork {
    fn run(self) {
        match self {
            Self::Op(op, done) => done.complete(op.run()),
            Self::Job(job) => job(),
        }
    }
}

/// Where the file operations of a core are done.
pub(super) struct Files {
    pool: ThreadPool<FileWork>,
    has_ring: bool,
    /// For the ring, at the end of the batch.
    queued: RefCell<Vec<(FileRequest, Pending)>>,
    /// The operations that the ring has.
    under_way: Slab<Pending>,
}

/// A request to the ring that has not ended.
struct Pending {
    flow: Flow,
    done: Completion,
}

/// The file operations of one initiator. On the threads, initiators take turns.
pub(super) struct FlowFiles<'a> {
    files: &'a Files,
    flow: Flow,
}

impl Files {
    pub(super) fn new(pool: ThreadPool<FileWork>, has_ring: bool) -> Self {
        Self { pool, has_ring, queued: RefCell::default(), under_way: Slab::default() }
    }

    /// The operations for the initiator of this flow.
    pub(super) fn of(&self, flow: Flow) -> FlowFiles<'_> {
        FlowFiles { files: self, flow }
    }

    /// The operations for no initiator.
    pub(super) fn own(&self) -> FlowFiles<'_> {
        self.of(Flow::default())
    }

    /// Operations wait for the end of a batch.
    pub(super) fn are_queued(&self) -> bool {
        !self.queued.borrow().is_empty()
    }

    /// Hands in what was queued.
    pub(super) fn submit_queued(&mut self, cx: &mut Context<'_>) {
        let mut queued = std::mem::take(self.queued.get_mut());
        for (request, pending) in queued.drain(..) {
            let key = self.under_way.insert(pending);
            if let Err(request) = cx.submit_file(key.to_u64(), request)
                && let Some(Pending { flow, done }) = self.under_way.remove(key)
            {
                self.of(flow).run_op(op(request), done);
            }
        }
        *self.queued.get_mut() = queued;
    }

    /// A request has ended.
    pub(super) fn done(&mut self, tag: u64, request: FileRequest, result: io::Result<usize>) {
        let Some(Pending { flow, done }) = self.under_way.remove(Key::from_u64(tag)) else {
            debug_assert!(false, "a file operation ends twice");
            return;
        };
        match op(request).attempted(result) {
            Ok(outcome) => done.complete(outcome),
            Err(op) => self.of(flow).run_op(op, done),
        }
    }
}

impl FlowFiles<'_> {
    /// Runs `job` on a thread.
    pub(super) fn run(&self, job: Job) {
        self.spawn(FileWork::Job(job));
    }

    fn run_op(&self, op: FileOp, done: Completion) {
        self.spawn(FileWork::Op(op, done));
    }

    /// On a thread, or here when too many wait.
    fn spawn(&self, work: FileWork) {
        if let Err(work) = self.files.pool.spawn(self.flow, work) {
            work.run();
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // Others learn of the failure when this thread has ended.
        if thread::panicking() {
            self.pool.detach();
        }
    }
}

impl FileIo for FlowFiles<'_> {
    fn submit(&self, op: FileOp, done: Completion) {
        if copies_much(&op) {
            self.run_op(op, done);
        } else if self.files.has_ring {
            match request(op) {
                Ok(request) => self.files.queued.borrow_mut().push((request, Pending { flow: self.flow, done })),
                Err(op) => self.run_op(op, done),
            }
        } else {
            match op.read_cached() {
                Ok(outcome) => done.complete(outcome),
                Err(op) => self.run_op(op, done),
            }
        }
    }
}

fn copies_much(op: &FileOp) -> bool {
    match &op.kind {
        FileOpKind::Read { into: buffer, .. } | FileOpKind::Write { from: buffer, .. } => {
            buffer.len() > MAX_INLINE_FILE_BYTES
        }
        _ => false,
    }
}

/// The one system call that does `op`, for a ring.
///
/// Writes with data synchronisation are not among them: on a ring all writes to one file wait for each other, and for
/// the medium they should wait together.
fn request(op: FileOp) -> Result<FileRequest, FileOp> {
    let call = match op.kind {
        FileOpKind::Read { offset, into } => FileCall::Read { offset, into },
        FileOpKind::Write { offset, from, dsync: false } => FileCall::Write { offset, from },
        FileOpKind::Zero { offset, len, punch, dsync: false } => FileCall::Zero { offset, len, punch },
        FileOpKind::Sync => FileCall::Sync,
        kind => return Err(FileOp { file: op.file, kind }),
    };
    Ok(FileRequest { file: op.file, call })
}

/// The operation that `request` was made for.
fn op(request: FileRequest) -> FileOp {
    let kind = match request.call {
        FileCall::Read { offset, into } => FileOpKind::Read { offset, into },
        FileCall::Write { offset, from } => FileOpKind::Write { offset, from, dsync: false },
        FileCall::Zero { offset, len, punch } => FileOpKind::Zero { offset, len, punch, dsync: false },
        FileCall::Sync => FileOpKind::Sync,
    };
    FileOp { file: request.file, kind }
}
