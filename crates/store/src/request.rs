//! What is asked of a store, and how the answer comes back.

use std::fmt;
use std::io;
use std::sync::Arc;

use lunette_buffer::{Buffer, Loan};

use crate::{AllocationMap, CopySource};

/// One request. Buffers travel with it and come back in the [`Outcome`].
#[derive(Debug)]
pub enum Op {
    /// Fills the whole of `into` from `offset`.
    Read {
        /// First byte, from the start of the store.
        offset: u64,
        /// Filled completely on success, unless the store answers with a loan in its place ([`Buffer::allow_loan`]);
        /// unspecified on failure.
        into: Buffer,
    },
    /// Writes the whole of `from` at `offset`.
    Write {
        /// First byte, from the start of the store.
        offset: u64,
        /// The bytes to write.
        from: Buffer,
        /// Acknowledge only when the bytes are on stable storage (SBC: FUA).
        fua: bool,
    },
    /// Makes `len` bytes read as zero.
    WriteZeroes {
        /// First byte, from the start of the store.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// The space may be freed.
        may_unmap: bool,
        /// Acknowledge only when the zeroes are on stable storage.
        fua: bool,
    },
    /// Declares `len` bytes unused.
    Unmap {
        /// First byte, from the start of the store.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// Asks which of `len` bytes have space of their own. Space that was set aside and not written to yet may show as none; a
    /// store that does not know says that all bytes have it.
    Allocation {
        /// First byte, from the start of the store.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// Filled on success.
        found: Arc<AllocationMap>,
    },
    /// Copies `len` bytes without a buffer, from where [`Store::can_copy_from`](crate::Store::can_copy_from) holds; a store
    /// for which it never does ends the request with an error. The ranges do not overlap when both lie in one store.
    Copy {
        /// Where the bytes are.
        source: CopySource,
        /// First byte there.
        source_offset: u64,
        /// First byte here, from the start of the store.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// Acknowledge only when the bytes are on stable storage.
        fua: bool,
    },
    /// Puts everything acknowledged so far on stable storage.
    Flush,
}

/// The kinds of [`Op`], for filters that choose by kind and for records of what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// [`Op::Read`].
    Read,
    /// [`Op::Write`].
    Write,
    /// [`Op::WriteZeroes`].
    WriteZeroes,
    /// [`Op::Unmap`].
    Unmap,
    /// [`Op::Allocation`].
    Allocation,
    /// [`Op::Copy`].
    Copy,
    /// [`Op::Flush`].
    Flush,
}

impl Op {
    /// Which kind of request this is.
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

    /// Offset and length in bytes, zero both for a flush. Of a copy, the bytes that change.
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

    /// It must be on stable storage before it is acknowledged.
    pub fn fua(&self) -> bool {
        matches!(
            self,
            Self::Write { fua: true, .. } | Self::WriteZeroes { fua: true, .. } | Self::Copy { fua: true, .. }
        )
    }

    /// The buffer that goes back to the submitter.
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

    /// Whether the request may be done at all on a store of `store_len` bytes.
    ///
    /// # Errors
    ///
    /// [`StoreError::ReadOnly`] for anything that changes a store that only reads, [`StoreError::OutOfRange`]
    /// for bytes outside of it.
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
    /// The range lies outside the store: a misuse by the caller, or the store shrank meanwhile.
    #[error("bytes {offset}+{len} lie outside the store of {store_len} bytes")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Length of the store.
        store_len: u64,
    },
    /// A write of some kind on a store that only reads.
    #[error("the store is read only")]
    ReadOnly,
    /// The medium has no room for the bytes.
    #[error("no space left in the store")]
    NoSpace,
    /// A flush, or a write with `fua`, did not reach stable storage: now, or earlier since the store was opened. The
    /// system may have dropped bytes that were acknowledged before, and reports that once; so the store remembers it, and
    /// no later flush succeeds.
    #[error("a flush failed, and acknowledged writes may be lost: {0}; check the medium, then open the store again")]
    FlushFailed(Arc<io::Error>),
    /// The system below failed.
    #[error("input or output failed: {0}")]
    Io(#[from] io::Error),
}

/// How a request ended. The buffer that came with it comes back, whether it succeeded or not, or was traded for a loan.
#[derive(Debug)]
pub struct Outcome {
    /// Whether the request was done.
    pub result: Result<(), StoreError>,
    /// The buffer of a read or write.
    pub buffer: Option<Buffer>,
    /// What a read has found, in place of its buffer. Only where the buffer [allowed](Buffer::allow_loan) it.
    pub loan: Option<Loan>,
}

impl Outcome {
    /// An outcome without a loan.
    pub fn new(result: Result<(), StoreError>, buffer: Option<Buffer>) -> Self {
        Self { result, buffer, loan: None }
    }

    /// The outcome that gives back the buffer of `op`.
    pub fn of(op: Op, result: Result<(), StoreError>) -> Self {
        Self::new(result, op.into_buffer())
    }

    /// The outcome of a read that was answered with `loan`.
    pub fn lent(loan: Loan) -> Self {
        Self { result: Ok(()), buffer: None, loan: Some(loan) }
    }
}

/// Receives the outcomes of requests. One sink serves many requests, each known by a tag of the submitter's choice.
pub trait CompletionSink: Send + Sync {
    /// Called exactly once per completion, on any thread. Must not block.
    fn complete(&self, tag: u64, outcome: Outcome);
}

/// The right and the duty to end one request.
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

    /// A completion that calls `f`: for filters, which change outcomes on their way, and for tests.
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
