//! What is asked of a store, and how the answer comes back.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use lunette_buffer::Buffer;

/// One request. Buffers travel with it and come back in the [`Outcome`].
#[derive(Debug)]
pub enum Op {
    /// Fills the whole of `into` from `offset`.
    Read {
        /// First byte, from the start of the store.
        offset: u64,
        /// Filled completely on success; unspecified on failure.
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
    /// Puts everything acknowledged so far on stable storage.
    Flush,
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
    /// The system below failed.
    #[error("input or output failed: {0}")]
    Io(#[from] io::Error),
}

/// How a request ended. The buffer that came with it comes back, whether it succeeded or not.
#[derive(Debug)]
pub struct Outcome {
    /// Whether it was done.
    pub result: Result<(), StoreError>,
    /// The buffer of a read or write.
    pub buffer: Option<Buffer>,
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

/// Runs file operations without blocking the submitter: a pool of threads, or a ring.
pub trait FileIo {
    /// Starts `op`. It ends exactly once, through `done`.
    fn submit(&self, op: FileOp, done: Completion);
}

/// One operation on a file that may have to wait for the medium.
#[derive(Debug)]
pub struct FileOp {
    /// The file or block device.
    pub file: Arc<File>,
    /// What to do with it.
    pub kind: FileOpKind,
}

/// The file operations that stores are made of.
#[derive(Debug)]
pub enum FileOpKind {
    /// Fill the whole of `into`; bytes beyond the end of the file are zero.
    Read {
        /// File offset.
        offset: u64,
        /// Destination.
        into: Buffer,
    },
    /// Write the whole of `from`.
    Write {
        /// File offset.
        offset: u64,
        /// Source.
        from: Buffer,
        /// With data synchronisation (`RWF_DSYNC`).
        dsync: bool,
    },
    /// Make a range read as zero, freeing its space when `punch` says so. Falls back to writing zeroes.
    Zero {
        /// File offset.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// Free the space.
        punch: bool,
        /// Synchronise afterwards.
        dsync: bool,
    },
    /// Free the space of a range; bytes read as zero afterwards where the file system can do it.
    Discard {
        /// File offset.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// `fdatasync`.
    Sync,
}
