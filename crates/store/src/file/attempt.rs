//! First attempts of file operations: a single system call, made without a thread of its own.

use std::fs::File;
use std::io::{self, IoSliceMut};

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::op::flush_failed;
use crate::{FileOp, FileOpKind, Outcome};

/// Reads bytes from the page cache; never waits for the medium (`RWF_NOWAIT`). Gives how many were there.
pub(super) fn read_cached(file: &File, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
    preadv2(file, &mut [IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT)
}

impl FileOp {
    /// Reads bytes from the page cache; never waits for the medium (`RWF_NOWAIT`).
    ///
    /// # Errors
    ///
    /// The operation itself, when it is not a read, or the system would have to wait or does not support the flag.
    pub fn read_cached(mut self) -> Result<Outcome, Self> {
        let FileOpKind::Read { offset, into } = &mut self.kind else { return Err(self) };
        match read_cached(&self.file, *offset, into) {
            Ok(len) => self.attempted(Ok(len)),
            // Includes file systems that do not support the flag.
            Err(_) => Err(self),
        }
    }

    /// Ends the operation with the result of its single system call: the number of bytes moved by a read or write.
    ///
    /// # Errors
    ///
    /// The operation itself, when it is incomplete, or failed in a way that another attempt may correct or has to
    /// explain: [`run`](Self::run) it. All operations may be repeated.
    pub fn attempted(self, result: io::Result<usize>) -> Result<Outcome, Self> {
        let is_done = match (&self.kind, &result) {
            (FileOpKind::Read { into: buffer, .. } | FileOpKind::Write { from: buffer, .. }, Ok(len)) => {
                *len == buffer.len()
            }
            (_, Ok(_)) => true,
            // The system reports a lost write once, so the next attempt would succeed. These errors mean that no
            // attempt was made yet.
            (FileOpKind::Sync, Err(error)) => {
                !matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::CANCELED))
            }
            (_, Err(_)) => false,
        };
        if !is_done {
            return Err(self);
        }
        let buffer = match self.kind {
            FileOpKind::Read { into: buffer, .. } | FileOpKind::Write { from: buffer, .. } => Some(buffer),
            _ => None,
        };
        Ok(Outcome::new(result.map(|_| ()).map_err(flush_failed), buffer))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use lunette_buffer::{Buffer, Pool};

    use super::*;
    use crate::StoreError;

    const LEN: usize = 4096;

    fn buffer() -> Buffer {
        Pool::new(1 << 20).take(LEN).unwrap()
    }

    fn op(file: &File, kind: FileOpKind) -> FileOp {
        FileOp { file: Arc::new(file.try_clone().unwrap()), kind }
    }

    fn read(file: &File, offset: u64) -> FileOp {
        op(file, FileOpKind::Read { offset, into: buffer() })
    }

    fn file(len: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; len]).unwrap();
        file
    }

    #[test]
    fn cached_bytes_are_read_at_once_where_the_system_can() {
        let file = file(2 * LEN);
        let outcome = read(&file, LEN as u64).read_cached().unwrap_or_else(FileOp::run);
        assert!(outcome.result.is_ok() && outcome.buffer.unwrap().iter().all(|byte| *byte == 7));
    }

    #[test]
    fn a_read_across_the_end_of_a_file_is_given_back_and_fails() {
        let file = file(LEN);
        let outcome = read(&file, LEN as u64 / 2).read_cached().unwrap_err().run();
        let end = LEN as u64;
        assert!(matches!(outcome.result, Err(StoreError::OutOfRange { store_len, .. }) if store_len == end));
        assert!(outcome.buffer.is_some());
    }

    #[test]
    fn nothing_but_a_read_is_done_at_once() {
        let file = file(LEN);
        for kind in [FileOpKind::Sync, FileOpKind::Write { offset: 0, from: buffer(), dsync: false }] {
            assert!(op(&file, kind).read_cached().is_err());
        }
    }

    #[test]
    fn a_partial_operation_is_returned() {
        let file = file(LEN);
        let write = || op(&file, FileOpKind::Write { offset: 0, from: buffer(), dsync: false });
        for moved in [0, 1, LEN - 1] {
            assert!(read(&file, 0).attempted(Ok(moved)).is_err());
            assert!(write().attempted(Ok(moved)).is_err());
        }
        for done in [read(&file, 0).attempted(Ok(LEN)), write().attempted(Ok(LEN))] {
            let outcome = done.unwrap();
            assert!(outcome.result.is_ok() && outcome.buffer.unwrap().len() == LEN);
        }
    }

    #[test]
    fn failures_are_given_back_and_only_one_of_a_flush_is_final() {
        let file = file(LEN);
        let zero = FileOpKind::Zero { offset: 0, len: LEN as u64, punch: true, dsync: false };
        for errno in [Errno::INTR, Errno::AGAIN, Errno::INVAL, Errno::NOSPC, Errno::IO] {
            assert!(read(&file, 0).attempted(Err(errno.into())).is_err());
        }
        assert!(op(&file, zero).attempted(Err(Errno::OPNOTSUPP.into())).is_err());
        for errno in [Errno::INTR, Errno::AGAIN, Errno::CANCELED] {
            assert!(op(&file, FileOpKind::Sync).attempted(Err(errno.into())).is_err());
        }
        let lost = op(&file, FileOpKind::Sync).attempted(Err(Errno::IO.into())).unwrap();
        assert!(matches!(lost.result, Err(StoreError::FlushFailed(_))));
        assert!(op(&file, FileOpKind::Sync).attempted(Ok(0)).unwrap().result.is_ok());
    }
}
