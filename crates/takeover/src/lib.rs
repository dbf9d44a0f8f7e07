//! Taking a disk over while it is used: reads go through to it, and its blocks are copied in the background.
//!
//! Layer 2: over buffer, store; under lunette.
//!
//! A [`TakeOver`] gives a [store](TakeOver::store) over three others: the *source*, which is read only; the *target*,
//! which has the blocks at the end; and a *map* that tells which chunks of the target are right. It serves the whole
//! disk from the first moment on. When all chunks are copied, it closes source and map.
//!
//! - A read of a chunk that is not copied copies it first. So each byte is read from the source once.
//! - A change copies the chunks that it touches in part, and is acknowledged when the map on its medium tells of all
//!   that it touches. So an acknowledged write is as safe as in the target alone, also when the process is killed.
//! - Nothing writes to the source. Whatever else may write to it must have stopped before.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use lunette_store::{MemoryStore, Store};
//! use lunette_takeover::{Stores, TakeOver, map_len};
//!
//! let memory = |len| Arc::new(MemoryStore::new(len).expect("short enough"));
//! let (source, target) = (memory(1 << 20), memory(1 << 20));
//! source.write(4096, b"from there")?;
//! let stores = Stores { source: Some(source), target: target.clone(), map: memory(map_len(1 << 20)) };
//! let disk = TakeOver::open(stores, 1 << 20)?;
//!
//! while !disk.status().is_whole {
//!     disk.wait(Duration::from_secs(1));
//! }
//! let mut bytes = [0; 10];
//! target.read(4096, &mut bytes)?;
//! assert_eq!(&bytes, b"from there");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod error;
mod limits;
mod map;
mod queue;
mod shared;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lunette_buffer::{FileSlice, Pool};
use lunette_store::{Capabilities, Completion, CopySource, FileIo, Geometry, Op, OpKind, Outcome, Run, Space, Store};

pub use error::OpenError;
pub use limits::{CHUNK_BYTES, MAX_LEN_BYTES};
use limits::{MAX_RUN_BYTES, WORKERS};
use map::Map;
pub use map::map_len;
use queue::Demand;
use shared::{Pushed, Shared};

/// The stores of a disk that is taken over.
pub struct Stores {
    /// The disk as it is elsewhere; `None` when the map [is whole](is_whole).
    pub source: Option<Arc<dyn Store>>,
    /// The disk as it will be. It may be longer.
    pub target: Arc<dyn Store>,
    /// [`map_len`] bytes at least: zeroes when the disk is begun to be taken over.
    pub map: Arc<dyn Store>,
}

/// A disk that is taken over. Its copy [ends](Self::stop) when it is dropped.
pub struct TakeOver(Arc<Shared>);

/// The state of the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Bytes that are copied.
    pub done_bytes: u64,
    /// Bytes of the source.
    pub all_bytes: u64,
    /// Whether the target has all of them for good, so that source and map are not needed any more.
    pub is_whole: bool,
    /// Why nothing is copied now. It is tried again.
    pub trouble: Option<String>,
}

impl TakeOver {
    /// Begins to take a disk over, or goes on. `source_bytes` is the length that the source had at first. The call
    /// waits for the map.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when a length does not fit, or the map cannot be read.
    pub fn open(stores: Stores, source_bytes: u64) -> Result<Self, OpenError> {
        let disk = Self::without_threads(stores, source_bytes)?;
        for _ in 0..WORKERS {
            let shared = Arc::clone(&disk.0);
            shared.add_thread();
            let started = thread::Builder::new().name("takeover".into()).spawn(move || shared.work());
            // Those that were started end when `disk` is dropped.
            started.inspect_err(|_| disk.0.remove_thread())?;
        }
        Ok(disk)
    }

    fn without_threads(stores: Stores, source_bytes: u64) -> Result<Self, OpenError> {
        let Stores { source, target, map } = stores;
        let there = target.geometry().len_bytes;
        if there < source_bytes {
            return Err(OpenError::TargetLength { there, needed: source_bytes });
        }
        let map = Map::read(map, source_bytes)?;
        match &source {
            Some(source) => check_source(source.geometry(), source_bytes)?,
            None if map.is_whole() => {}
            None => return Err(OpenError::NoSource),
        }
        let pool = Pool::new(2 * WORKERS * MAX_RUN_BYTES as usize);
        Ok(Self(Arc::new(Shared::new(target, source, source_bytes, map, pool))))
    }

    /// The state of the copy.
    pub fn status(&self) -> Status {
        let shared = &*self.0;
        let done_bytes = (shared.map.local_chunks() * CHUNK_BYTES).min(shared.source_bytes);
        let is_whole = shared.map.is_whole();
        let trouble = if is_whole { None } else { shared.trouble() };
        Status { done_bytes, all_bytes: shared.source_bytes, is_whole, trouble }
    }

