//! Requests to a store, and their completion.

use std::fmt;
use std::io;
use std::sync::Arc;

use lunette_buffer::{Buffer, Loan};
use rustix::io::Errno;

use crate::{AllocationMap, CopySource};

/// A request to a store. Buffers travel with it and come back in the [`Outcome`].
#[derive(Debug)]
pub enum Op {
    /// Fills the whole of `into` from `offset`.
    Read {
        /// Offset of the first byte.
        offset: u64,
        /// The buffer to fill: filled completely on success, unless the store answers with a loan in its place
        /// ([`Buffer::allow_loan`]); unspecified on failure.
        into: Buffer,
    },
    /// Writes the whole of `from` at `offset`.
    Write {
        /// Offset of the first byte.
        offset: u64,
        /// The bytes to write.
        from: Buffer,
        /// Whether the request ends only when the bytes are on stable storage (SBC: FUA).
        fua: bool,
    },
    /// Makes `len` bytes read as zero.
    WriteZeroes {
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether the space may be freed.
        may_unmap: bool,
        /// Whether the request ends only when the zeroes are on stable storage.
        fua: bool,
    },
    /// Declares `len` bytes unused.
    Unmap {
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Queries which of `len` bytes have space of their own. Space that was set aside but not written yet may be
    /// reported as unallocated; a store that does not know reports all bytes as allocated.
    Allocation {
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// The map to fill.
        found: Arc<AllocationMap>,
    },
    /// Copies `len` bytes without a buffer, from a source that [`Store::can_copy_from`](crate::Store::can_copy_from)
    /// accepts; a store that accepts none fails the request. The ranges do not overlap when both lie in one store.
    Copy {
        /// The source of the bytes.
        source: CopySource,
        /// Offset of the first byte in the source.
        source_offset: u64,
        /// Offset of the first byte in this store.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether the request ends only when the bytes are on stable storage.
        fua: bool,
    },
    /// Flushes everything acknowledged so far to stable storage.
    Flush,
}

/// The kinds of [`Op`], for filters and records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// The kind of [`Op::Read`].
    Read,
    /// The kind of [`Op::Write`].
    Write,
    /// The kind of [`Op::WriteZeroes`].
    WriteZeroes,
    /// The kind of [`Op::Unmap`].
    Unmap,
    /// The kind of [`Op::Allocation`].
    Allocation,
    /// The kind of [`Op::Copy`].
    Copy,
    /// The kind of [`Op::Flush`].
    Flush,
}

impl Op {
    /// The kind of the request.
    pub fn kind(&self) -> OpKind {
        match self {
            Self::Read { .. } => OpKind::Read,
            Self::Write { .. } => OpKind::Write,
            Self::WriteZeroes { .. } => OpKind::WriteZeroes,
            Self::Unmap { .. } => OpKind::Unmap,
            Self::Allocation { .. } => OpKind::Allocation,
            Self::Copy { .. } => OpKind::Copy,
            Self::Flush => OpKind::Flush,
        }
    }

    /// Offset and length in bytes, both zero for a flush. For a copy, the range that changes.
    pub fn range(&self) -> (u64, u64) {
        match self {
            Self::Read { offset, into: bytes } | Self::Write { offset, from: bytes, .. } => {
                (*offset, bytes.len() as u64)
            }
            Self::WriteZeroes { offset, len, .. }
            | Self::Unmap { offset, len }
            | Self::Allocation { offset, len, .. }
            | Self::Copy { offset, len, .. } => (*offset, *len),
            Self::Flush => (0, 0),
        }
    }

    /// Whether the request must be on stable storage before it is acknowledged.
    pub fn fua(&self) -> bool {
        matches!(
            self,
            Self::Write { fua: true, .. } | Self::WriteZeroes { fua: true, .. } | Self::Copy { fua: true, .. }
        )
    }

