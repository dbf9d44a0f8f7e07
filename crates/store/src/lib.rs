//! Where blocks live: memory, files, block devices, and filters over them.
//!
//! Floor 2 of the house. A [`Store`] is a flat run of bytes with a declared [`Geometry`] and [`Capabilities`]. It knows
//! nothing of SCSI, LUNs or sessions.
//!
//! # The contract
//!
//! A request is *submitted* with a [`Completion`] and ends exactly once through it, on any thread, perhaps before `submit`
//! returns. A store does not block the caller: what needs the kernel to work goes to the [`FileIo`] that the caller brings
//! along, because only the caller knows whether that is a pool of threads or a ring.
//!
//! - A range is checked by the caller against the geometry before it comes here; a store checks it again and answers
//!   [`StoreError::OutOfRange`] instead of trusting it.
//! - An acknowledged write is seen by every later read.
//! - An acknowledged flush, or write with `fua`, is on stable storage. What was written and not flushed may be lost by a
//!   power cut when [`Capabilities::volatile_cache`] says so, and never otherwise.
//! - After a flush has failed, every later flush and write with `fua` fails, until the store is opened again.
//! - Requests that overlap in time may run in any order. Whoever needs order waits for the first before submitting the
//!   second.
//!
//! A store that has bytes in memory may lend them to a read that [allows](lunette_buffer::Buffer::allow_loan) it, instead of copying them.
//! Then they do not change as long as anybody holds them, whatever is written: they are what the store held when it was read.
//!
//! Filters implement the same trait over another store, so a test can stack delay, faults and traces without the device
//! knowing.

// Only `memory/slab.rs` has any: it maps memory.
#![deny(unsafe_code)]

mod allocation;
mod copy;
mod durable;
mod file;
mod file_attempt;
mod file_op;
mod file_open;
pub mod filters;
mod memory;
mod request;

use lunette_buffer::FileSlice;

pub use allocation::{AllocationMap, Run};
pub use copy::CopySource;
pub use file::FileStore;
pub use file_op::{FileIo, FileOp, FileOpKind, InlineIo};
pub use file_open::{OpenError, OpenOptions};
pub use memory::MemoryStore;
pub use request::{Completion, CompletionSink, Op, OpKind, Outcome, StoreError};

/// A flat run of bytes that blocks are kept in.
pub trait Store: Send + Sync {
    /// Size and alignment. The size may grow or shrink while the store lives.
    fn geometry(&self) -> Geometry;

    /// What the store can do, and what it promises.
    fn capabilities(&self) -> Capabilities;

    /// How much space there is, where that can be told. It may wait for the medium.
    ///
    /// # Errors
    ///
    /// What the system says.
    fn space(&self) -> std::io::Result<Option<Space>> {
        Ok(None)
    }

    /// What another store can copy this one's bytes from by itself; `None` where it must be given them in buffers. A filter
    /// that has to see every read has none.
    fn copy_source(&self) -> Option<CopySource> {
        None
    }

    /// Whether [`Op::Copy`] from `source` is worth asking for.
    fn can_copy_from(&self, source: &CopySource) -> bool {
        let _ = source;
        false
    }

    /// These bytes where they are, when the system can send them from there; `None` where they must be read. The caller asks for
    /// bytes that the store has.
    fn file_slice(&self, offset: u64, len: usize) -> Option<FileSlice> {
        let _ = (offset, len);
        None
    }

    /// Starts `op`. It ends exactly once, through `done`.
    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion);
}

/// Does `op` and waits for its end: for tests and tools.
pub fn execute(store: &dyn Store, op: Op) -> Outcome {
    let (tx, rx) = std::sync::mpsc::channel();
    let done = Completion::call(move |outcome| {
        // The receiver waits below.
        let _ = tx.send(outcome);
    });
    store.submit(op, &InlineIo, done);
    rx.recv().expect("a store ends every request")
}

/// The space of a store, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// What its blocks have taken.
    pub used_bytes: u64,
    /// What is left for it, and perhaps for others: of the file system, or of the store's own length.
    pub free_bytes: u64,
}

/// Size and alignment of a store, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Length of the store.
    pub len_bytes: u64,
    /// Offsets and lengths of requests are multiples of this.
    pub granularity_bytes: u32,
    /// The unit that the medium writes without reading first; a multiple of the granularity.
    pub physical_bytes: u32,
    /// The unit that an unmap frees as a whole; a multiple of the granularity.
    pub unmap_bytes: u32,
}

/// What a store can do natively, and what it promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Writes of any kind are refused.
    pub read_only: bool,
    /// Acknowledged writes may be lost by a power cut until they are flushed (SBC: WCE).
    pub volatile_cache: bool,
    /// [`Op::Unmap`] frees space. Without it an unmap succeeds and does nothing.
    pub unmap: bool,
    /// Bytes read as zero after an unmap (SBC: LBPRZ).
    pub unmap_zeroes: bool,
    /// [`Op::WriteZeroes`] that may not unmap sets space aside: later writes there find room (SBC: `ANC_SUP`).
    pub anchors: bool,
    /// [`Op::WriteZeroes`] is cheaper than writing zeroes.
    pub write_zeroes: bool,
    /// Reads and writes complete without waiting for the kernel.
    pub memory: bool,
}
