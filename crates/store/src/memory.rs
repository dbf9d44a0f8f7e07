//! Blocks in memory.

mod bypass;
mod left;
mod shared;
mod slab;

use std::io;
use std::ops::Range;
use std::sync::{Arc, LazyLock, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use lunette_buffer::{Buffer, Run as LentRun};

pub use self::left::{LeavingMemory, LeftMemory, LeftMemoryError};
use self::slab::{CHUNK_LEN, Memory};
use crate::{
    AllocationMap, Capabilities, Completion, FileIo, Geometry, Op, OpKind, Outcome, Run, Space, Store, StoreError,
};

/// The granularity that stores declare unless they are exact: the smallest block of disks, and what NBD clients expect.
const SECTOR_LEN: u32 = 512;

/// Number of chunks whose table entries are allocated together: 128 KiB of table for 256 MiB of store.
const GROUP_CHUNKS: usize = 4096;

/// Bytes that one group describes.
const GROUP_LEN: u64 = (CHUNK_LEN * GROUP_CHUNKS) as u64;

/// The shortest read, in bytes, that is answered by lending chunks. A shorter loan would keep more memory from reuse
/// than it has bytes, and a copy of so few bytes stays in the processor's cache.
const MIN_LENT_LEN: usize = CHUNK_LEN;

/// The memory that unallocated chunks lend.
static ZEROES: LazyLock<Arc<Memory>> =
    LazyLock::new(|| Arc::new(Memory::zeroed().expect("no loan is allowed where memory may be missing")));

/// A part of the store that is locked as a whole.
#[derive(Debug, Default)]
struct Chunk(RwLock<Bytes>);

/// The bytes of one chunk; `None` reads as zero. The bytes do not change while a read holds them too: a write replaces
/// them.
type Bytes = Option<Arc<Memory>>;

impl Chunk {
    fn read(&self) -> RwLockReadGuard<'_, Bytes> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Bytes> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of a chunk for a change. `None` when there is no memory for them; the chunk is as it was then.
fn to_change(chunk: &mut Bytes) -> Option<&mut Memory> {
    if chunk.as_mut().and_then(Arc::get_mut).is_none() {
        let own = match chunk {
            Some(lent) => Memory::copy_of(lent),
            None => Memory::zeroed(),
        };
        *chunk = Some(Arc::new(own?));
    }
    chunk.as_mut().and_then(Arc::get_mut)
}

/// A store in memory. It lives as long as the process, unless the process [leaves](LeavingMemory) it to another one.
///
/// A write allocates memory, and an unmap of whole chunks of 64 KiB frees it. Requests end before `submit` returns.
/// Each chunk has its own lock, held for one copy: a write within a chunk is atomic for reads, and cores that work on
/// different chunks do not contend.
///
/// Long reads that allow it are not copied: the chunks are [lent](Buffer::lend), and a write to a lent chunk makes a
/// new one. So lent bytes do not change, and a write to a chunk that is not lent costs nothing more.
///
/// The store declares no volatile cache. Nothing in it survives a power cut, flushed or not, because the medium itself
/// is lost, which WCE does not describe. With WCE an initiator would flush in the belief that it helped.
#[derive(Debug)]
pub struct MemoryStore {
    len_bytes: u64,
    granularity_bytes: u32,
    groups: Vec<OnceLock<Box<[Chunk]>>>,
}

impl MemoryStore {
    /// The longest store: 64 TiB.
    pub const MAX_LEN_BYTES: u64 = 64 << 40;

    /// A store of `len_bytes` zeroes; `None` above [`MAX_LEN_BYTES`](Self::MAX_LEN_BYTES).
    ///
    /// ```
    /// use lunette_store::MemoryStore;
    ///
    /// let store = MemoryStore::new(1 << 30).expect("short enough");
    /// store.write(4096, b"block").unwrap();
    /// let mut bytes = [0; 6];
    /// store.read(4096, &mut bytes).unwrap();
    /// assert_eq!(&bytes, b"block\0");
    /// ```
    pub fn new(len_bytes: u64) -> Option<Self> {
        let groups = usize::try_from(len_bytes.div_ceil(GROUP_LEN)).ok()?;
        let groups = || std::iter::repeat_with(OnceLock::new).take(groups).collect();
        (len_bytes <= Self::MAX_LEN_BYTES).then(|| Self { len_bytes, granularity_bytes: SECTOR_LEN, groups: groups() })
    }

    /// The store with requests exact to the byte, for blocks that are no whole number of sectors.
    #[must_use]
    pub fn exact(self) -> Self {
        Self { granularity_bytes: 1, ..self }
    }

    /// Copies bytes out of the store.
    ///
    /// # Errors
    ///
    /// [`StoreError::OutOfRange`] for bytes outside the store.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), StoreError> {
        self.check(offset, into.len() as u64)?;
        let mut rest = into;
        for piece in pieces(offset, rest.len() as u64) {
            let (now, later) = rest.split_at_mut(piece.range.len());
            rest = later;
            match self.chunk(piece.chunk).map(Chunk::read).as_deref() {
                Some(Some(bytes)) => now.copy_from_slice(&bytes[piece.range]),
                Some(None) | None => now.fill(0),
            }
        }
        Ok(())
    }

    /// Answers a read: by a loan where the buffer allows it and it saves a long copy, otherwise by filling the buffer.
    fn answer(&self, offset: u64, into: Buffer) -> Outcome {
        let len = into.len();
        let is_long = len >= MIN_LENT_LEN && self.check(offset, len as u64).is_ok();
        let into = if is_long { into.lend(self.runs(offset, len)) } else { Err(into) };
        match into {
            Ok(loan) => Outcome::lent(loan),
            Err(mut buffer) => Outcome::new(self.read(offset, &mut buffer), Some(buffer)),
        }
    }

    /// The current memory of a checked range.
    fn runs(&self, offset: u64, len: usize) -> impl Iterator<Item = LentRun> {
        pieces(offset, len as u64).map(|piece| {
            let bytes = self.chunk(piece.chunk).and_then(|chunk| chunk.read().clone());
            LentRun { memory: bytes.unwrap_or_else(|| Arc::clone(&ZEROES)), range: piece.range }
        })
    }

    /// Copies bytes into the store.
    ///
    /// # Errors
    ///
    /// [`StoreError::OutOfRange`] for bytes outside the store. [`StoreError::NoSpace`] when the system has no memory
    /// for them; some of them may be written then.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), StoreError> {
        self.check(offset, from.len() as u64)?;
        let mut rest = from;
        for piece in pieces(offset, rest.len() as u64) {
            let (now, later) = rest.split_at(piece.range.len());
            rest = later;
            let mut chunk = self.chunk_to_fill(piece.chunk).write();
            match chunk.as_mut().and_then(Arc::get_mut) {
                Some(bytes) => bypass::copy(&mut bytes[piece.range], now),
                None if now.len() == CHUNK_LEN => {
                    *chunk = Some(Arc::new(Memory::copy_of(now).ok_or(StoreError::NoSpace)?));
                }
                None => bypass::copy(&mut to_change(&mut chunk).ok_or(StoreError::NoSpace)?[piece.range], now),
            }
        }
        Ok(())
    }

    /// Makes bytes read as zero, and frees the chunks of which nothing else is left.
    ///
    /// # Errors
    ///
    /// [`StoreError::OutOfRange`] for bytes outside the store. [`StoreError::NoSpace`] when the system has no memory
    /// for what is left of a lent chunk.
    pub fn zero(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.check(offset, len)?;
        let mut next = offset;
        let end = offset + len;
        while next < end {
            // Groups that were never written to are skipped as a whole.
            let group_end = (next / GROUP_LEN + 1).saturating_mul(GROUP_LEN).min(end);
            if self.groups.get((next / GROUP_LEN) as usize).is_some_and(|group| group.get().is_some()) {
                pieces(next, group_end - next).try_for_each(|piece| self.zero_piece(&piece))?;
            }
            next = group_end;
        }
        Ok(())
    }

    fn zero_piece(&self, piece: &ChunkRange) -> Result<(), StoreError> {
        let Some(chunk) = self.chunk(piece.chunk) else { return Ok(()) };
        let mut chunk = chunk.write();
        let Some(bytes) = &*chunk else { return Ok(()) };
        let (start, end) = (piece.range.start, piece.range.end);
        if is_zero(&bytes[..start]) && is_zero(&bytes[end..]) {
            *chunk = None;
        } else {
            to_change(&mut chunk).ok_or(StoreError::NoSpace)?[start..end].fill(0);
        }
        Ok(())
    }

    /// The allocation of a range, at the granularity of chunks.
    ///
    /// # Errors
    ///
    /// [`StoreError::OutOfRange`] for bytes outside the store.
    pub fn allocation(&self, offset: u64, len: u64, found: &AllocationMap) -> Result<(), StoreError> {
        self.check(offset, len)?;
        let mut next = offset;
        let end = offset + len;
        while next < end {
            let group_end = (next / GROUP_LEN + 1).saturating_mul(GROUP_LEN).min(end);
            let written_to = self.groups.get((next / GROUP_LEN) as usize).is_some_and(|group| group.get().is_some());
            let goes_on = if written_to {
                pieces(next, group_end - next).all(|piece| found.push(self.run(&piece)))
            } else {
                found.push(Run { len: group_end - next, allocated: false })
            };
            if !goes_on {
                break;
            }
            next = group_end;
        }
        Ok(())
    }

    fn run(&self, piece: &ChunkRange) -> Run {
        let is_filled = |chunk: &Chunk| chunk.read().is_some();
        Run { len: piece.range.len() as u64, allocated: self.chunk(piece.chunk).is_some_and(is_filled) }
    }

    /// Bytes of memory that hold blocks.
    pub fn allocated_bytes(&self) -> u64 {
        let filled = self.chunks().filter(|chunk| chunk.read().is_some());
        filled.count() as u64 * CHUNK_LEN as u64
    }

    /// An independent store with the same content.
    pub(crate) fn duplicate(&self) -> Self {
        // The first write to a chunk, on either store, copies it.
        let copy = |chunk: &Chunk| Chunk(RwLock::new(chunk.read().clone()));
        let groups = self.groups.iter().map(|group| match group.get() {
            Some(chunks) => OnceLock::from(chunks.iter().map(copy).collect::<Box<[Chunk]>>()),
            None => OnceLock::new(),
        });
        Self { len_bytes: self.len_bytes, granularity_bytes: self.granularity_bytes, groups: groups.collect() }
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len_bytes);
        if inside { Ok(()) } else { Err(StoreError::OutOfRange { offset, len, store_len: self.len_bytes }) }
    }

    /// The chunks of all groups that were ever written to.
    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.groups.iter().filter_map(OnceLock::get).flatten()
    }

    /// All of these chunks with their numbers.
    fn numbered_chunks(&self) -> impl Iterator<Item = (u64, &Chunk)> {
        self.groups.iter().enumerate().flat_map(|(group, chunks)| {
            let first = (group * GROUP_CHUNKS) as u64;
            (first..).zip(chunks.get().into_iter().flatten())
        })
    }

    /// The chunk at `index`, if its group was ever written to.
    fn chunk(&self, index: u64) -> Option<&Chunk> {
        let (group, place) = (index / GROUP_CHUNKS as u64, index % GROUP_CHUNKS as u64);
        self.groups.get(group as usize)?.get()?.get(place as usize)
    }

    fn chunk_to_fill(&self, index: u64) -> &Chunk {
        let (group, place) = (index / GROUP_CHUNKS as u64, index % GROUP_CHUNKS as u64);
        let new = || std::iter::repeat_with(Chunk::default).take(GROUP_CHUNKS).collect();
        &self.groups[group as usize].get_or_init(new)[place as usize]
    }
}