    /// The buffer of the request, which goes back to the submitter.
    pub fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::Read { into: buffer, .. } | Self::Write { from: buffer, .. } => Some(buffer),
            Self::WriteZeroes { .. }
            | Self::Unmap { .. }
            | Self::Allocation { .. }
            | Self::Copy { .. }
            | Self::Flush => None,
        }
    }

    /// Checks that a store of `store_len` bytes can execute the request.
    ///
    /// # Errors
    ///
    /// [`StoreError::ReadOnly`] for a request that changes a read-only store, [`StoreError::OutOfRange`] for bytes
    /// outside the store.
    pub fn check(&self, store_len: u64, read_only: bool) -> Result<(), StoreError> {
        if read_only && !matches!(self.kind(), OpKind::Read | OpKind::Allocation | OpKind::Flush) {
            return Err(StoreError::ReadOnly);
        }
        let (offset, len) = self.range();
        match offset.checked_add(len) {
            Some(end) if end <= store_len => Ok(()),
            _ => Err(StoreError::OutOfRange { offset, len, store_len }),
        }
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The range lies outside the store: the submitter did not check it, or the store has shrunk.
    #[error("bytes {offset}+{len} lie outside the store of {store_len} bytes")]
    OutOfRange {
        /// Offset of the first requested byte.
        offset: u64,
        /// Number of requested bytes.
        len: u64,
        /// Length of the store in bytes.
        store_len: u64,
    },
    /// The request would change a read-only store.
    #[error("the store is read only")]
    ReadOnly,
    /// The medium has no room for the bytes.
    #[error("no space left in the store")]
    NoSpace,
    /// A flush, or a write with `fua`, did not reach stable storage, now or earlier since the store was opened. The
    /// system may have dropped acknowledged bytes, and reports that only once; so the store remembers it, and no later
    /// flush succeeds.
    #[error("a flush failed, and acknowledged writes may be lost: {0}; check the medium, then open the store again")]
    FlushFailed(Arc<io::Error>),
    /// The store has the bytes, and does not vouch for them: a check that belongs to its format has failed. None of
    /// them is in the buffer of the request.
    #[error("the bytes at offset {offset} were refused: {reason}")]
    Refused {
        /// Offset of the first byte that was refused, in the store that answers.
        offset: u64,
        /// The check that failed.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store has shut this process out for good, for example because another server has taken its place. It can
    /// only be opened again.
    #[error("the store has shut this process out: {0}")]
    ShutOut(String),
    /// The device is gone, or the server of the file system.
    #[error("the device or file system is gone: {0}; bring it back, then open the store again")]
    Gone(io::Error),
    /// The operating system failed a read, and all bytes of the request before the offset can be read.
    #[error("the bytes at offset {offset} cannot be read: {error}")]
    Unreadable {
        /// Offset of the first byte that was not read, in the store that answers.
        offset: u64,
        /// The error of the system.
        error: io::Error,
    },
    /// The operating system failed the request.
    #[error("input or output failed: {0}")]
    Io(#[from] io::Error),
}

/// The errors of a device that was pulled out, of a file that its server has lost, and of a server of files that has
/// ended, also while it had the request.
const GONE: [Errno; 7] =
    [Errno::NXIO, Errno::NODEV, Errno::NOMEDIUM, Errno::STALE, Errno::NOTCONN, Errno::CONNABORTED, Errno::SHUTDOWN];

impl StoreError {
    /// Whether the store serves nothing now: all other requests for bytes would fail like this one, which tells nothing
    /// of the bytes that it was for.
    pub fn concerns_all_bytes(&self) -> bool {
        match self {
            Self::ShutOut(_) | Self::Gone(_) => true,
            Self::OutOfRange { .. }
            | Self::ReadOnly
            | Self::NoSpace
            | Self::FlushFailed(_)
            | Self::Refused { .. }
            | Self::Unreadable { .. }
            | Self::Io(_) => false,
        }
    }

    /// The error for a store over the one that answered, whose offsets are not its own.
    #[must_use]
    pub fn elsewhere(self) -> Self {
        match self {
            Self::Unreadable { error, .. } => Self::Io(error),
            other => other,
        }
    }

    /// The error for a failed system call on a file or block device.
    pub(crate) fn of_system(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Self::NoSpace,
            // PERM is that of a block device that was set read only while it was open.
            Some(Errno::ROFS | Errno::PERM) => Self::ReadOnly,
            Some(errno) if GONE.contains(&errno) => Self::Gone(error),
            _ => Self::Io(error),
        }
    }
}

/// The error of [`Op::Copy`] on a store that cannot copy from other stores.
pub(crate) fn copy_unsupported() -> StoreError {
    StoreError::Io(io::Error::new(io::ErrorKind::Unsupported, "the store cannot copy from others"))
}

/// The end of a request. The buffer that came with the request comes back, whether it succeeded or not, unless it was
/// traded for a loan.
#[derive(Debug)]
pub struct Outcome {
    /// The result of the request.
    pub result: Result<(), StoreError>,
    /// The buffer of a read or write.
    pub buffer: Option<Buffer>,
    /// The bytes of a read, in place of its buffer. Only where the buffer [allowed](Buffer::allow_loan) it.
    pub loan: Option<Loan>,
}

impl Outcome {
    /// An outcome without a loan.
    pub fn new(result: Result<(), StoreError>, buffer: Option<Buffer>) -> Self {
        Self { result, buffer, loan: None }
    }

    /// The outcome of `op` with this result, which returns its buffer.
    pub fn of(op: Op, result: Result<(), StoreError>) -> Self {
        Self::new(result, op.into_buffer())
    }

    /// The outcome of a read that was answered with `loan`.
    pub fn lent(loan: Loan) -> Self {
        Self { result: Ok(()), buffer: None, loan: Some(loan) }
    }
}

/// A receiver of outcomes. One sink serves many requests, each identified by a tag of the submitter's choice.
pub trait CompletionSink: Send + Sync {
    /// Receives the outcome of one request. Called exactly once per completion, on any thread. It must not block.
    fn complete(&self, tag: u64, outcome: Outcome);
}

/// The obligation to end one request exactly once.
pub struct Completion(Inner);

enum Inner {
    Sink { sink: Arc<dyn CompletionSink>, tag: u64 },
    Call(Box<dyn FnOnce(Outcome) + Send>),
}

impl Completion {
    /// A completion that reports to `sink` under `tag`. It does not allocate.
    pub fn new(sink: Arc<dyn CompletionSink>, tag: u64) -> Self {
        Self(Inner::Sink { sink, tag })
    }

    /// A completion that calls `f`, for filters, which change outcomes, and for tests.
    pub fn call(f: impl FnOnce(Outcome) + Send + 'static) -> Self {
        Self(Inner::Call(Box::new(f)))
    }

    /// Ends the request.
    pub fn complete(self, outcome: Outcome) {
        match self.0 {
            Inner::Sink { sink, tag } => sink.complete(tag, outcome),
            Inner::Call(f) => f(outcome),
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Sink { tag, .. } => write!(f, "Completion(tag {tag})"),
            Inner::Call(_) => f.write_str("Completion(call)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_have_a_kind() {
        let kind = |errno: Errno| match StoreError::of_system(errno.into()) {
            StoreError::NoSpace => "no space",
            StoreError::ReadOnly => "read only",
            StoreError::Gone(_) => "gone",
            StoreError::Io(_) => "io",
            other => panic!("{other}"),
        };
        let table = [
            ("no space", &[Errno::NOSPC, Errno::DQUOT, Errno::FBIG][..]),
            ("read only", &[Errno::ROFS, Errno::PERM]),
            ("gone", &GONE),
            ("io", &[Errno::IO, Errno::TIMEDOUT, Errno::NOMEM]),
        ];
        for (expected, errnos) in table {
            assert!(errnos.iter().all(|errno| kind(*errno) == expected), "{expected}");
        }
    }
}
