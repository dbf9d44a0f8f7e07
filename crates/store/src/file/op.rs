//! The file operations that stores are built from, and their execution.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use lunette_buffer::Buffer;
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use crate::{AllocationMap, Completion, Outcome, Run, StoreError};

/// An executor of file operations that does not block the submitter: a pool of threads, or a ring.
///
/// An implementation without [`FileOp::run`] must behave like it, and above all report a failed synchronisation as
/// [`StoreError::FlushFailed`], or the store cannot remember it.
pub trait FileIo {
    /// Starts `op`. It ends exactly once, through `done`.
    fn submit(&self, op: FileOp, done: Completion);
}

/// A file operation, which may have to wait for the medium.
#[derive(Debug)]
pub struct FileOp {
    /// The file or block device.
    pub file: Arc<File>,
    /// The operation, with its buffer.
    pub kind: FileOpKind,
}

/// The kinds of file operations.
#[derive(Debug)]
pub enum FileOpKind {
    /// Fills the whole of `into`. A read that meets the end of the file fails with [`StoreError::OutOfRange`].
    Read {
        /// Offset in the file.
        offset: u64,
        /// The buffer to fill.
        into: Buffer,
    },
    /// Writes the whole of `from`.
    Write {
        /// Offset in the file.
        offset: u64,
        /// The bytes to write.
        from: Buffer,
        /// Whether to synchronise the data (`RWF_DSYNC`).
        dsync: bool,
    },
    /// Makes a range read as zero, freeing its space with `punch`. Falls back to writing zeroes.
    Zero {
        /// Offset in the file.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether to free the space.
        punch: bool,
        /// Whether to synchronise the data.
        dsync: bool,
    },
    /// Queries which bytes have space.
    Allocation {
        /// Offset in the file.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// The map to fill.
        found: Arc<AllocationMap>,
    },
    /// Copies a range of another file, or another range of this one (`copy_file_range`). Falls back to reading and
    /// writing.
    Copy {
        /// The source file. A copy that meets its end fails with [`StoreError::OutOfRange`].
        source: Arc<File>,
        /// Offset in the source file.
        source_offset: u64,
        /// Offset in the file.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether to synchronise the data.
        dsync: bool,
    },
    /// Synchronises the data (`fdatasync`).
    Sync,
}

/// The bytes of one write where the system cannot zero a range.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

impl FileOp {
    /// Executes the operation on the calling thread, which may wait long for the medium.
    ///
    /// A failed synchronisation is reported as [`StoreError::FlushFailed`], unlike other failures.
    pub fn run(self) -> Outcome {
        let file = &*self.file;
        match self.kind {
            FileOpKind::Read { offset, mut into } => {
                let result = read(file, offset, &mut into);
                Outcome::new(result, Some(into))
            }
            FileOpKind::Write { offset, from, dsync } => {
                let result = if dsync { write_dsync(file, offset, &from) } else { write(file, offset, &from) };
                Outcome::new(result, Some(from))
            }
            FileOpKind::Zero { offset, len, punch, dsync } => {
                let zeroed = zero(file, offset, len, punch);
                let result = if dsync { zeroed.and_then(|()| sync(file)) } else { zeroed };
                Outcome::new(result, None)
            }
            FileOpKind::Allocation { offset, len, found } => Outcome::new(allocation(file, offset, len, &found), None),
            FileOpKind::Copy { source, source_offset, offset, len, dsync } => {
                let copied = copy(&source, source_offset, file, offset, len);
                let result = if dsync { copied.and_then(|()| sync(file)) } else { copied };
                Outcome::new(result, None)
            }
            FileOpKind::Sync => Outcome::new(sync(file), None),
        }
    }
}

/// An executor that runs file operations on the submitting thread, for tests and tools.
#[derive(Debug, Clone, Copy, Default)]
pub struct InlineIo;

impl FileIo for InlineIo {
    fn submit(&self, op: FileOp, done: Completion) {
        done.complete(op.run());
    }
}

/// Frees the space of a range, which reads as zero afterwards, without changing the length of the file.
pub(crate) const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// Makes a range read as zero, and keeps its space.
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);

pub(crate) fn read(file: &File, mut offset: u64, mut into: &mut [u8]) -> Result<(), StoreError> {
    while !into.is_empty() {
        match file.read_at(into, offset) {
            Ok(0) => return Err(ends_before(offset, into.len() as u64)),
            Ok(len) => {
                into = &mut into[len..];
                offset += len as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(match StoreError::of_system(error) {
                    StoreError::Io(error) => StoreError::Unreadable { offset, error },
                    other => other,
                });
            }
        }
    }
    Ok(())
}

/// The file ends at `offset` now, or before. It has become shorter, because requests were checked against the length
/// that is served. Zeroes would look like data.
fn ends_before(offset: u64, len: u64) -> StoreError {
    StoreError::OutOfRange { offset, len, store_len: offset }
}

pub(crate) fn write(file: &File, offset: u64, from: &[u8]) -> Result<(), StoreError> {
    file.write_all_at(from, offset).map_err(StoreError::of_system)
}