    /// Waits until all is copied or the copy is [stopped](Self::stop), at most for this time.
    pub fn wait(&self, most: Duration) {
        self.0.wait(most);
    }

    /// Ends the copy before all is there, and closes the source when requests under way are answered. Whether that is
    /// done within this time.
    pub fn stop(&self, most: Duration) -> bool {
        self.0.stop(most)
    }

    /// The disk as a store: one for each user, so that the caller sees which are gone. Requests that need the source
    /// fail after the [end](Self::stop).
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::new(Disk(Arc::clone(&self.0)))
    }
}

/// Whether a map tells that all of a disk of this length is copied. The call waits for it.
///
/// # Errors
///
/// [`OpenError`] when the disk is too long, or the map cannot be read.
pub fn is_whole(map: &Arc<dyn Store>, source_bytes: u64) -> Result<bool, OpenError> {
    Ok(Map::read(Arc::clone(map), source_bytes)?.is_whole())
}

fn check_source(source: Geometry, expected: u64) -> Result<(), OpenError> {
    if source.len_bytes != expected {
        return Err(OpenError::SourceLength { there: source.len_bytes, expected });
    }
    if !CHUNK_BYTES.is_multiple_of(source.granularity_bytes.max(1).into()) {
        return Err(OpenError::Blocks(source.granularity_bytes));
    }
    Ok(())
}

/// The disk for one user.
struct Disk(Arc<Shared>);

impl Disk {
    fn chunks(&self, offset: u64, len: u64) -> Range<u64> {
        self.0.touched(offset, len)
    }

    /// Whether the target can read this range.
    fn reads(&self, offset: u64, len: u64) -> bool {
        self.0.map.is_local(&self.chunks(offset, len))
    }

    /// Whether the target can change this range.
    fn changes(&self, offset: u64, len: u64) -> bool {
        self.0.map.is_mapped(&self.chunks(offset, len))
    }

    /// Whether the target can execute this request.
    fn passes(&self, op: &Op) -> bool {
        let (offset, len) = op.range();
        match op.kind() {
            OpKind::Flush => true,
            OpKind::Read => self.reads(offset, len),
            OpKind::Allocation => self.0.map.is_whole(),
            OpKind::Write | OpKind::WriteZeroes | OpKind::Unmap | OpKind::Copy => self.changes(offset, len),
        }
    }
}

impl Store for Disk {
    fn geometry(&self) -> Geometry {
        self.0.target.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.target.capabilities()
    }

    fn space(&self) -> std::io::Result<Option<Space>> {
        self.0.target.space()
    }

    /// Other stores copy from the target once all is there.
    fn copy_source(&self) -> Option<CopySource> {
        if self.0.map.is_whole() { self.0.target.copy_source() } else { None }
    }

    fn can_copy_from(&self, source: &CopySource) -> bool {
        self.0.target.can_copy_from(source)
    }

    fn file_slice(&self, offset: u64, len: usize) -> Option<FileSlice> {
        if self.reads(offset, len as u64) { self.0.target.file_slice(offset, len) } else { None }
    }

    fn needs_file_io(&self) -> bool {
        self.0.target.needs_file_io()
    }

    fn answers_at_once(&self, kind: OpKind) -> bool {
        self.0.target.answers_at_once(kind)
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool {
        self.reads(offset, into.len() as u64) && self.0.target.read_at_once(offset, into)
    }

    fn write_at_once(&self, offset: u64, from: &[u8], fua: bool) -> bool {
        self.changes(offset, from.len() as u64) && self.0.target.write_at_once(offset, from, fua)
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        // What the target refuses never waits for the source.
        let checked = op.check(self.geometry().len_bytes, self.capabilities().read_only);
        if let Err(error) = checked {
            return done.complete(Outcome::of(op, Err(error)));
        }
        if self.passes(&op) {
            return self.0.target.submit(op, io, done);
        }
        if let Op::Allocation { len, found, .. } = &op {
            // The target has holes where the source has blocks.
            found.push(Run { len: *len, allocated: true });
            return done.complete(Outcome::of(op, Ok(())));
        }
        let (offset, len) = op.range();
        let demand = Demand { op, done, chunks: self.chunks(offset, len) };
        match self.0.push(demand) {
            Pushed::Queued => {}
            Pushed::IsWhole(Demand { op, done, .. }) => self.0.target.submit(op, io, done),
            Pushed::IsStopped(Demand { op, done, .. }) => done.complete(Outcome::of(op, Err(shared::closed()))),
        }
    }
}

impl Drop for TakeOver {
    fn drop(&mut self) {
        self.0.close();
    }
}
