//! File operations of a copy, and the threads that make them.

use lunette_store::{Completion, FileIo, FileOp, FileOpKind};

use super::endpoint::Disk;
use crate::commands::io::PoolIo;
use crate::failure::Failure;

/// File operations of a copy, on threads of their own, writes perhaps on that of the copy.
///
/// The system lets one thread at a time write to a file, so several would only wait for each other. To hand a write
/// over costs system calls and changes of threads, which take long on a busy machine, and the thread of the copy has
/// nothing else to do.
pub(crate) struct CopyIo {
    threads: PoolIo,
    writes_here: bool,
}

impl CopyIo {
    /// All on other threads, for a thread that has other work, such as a stream to read.
    pub(crate) fn on_threads() -> Result<Self, Failure> {
        Ok(Self { threads: PoolIo::start()?, writes_here: false })
    }

    /// The I/O that suits a copy. A thread that encrypts has other work.
    pub(super) fn between(source: &Disk, destination: &Disk) -> Result<Self, Failure> {
        let writes_here = source.volume.is_none() && destination.volume.is_none();
        Ok(Self { writes_here, ..Self::on_threads()? })
    }
}

impl FileIo for CopyIo {
    fn submit(&self, op: FileOp, done: Completion) {
        if self.writes_here && matches!(op.kind, FileOpKind::Write { .. }) {
            done.complete(op.run());
        } else {
            self.threads.submit(op, done);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread::{self, ThreadId};

    use lunette_buffer::Pool;
    use lunette_store::{FileStore, Op, OpenOptions};

    use super::*;

    const LEN: usize = 64 << 10;

    fn disk() -> Disk {
        let folder = tempfile::tempdir().unwrap();
        let options = OpenOptions { create: Some(LEN as u64), ..OpenOptions::default() };
        let store = Arc::new(FileStore::open(folder.path().join("disk"), &options).unwrap());
        Disk {
            name: "disk".into(),
            store,
            file: None,
            blank: false,
            identity: "disk".into(),
            unfinished: super::super::endpoint::Unfinished::Stays,
            volume: None,
        }
    }

    /// The thread on which a request ends.
    fn thread_of(io: &CopyIo, op: Op) -> ThreadId {
        let (ended, end) = channel();
        let done = Completion::call(move |outcome| {
            outcome.result.unwrap();
            ended.send(thread::current().id()).unwrap();
        });
        disk().store.submit(op, io, done);
        end.recv().unwrap()
    }

    #[test]
    fn the_thread_of_a_copy_makes_its_writes_and_leaves_reads_to_others() {
        let buffer = || Pool::new(LEN).take(LEN).unwrap();
        let read = || Op::Read { offset: 0, into: buffer() };
        let write = || Op::Write { offset: 0, from: buffer(), fua: false };
        let this = thread::current().id();
        let copy = CopyIo::between(&disk(), &disk()).unwrap();
        assert_eq!(thread_of(&copy, write()), this);
        assert_ne!(thread_of(&copy, read()), this);
        assert_ne!(thread_of(&CopyIo::on_threads().unwrap(), write()), this);
    }
}
