//! Stores of blocks: in memory, in files and on block devices, and filters over other stores.
//!
//! Layer 1: over buffer, files; under device, iscsi-initiator, iscsi-target, longhorn, lunette, nbd,
//! pools, rbd, takeover, volume.
//!
//! A [`Store`] is a flat run of bytes with a declared [`Geometry`] and [`Capabilities`]. It knows nothing of SCSI, LUNs
//! or sessions. The device server, the NBD server and the client tools build on it.
//!
//! # Contract
//!
//! A request is *submitted* with a [`Completion`] and ends exactly once through it, on any thread, perhaps before
//! `submit` returns. A store does not block the caller. File operations go to the [`FileIo`] that the caller passes, a
//! pool of threads or a ring.
//!
//! - The caller checks a range against the geometry. A store checks it again, and answers [`StoreError::OutOfRange`].
//! - Every later read sees an acknowledged write.
//! - An acknowledged flush, or write with `fua`, is on stable storage. A power cut may lose other acknowledged writes
//!   when [`Capabilities::volatile_cache`] says so, and never otherwise.
//! - After a flush has failed, every later flush and write with `fua` fails, until the store is opened again.
//! - Requests that overlap in time may run in any order. A caller that needs an order waits for the first request to
//!   end before it submits the second.
//!
//! A store that has bytes in memory may lend them to a read that [allows](lunette_buffer::Buffer::allow_loan) it,
//! instead of copying them. Lent bytes do not change while they are held, whatever is written later.
//!
//! # Another process
//!
//! A process can leave its stores to the one that takes its place, without an end of what they serve. Both stand still
//! meanwhile: nothing is written until one of them owns the stores.
//!
//! | step | files and block devices | memory |
//! |---|---|---|
//! | the predecessor prepares | | [`MemoryStore::make_shareable`] |
//! | it leaves them | [`FileStore::leave`] | [`LeavingMemory::leave`], [`MemoryStore::places`] |
//! | the successor opens them | [`left_files`], [`FileStore::open`] | [`LeftMemory::open`], [`MemoryStore::inherit`] |
//! | it owns them | [`own_left_files`] | [`LeftMemory::own`] |
//! | or the predecessor goes on | [`FileStore::stay`] | [`LeavingMemory::take_back`] |
//!
//! A file goes by its descriptor, which has the locks. Memory goes by one descriptor for all stores of the process, and
//! a list of places for each. As long as the successor does not own them, it takes nothing away from its predecessor,
//! whatever it drops. So it can fail at any time, and the predecessor goes on.
//!
//! # Filters
//!
//! Filters implement the same trait over another store, so a test can stack delays, faults and traces.
//!
//! ```
//! use lunette_buffer::Pool;
//! use lunette_store::{MemoryStore, Op, Store, execute};
//!
//! let store = MemoryStore::new(1 << 20).expect("short enough");
//! let pool = Pool::new(1 << 20);
//! let mut from = pool.take(512).expect("room in the pool");
//! from.fill(7);
//! execute(&store, Op::Write { offset: 4096, from, fua: true }).result?;
//!
//! let into = pool.take(512).expect("room in the pool");
//! let outcome = execute(&store, Op::Read { offset: 4096, into });
//! outcome.result?;
//! assert!(outcome.buffer.expect("it comes back").iter().all(|byte| *byte == 7));
//! assert_eq!(store.geometry().len_bytes, 1 << 20);
//! # Ok::<(), lunette_store::StoreError>(())
//! ```

// Few files have unsafe code. They map memory, copy past the cache, and ask the system for what no library does.
#![deny(unsafe_code)]

mod allocation;
mod file;
pub mod filters;
mod length;
mod memory;
mod request;
mod unflushed;

use lunette_buffer::FileSlice;

pub use allocation::{AllocationMap, Run};
pub use file::{
    CopySource, Extent, Extents, FileIdentity, FileIo, FileOp, FileOpKind, FileStore, InlineIo, OpenError, OpenOptions,
    left_files, own_left_files, share_if_equal, share_range,
};
pub use length::{LengthError, check_asked_len, whole_blocks};
pub use memory::{LeavingMemory, LeftMemory, LeftMemoryError, MemoryStore};
pub use request::{Completion, CompletionSink, Op, OpKind, Outcome, StoreError};
pub use unflushed::Unflushed;

/// A flat run of bytes that holds blocks.
pub trait Store: Send + Sync {
    /// Length and alignment of the store. The length may change during the life of the store.
    fn geometry(&self) -> Geometry;

    /// The operations that the store supports natively, and its promises.
    fn capabilities(&self) -> Capabilities;

    /// The used and free space, where they are known. The call may wait for the medium.
    ///
    /// # Errors
    ///
    /// The error of the system.
    fn space(&self) -> std::io::Result<Option<Space>> {
        Ok(None)
    }

    /// The source from which the system can copy to another store; `None` where a copy needs buffers. A filter that has
    /// to see every read has none.
    fn copy_source(&self) -> Option<CopySource> {
        None
    }

    /// Whether the store executes [`Op::Copy`] from `source`.
    fn can_copy_from(&self, source: &CopySource) -> bool {
        let _ = source;
        false
    }

    /// A slice of the file that the system can send from there; `None` where the bytes must be read. The range lies
    /// within the store.
    fn file_slice(&self, offset: u64, len: usize) -> Option<FileSlice> {
        let _ = (offset, len);
        None
    }

    /// Whether [`submit`](Self::submit) makes use of the `FileIo` that it is given. To a store that does not, a request
    /// may be submitted later, where the submitter's is no longer at hand.
    fn needs_file_io(&self) -> bool {
        true
    }

    /// Whether [`read_at_once`](Self::read_at_once), or [`write_at_once`](Self::write_at_once), may do something, so
    /// that it is worth to try it first.
    fn answers_at_once(&self, kind: OpKind) -> bool {
        let _ = kind;
        false
    }

    /// Fills `into` from `offset` within the call. When that is not possible, the result is false and the bytes of
    /// `into` are unspecified; a request may be submitted then. A store that has failed says why in the outcome of that
    /// request.
    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool {
        let _ = (offset, into);
        false
    }

    /// Writes `from` at `offset` within the call, with `fua` to stable storage. When that is not possible, the result
    /// is false and the bytes at `offset` are the old ones, the new ones, or some of each; a request may be submitted
    /// then.
    fn write_at_once(&self, offset: u64, from: &[u8], fua: bool) -> bool {
        let _ = (offset, from, fua);
        false
    }

    /// Starts `op`. It ends exactly once, through `done`.
    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion);
}

/// Executes `op` and waits for its end, for tests and tools.
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
    /// Bytes that the blocks of the store occupy.
    pub used_bytes: u64,
    /// Bytes that are free, for this store and perhaps for others: of the file system, or of the store's own length.
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

/// The operations that a store supports natively, and its promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// The store refuses requests that change it.
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