/// The part of a range that lies in one chunk.
struct ChunkRange {
    chunk: u64,
    range: Range<usize>,
}

/// Cuts a checked range at chunk boundaries.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = ChunkRange> {
    let end = offset + len;
    let mut next = offset;
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let chunk_len = CHUNK_LEN as u64;
        let (chunk, start) = (next / chunk_len, next % chunk_len);
        let stop = (start + (end - next)).min(chunk_len);
        next += stop - start;
        Some(ChunkRange { chunk, range: start as usize..stop as usize })
    })
}

fn is_zero(bytes: &[u8]) -> bool {
    // Pieces of constant length compile to wide comparisons, and data ends the search at once.
    let (pieces, rest) = bytes.as_chunks::<64>();
    pieces.iter().all(|piece| *piece == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

impl Store for MemoryStore {
    fn geometry(&self) -> Geometry {
        Geometry {
            len_bytes: self.len_bytes,
            granularity_bytes: self.granularity_bytes,
            // Memory writes any number of bytes without reading first.
            physical_bytes: 512,
            unmap_bytes: CHUNK_LEN as u32,
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            read_only: false,
            volatile_cache: false,
            unmap: true,
            unmap_zeroes: true,
            // A chunk of zeroes has no memory reserved.
            anchors: false,
            write_zeroes: true,
            memory: true,
        }
    }

    fn space(&self) -> io::Result<Option<Space>> {
        let used_bytes = self.allocated_bytes();
        Ok(Some(Space { used_bytes, free_bytes: self.len_bytes.saturating_sub(used_bytes) }))
    }

    fn needs_file_io(&self) -> bool {
        false
    }

    fn answers_at_once(&self, kind: OpKind) -> bool {
        matches!(kind, OpKind::Read | OpKind::Write)
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool {
        self.read(offset, into).is_ok()
    }

    fn write_at_once(&self, offset: u64, from: &[u8], _fua: bool) -> bool {
        self.write(offset, from).is_ok()
    }

    fn submit(&self, op: Op, _: &dyn FileIo, done: Completion) {
        done.complete(match op {
            Op::Read { offset, into } => self.answer(offset, into),
            Op::Write { offset, from, .. } => Outcome::new(self.write(offset, &from), Some(from)),
            Op::WriteZeroes { offset, len, .. } | Op::Unmap { offset, len } => {
                Outcome::new(self.zero(offset, len), None)
            }
            Op::Allocation { offset, len, found } => Outcome::new(self.allocation(offset, len, &found), None),
            Op::Copy { .. } => Outcome::new(Err(crate::request::copy_unsupported()), None),
            Op::Flush => Outcome::new(Ok(()), None),
        });
    }
}

#[cfg(test)]
mod tests {
    use lunette_buffer::Pool;

    use super::*;
    use crate::execute;

    #[test]
    fn memory_is_taken_by_writes_and_freed_with_the_last_byte_of_a_chunk() {
        let store = MemoryStore::new(1 << 40).unwrap();
        assert_eq!(store.allocated_bytes(), 0);
        let far = (1 << 40) - 3 * CHUNK_LEN as u64;
        store.write(far, &vec![1; 2 * CHUNK_LEN + 10]).unwrap();
        assert_eq!(store.allocated_bytes(), 3 * CHUNK_LEN as u64);
        store.zero(far + 1, 3 * CHUNK_LEN as u64 - 1).unwrap();
        assert_eq!(store.allocated_bytes(), CHUNK_LEN as u64);
        let found = AllocationMap::default();
        store.allocation(far - 100, 3 * CHUNK_LEN as u64 + 100, &found).unwrap();
        let run = |len, allocated| Run { len, allocated };
        let expected = [run(100, false), run(CHUNK_LEN as u64, true), run(2 * CHUNK_LEN as u64, false)];
        assert_eq!(found.take(), expected);
        store.zero(far, 1).unwrap();
        assert_eq!(store.allocated_bytes(), 0, "the last byte that was not zero");
        store.write(far, &[1]).unwrap();
        store.zero(0, 1 << 40).unwrap();
        assert_eq!(store.allocated_bytes(), 0);
    }

    /// The bytes that a read of `len` bytes is lent.
    fn lent(store: &MemoryStore, offset: u64, len: usize) -> Option<Vec<u8>> {
        let mut into = Pool::new(1 << 20).reserve(len).unwrap();
        into.allow_loan();
        let outcome = execute(store, Op::Read { offset, into });
        assert_ne!(outcome.buffer.is_some(), outcome.loan.is_some());
        outcome.loan.map(|loan| loan.runs().collect::<Vec<_>>().concat())
    }

    #[test]
    fn long_reads_are_lent_the_bytes_of_the_store() {
        let store = MemoryStore::new(1 << 20).unwrap();
        let bytes: Vec<u8> = (0..3 * CHUNK_LEN).map(|at| (at / 5) as u8).collect();
        store.write(CHUNK_LEN as u64, &bytes).unwrap();
        let expected = [&[0; 100][..], &bytes[..2 * CHUNK_LEN]].concat();
        assert_eq!(lent(&store, CHUNK_LEN as u64 - 100, expected.len()), Some(expected));
        assert_eq!(lent(&store, 0, MIN_LENT_LEN - 1), None, "short ones are copied");
        assert_eq!(lent(&store, (1 << 20) - 100, MIN_LENT_LEN), None, "the range ends behind the store");
        assert_eq!(store.allocated_bytes(), 3 * CHUNK_LEN as u64);
    }

    #[test]
    fn only_a_chunk_that_is_lent_is_replaced_by_a_write() {
        let store = MemoryStore::new(1 << 20).unwrap();
        store.write(0, &vec![1; 2 * CHUNK_LEN]).unwrap();
        let place = |chunk| store.chunk(chunk).unwrap().read().as_ref().unwrap().as_ptr();
        let before = [place(0), place(1)];
        let mut into = Pool::new(1 << 20).reserve(CHUNK_LEN).unwrap();
        into.allow_loan();
        let loan = store.answer(0, into).loan.unwrap();
        store.write(CHUNK_LEN as u64 - 10, &[2; 20]).unwrap();
        let after = [place(0), place(1)];
        assert_ne!(before[0], after[0]);
        assert_eq!(before[1], after[1]);
        drop(loan);
        store.write(0, &vec![3; CHUNK_LEN]).unwrap();
        store.zero(10, 10).unwrap();
        assert_eq!([place(0), place(1)], after);
    }

    #[test]
    fn reading_takes_no_memory() {
        let store = MemoryStore::new(1 << 30).unwrap();
        let mut bytes = [1; 100];
        store.read(CHUNK_LEN as u64 - 50, &mut bytes).unwrap();
        assert_eq!((bytes, store.allocated_bytes()), ([0; 100], 0));
    }

    #[test]
    fn the_longest_length_is_held_to() {
        assert!(MemoryStore::new(MemoryStore::MAX_LEN_BYTES + 1).is_none());
        assert!(MemoryStore::new(u64::MAX).is_none());
        let store = MemoryStore::new(MemoryStore::MAX_LEN_BYTES).unwrap();
        store.write(MemoryStore::MAX_LEN_BYTES - 4, b"last").unwrap();
        assert!(store.write(MemoryStore::MAX_LEN_BYTES - 3, b"last").is_err());
    }

    #[test]
    fn a_block_is_never_seen_half_written() {
        let store = MemoryStore::new(1 << 20).unwrap();
        std::thread::scope(|scope| {
            for fill in [1, 2] {
                let store = &store;
                scope.spawn(move || (0..2000).for_each(|_| store.write(4096, &[fill; 4096]).unwrap()));
            }
            for _ in 0..2000 {
                let mut block = [0; 4096];
                store.read(4096, &mut block).unwrap();
                assert!(block.iter().all(|byte| *byte == block[0]));
            }
        });
    }
}
