//! Requests on files, by a ring.
//!
//! The system has the memory of a request from its submission to its completion, which may be long after, or never when
//! the medium hangs. So the request belongs to the ring meanwhile, with its buffer and its file; and what is still
//! under way when the ring is dropped is never freed.

use std::os::fd::AsRawFd;

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};

use crate::files::{FileCall, FileRequest};
use crate::slab::{Key, Slab};

/// The opcodes of [`entry`].
pub(super) const NEEDED: [u8; 4] =
    [opcode::Read::CODE, opcode::Write::CODE, opcode::Fallocate::CODE, opcode::Fsync::CODE];

/// A request that the system has, under the tag of its handler.
pub(super) struct UnderWay {
    pub(super) tag: u64,
    pub(super) request: FileRequest,
}

/// All requests that the system has.
pub(super) struct Files(Slab<UnderWay>);

impl Files {
    pub(super) fn new() -> Self {
        Self(Slab::default())
    }

    /// Keeps the request until its completion is told.
    pub(super) fn insert(&mut self, tag: u64, request: FileRequest) -> Key {
        self.0.insert(UnderWay { tag, request })
    }

    /// The completion was told, so the system has let go of it.
    pub(super) fn remove(&mut self, key: Key) -> Option<UnderWay> {
        self.0.remove(key)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for under_way in self.0.drain() {
            tracing::warn!(request = ?under_way.request, "the system still works on a file; its memory is given up");
            std::mem::forget(under_way);
        }
    }
}

/// Whether the system takes it: longer and farther than that no file goes.
pub(super) fn is_valid(request: &FileRequest) -> bool {
    let (offset, len) = match &request.call {
        FileCall::Read { offset, into: buffer } | FileCall::Write { offset, from: buffer } => {
            (*offset, buffer.len() as u64)
        }
        FileCall::Zero { offset, len, .. } => (*offset, *len),
        FileCall::Sync => (0, 0),
    };
    // An offset of all ones would mean the position of the file.
    offset.checked_add(len).is_some_and(|end| i64::try_from(end).is_ok())
}

/// The entry for the ring. It names the memory of the request's buffer, which stays where it is when the request is
/// moved.
pub(super) fn entry(request: &mut FileRequest) -> squeue::Entry {
    let fd = Fd(request.file.as_raw_fd());
    match &mut request.call {
        // Buffers are shorter than 2^32 bytes.
        FileCall::Read { offset, into } => {
            opcode::Read::new(fd, into.as_mut_ptr(), into.len() as u32).offset(*offset).build()
        }
        FileCall::Write { offset, from } => {
            opcode::Write::new(fd, from.as_ptr(), from.len() as u32).offset(*offset).build()
        }
        FileCall::Zero { offset, len, punch } => {
            let kind = if *punch { libc::FALLOC_FL_PUNCH_HOLE } else { libc::FALLOC_FL_ZERO_RANGE };
            opcode::Fallocate::new(fd, *len).offset(*offset).mode(kind | libc::FALLOC_FL_KEEP_SIZE).build()
        }
        FileCall::Sync => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use lunette_buffer::Pool;

    use super::*;

    #[test]
    fn what_no_file_has_is_refused() {
        let file = Arc::new(File::open("/dev/null").unwrap());
        let read = |offset| {
            let into = Pool::new(1 << 20).take(4096).unwrap();
            FileRequest { file: Arc::clone(&file), call: FileCall::Read { offset, into } }
        };
        let end = i64::MAX as u64;
        assert!(is_valid(&read(0)) && is_valid(&read(end - 4096)));
        assert!(!is_valid(&read(end)) && !is_valid(&read(u64::MAX)) && !is_valid(&read(u64::MAX - 4096)));
        let call = FileCall::Zero { offset: 1, len: u64::MAX, punch: true };
        assert!(!is_valid(&FileRequest { file, call }));
    }

    #[test]
    fn memory_of_what_is_under_way_is_never_given_back() {
        let pool = Pool::new(1 << 20);
        let file = Arc::new(File::open("/dev/null").unwrap());
        let write = || FileCall::Write { offset: 0, from: pool.take(4096).unwrap() };
        let mut files = Files::new();
        let done = files.insert(1, FileRequest { file: Arc::clone(&file), call: write() });
        files.insert(2, FileRequest { file: Arc::clone(&file), call: write() });
        assert_eq!(files.remove(done).map(|under_way| under_way.tag), Some(1));
        assert_eq!(pool.used_bytes(), 4096);
        drop(files);
        assert_eq!((pool.used_bytes(), Arc::strong_count(&file)), (4096, 2));
    }
}