pub(crate) fn flush_failed(error: impl Into<io::Error>) -> StoreError {
    StoreError::FlushFailed(Arc::new(error.into()))
}

fn sync(file: &File) -> Result<(), StoreError> {
    loop {
        match file.sync_data() {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(flush_failed(error)),
        }
    }
}

/// Writes and synchronises in one call, so that only these bytes need to reach the medium.
fn write_dsync(file: &File, mut offset: u64, mut from: &[u8]) -> Result<(), StoreError> {
    while !from.is_empty() {
        match pwritev2(file, &[IoSlice::new(from)], offset, ReadWriteFlags::DSYNC) {
            Ok(0) => return Err(StoreError::Io(ErrorKind::WriteZero.into())),
            Ok(len) => {
                from = &from[len..];
                offset += len as u64;
            }
            Err(Errno::INTR) => {}
            // The kernel or the file system does not support the flag: use two calls.
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => {
                write(file, offset, from)?;
                return sync(file);
            }
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::ROFS | Errno::PERM)) => {
                // Either these bytes are refused, which is harmless; or earlier bytes were refused on their way to the
                // medium, and are lost. In the first case an ordinary write fails too.
                write(file, offset, from)?;
                return Err(flush_failed(error));
            }
            Err(error) => return Err(flush_failed(error)),
        }
    }
    Ok(())
}

fn zero(file: &File, offset: u64, len: u64, may_punch: bool) -> Result<(), StoreError> {
    if len == 0 {
        return Ok(());
    }
    // Space that must stay allocated is not punched.
    let in_one_call: &[FallocateFlags] = if may_punch { &[PUNCH, ZERO] } else { &[ZERO] };
    for mode in in_one_call {
        match retry(|| fallocate(file, *mode, offset, len)) {
            Ok(()) => return Ok(()),
            // Not supported here, or not for a range with this alignment.
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL | Errno::NODEV | Errno::PERM) => {}
            Err(error) => return Err(StoreError::of_system(error.into())),
        }
    }
    write_zeroes(file, offset, len)
}

fn write_zeroes(file: &File, offset: u64, len: u64) -> Result<(), StoreError> {
    let mut done = 0;
    while done < len {
        let piece = (len - done).min(ZEROES.len() as u64);
        write(file, offset + done, &ZEROES[..piece as usize])?;
        done += piece;
    }
    Ok(())
}

/// Copies as much as the system does by itself, and the rest by reading and writing.
fn copy(source: &File, source_offset: u64, file: &File, offset: u64, len: u64) -> Result<(), StoreError> {
    let mut done = 0;
    while done < len {
        let (mut from, mut to) = (source_offset + done, offset + done);
        match copy_file_range(source, Some(&mut from), file, Some(&mut to), (len - done) as usize) {
            Ok(0) => return Err(ends_before(source_offset + done, len - done)),
            Ok(copied) => done += copied as u64,
            Err(Errno::INTR) => {}
            // Not supported here, or not for these two files or ranges.
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL | Errno::XDEV | Errno::PERM) => {
                return copy_bytes(source, source_offset + done, file, offset + done, len - done);
            }
            Err(error) => return Err(StoreError::of_system(error.into())),
        }
    }
    Ok(())
}

fn copy_bytes(source: &File, source_offset: u64, file: &File, offset: u64, len: u64) -> Result<(), StoreError> {
    let mut bytes = vec![0; len.min(ZEROES.len() as u64) as usize];
    let mut done = 0;
    while done < len {
        let piece = &mut bytes[..(len - done).min(ZEROES.len() as u64) as usize];
        read(source, source_offset + done, piece).map_err(StoreError::elsewhere)?;
        write(file, offset + done, piece)?;
        done += piece.len() as u64;
    }
    Ok(())
}

/// Seeks holes and data in turn. This changes the file's position, which is not used otherwise.
fn allocation(file: &File, offset: u64, len: u64, found: &AllocationMap) -> Result<(), StoreError> {
    let end = offset + len;
    let mut next = offset;
    while next < end {
        let data = match seek(file, SeekFrom::Data(next)) {
            Ok(at) => at.min(end),
            // Only a hole up to the end of the file.
            Err(Errno::NXIO) => end,
            // Not supported here: a block device, or an old file system.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                found.push(Run { len: end - next, allocated: true });
                return Ok(());
            }
            Err(error) => return Err(StoreError::of_system(error.into())),
        };
        let hole = match seek(file, SeekFrom::Hole(data)) {
            _ if data == end => end,
            Ok(at) => at.min(end),
            // The file was truncated after the first seek.
            Err(Errno::NXIO) => data,
            Err(error) => return Err(StoreError::of_system(error.into())),
        };
        let goes_on = found.push(Run { len: data - next, allocated: false })
            && found.push(Run { len: hole - data, allocated: true });
        if !goes_on {
            break;
        }
        next = hole;
    }
    Ok(())
}

/// Repeats a call that a signal interrupts; the next one continues where it was.
pub(super) fn retry(mut call: impl FnMut() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
