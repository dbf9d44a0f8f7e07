//! Disks in memory that the process leaves to another one.
//!
//! | step | predecessor | successor |
//! |---|---|---|
//! | 1 | moves the chunks of each store, while it is in use: [`MemoryStore::make_shareable`] | |
//! | 2 | at a standstill, [leaves](LeavingMemory::leave) the memory, and lists the places of each store | |
//! | 3 | | [opens](LeftMemory::open) the memory, and has [a store](MemoryStore::inherit) for each list |
//! | 4 | ends, or [takes the memory back](LeavingMemory::take_back) | [owns](LeftMemory::own) the memory |
//!
//! Between the second and the fourth step the memory has no certain owner. So both processes give nothing of it back,
//! and use no place that was free: a store that is dropped changes no byte. Neither writes to its stores meanwhile.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::shared::{Phase, SharedFile};
use super::slab::{CHUNK_LEN, Memory, Slabs};
use super::{Chunk, MemoryStore};

/// Why the memory of disks cannot be left or taken on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeftMemoryError {
    /// Some of it is not in the memory that another process can take on.
    #[error("not all disks in memory lie where another process can take them on")]
    NotShared,
    /// The memory was left before, and not taken back.
    #[error("the memory of the disks is left to another process already")]
    AlreadyLeft,
    /// The memory still belongs to an earlier process.
    #[error("the memory of the disks still belongs to an earlier process")]
    NotOwned,
    /// The process has such memory: its own, or that of another process.
    #[error("this process has memory that it shares already, and can take on no other")]
    OtherMemory,
    /// The descriptor is not that of such memory.
    #[error("the descriptor is not of the memory of disks: {0}")]
    NotMemory(&'static str),
    /// The disk is longer than a store can be.
    #[error("a disk of {len_bytes} bytes is too long for memory")]
    TooLong {
        /// The length.
        len_bytes: u64,
    },
    /// The disk has no such chunk.
    #[error("a disk of {len_bytes} bytes has no chunk {chunk}")]
    NoSuchChunk {
        /// The number of the chunk.
        chunk: u64,
        /// The length of the disk.
        len_bytes: u64,
    },
    /// The disk has this chunk already.
    #[error("chunk {chunk} of a disk is listed twice")]
    ChunkTwice {
        /// The number of the chunk.
        chunk: u64,
    },
    /// The memory has no such place.
    #[error("memory with {places} places for chunks has no place {place}")]
    NoSuchPlace {
        /// The number of the place.
        place: u64,
        /// How many there are.
        places: u64,
    },
    /// Another chunk has this place.
    #[error("two chunks of disks are listed at place {place} of the memory")]
    PlaceTwice {
        /// The number of the place.
        place: u64,
    },
    /// The system failed.
    #[error("the system gives no memory that processes share: {0}")]
    System(#[from] io::Error),
}

/// The memory of all disks of this process, which another process may own any moment.
///
/// Dropping the value takes nothing back, because the other process may be using the memory by then.
#[derive(Debug)]
#[must_use = "the memory is of no use to this process until it is taken back"]
pub struct LeavingMemory(Arc<File>);

impl LeavingMemory {
    /// Leaves the memory that stores were [moved](MemoryStore::make_shareable) to. It is for a standstill: until the
    /// memory is taken back, no store may be written to.
    ///
    /// # Errors
    ///
    /// [`LeftMemoryError::NotShared`] when there is none, [`LeftMemoryError::NotOwned`] and
    /// [`LeftMemoryError::AlreadyLeft`] during a handover.
    pub fn leave() -> Result<Self, LeftMemoryError> {
        let mut slabs = Slabs::lock();
        let shared = slabs.shared.as_mut().ok_or(LeftMemoryError::NotShared)?;
        match shared.phase() {
            Phase::All => {}
            Phase::Ours => return Err(LeftMemoryError::NotShared),
            Phase::Theirs => return Err(LeftMemoryError::NotOwned),
            Phase::Left => return Err(LeftMemoryError::AlreadyLeft),
        }
        shared.set_phase(Phase::Left);
        let file = Arc::clone(shared.file());
        Slabs::drop_kept(slabs);
        Ok(Self(file))
    }

    /// Goes on with the memory, because no other process has taken it on.
    pub fn take_back(self) {
        let mut slabs = Slabs::lock();
        if let Some(shared) = &mut slabs.shared {
            shared.own(Phase::All);
        }
        Slabs::drop_kept(slabs);
    }
}

impl AsFd for LeavingMemory {
    /// The descriptor that the other process needs.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The memory of the disks of an earlier process, which may still go on with it.
#[derive(Debug)]
pub struct LeftMemory(());

impl LeftMemory {
    /// The memory with the descriptor of [`LeavingMemory`]. It becomes the memory in which this process leaves its own
    /// disks.
    ///
    /// # Errors
    ///
    /// [`LeftMemoryError::NotMemory`] for another descriptor, [`LeftMemoryError::OtherMemory`] when this process has
    /// such memory, and [`LeftMemoryError::System`].
    pub fn open(descriptor: OwnedFd) -> Result<Self, LeftMemoryError> {
        let mut slabs = Slabs::lock();
        if slabs.shared.is_some() {
            return Err(LeftMemoryError::OtherMemory);
        }
        slabs.shared = Some(SharedFile::left(descriptor)?);
        Ok(Self(()))
    }

    /// Owns the memory, once the earlier process does not. What no store has inherited is given back.
    pub fn own(self) {
        if let Some(shared) = &mut Slabs::lock().shared {
            shared.own(Phase::Ours);
        }
    }
}

impl MemoryStore {
    /// Bytes of a chunk, and of a place in the memory that processes share.
    pub const CHUNK_BYTES: u32 = CHUNK_LEN as u32;

    /// Moves the blocks to memory that another process can take on. From now on all stores of the process get new
    /// memory there. The store may be in use meanwhile, by any number of threads.
    ///
    /// Bytes that are lent stay where they are until the loans end. The memory that becomes free goes back to the
    /// system chunk by chunk, so the store takes no more of it than before.
    ///
    /// # Errors
    ///
    /// [`LeftMemoryError::System`] when the system has no such memory, or not enough of it. Then the store can be used
    /// as before. [`LeftMemoryError::NotOwned`] and [`LeftMemoryError::AlreadyLeft`] during a handover.
    pub fn make_shareable(&self) -> Result<(), LeftMemoryError> {
        use_shared_memory()?;
        // What was taken elsewhere was taken under the lock of its chunk. So a single pass finds all of it.
        let address = |chunk: &Chunk| chunk.read().as_ref().map(|bytes| bytes.as_ptr());
        let mut chunks: Vec<_> = self.chunks().filter_map(|chunk| Some((address(chunk)?, chunk))).collect();
        // The system takes a huge page back as a whole.
        chunks.sort_unstable_by_key(|(address, _)| *address);
        let moved = chunks.into_iter().try_for_each(|(_, chunk)| chunk.move_to_shared());
        Ok(moved.inspect_err(|_| share_no_more())?)
    }

    /// The chunks that are not zero: the number of each chunk in the store, and that of its place in the memory. Both
    /// begin at 0 and count in units of [`CHUNK_BYTES`](Self::CHUNK_BYTES).
    ///
    /// # Errors
    ///
    /// [`LeftMemoryError::NotShared`] when the store was not [moved](Self::make_shareable).
    pub fn places(&self, _memory: &LeavingMemory) -> Result<Vec<(u64, u64)>, LeftMemoryError> {
        let place = |(number, chunk): (u64, &Chunk)| {
            let bytes = chunk.read().clone()?;
            Some(bytes.place().map(|place| (number, place)).ok_or(LeftMemoryError::NotShared))
        };
        self.numbered_chunks().filter_map(place).collect()
    }

    /// The store of `len_bytes` that an earlier process had, with its chunks at these [places](Self::places). Until the
    /// memory is [owned](LeftMemory::own), the store may be read and dropped, and nothing may be written to it.
    ///
    /// # Errors
    ///
    /// [`LeftMemoryError`], for a chunk or a place that does not exist or is listed twice, and for a length above
    /// [`MAX_LEN_BYTES`](Self::MAX_LEN_BYTES).
    pub fn inherit(len_bytes: u64, _memory: &LeftMemory, places: &[(u64, u64)]) -> Result<Self, LeftMemoryError> {
        let store = Self::new(len_bytes).ok_or(LeftMemoryError::TooLong { len_bytes })?;
        for &(chunk, place) in places {
            if chunk >= len_bytes.div_ceil(CHUNK_LEN as u64) {
                return Err(LeftMemoryError::NoSuchChunk { chunk, len_bytes });
            }
            let mut bytes = store.chunk_to_fill(chunk).write();
            if bytes.is_some() {
                return Err(LeftMemoryError::ChunkTwice { chunk });
            }
            *bytes = Some(Arc::new(Memory::left(place)?));
        }
        Ok(store)
    }
}

impl Chunk {
    fn move_to_shared(&self) -> io::Result<()> {
        let mut bytes = self.write();
        let Some(elsewhere) = bytes.as_ref().filter(|bytes| bytes.place().is_none()) else { return Ok(()) };
        let copy = Memory::copy_of(elsewhere).filter(|copy| copy.place().is_some());
        let copy = copy.ok_or(io::ErrorKind::OutOfMemory)?;
        let elsewhere = bytes.replace(Arc::new(copy));
        // Giving memory back takes time, for which no request has to wait.
        drop(bytes);
        drop(elsewhere);
        Ok(())
    }
}

/// Has all chunks from now on lie in the memory that another process can take on.
fn use_shared_memory() -> Result<(), LeftMemoryError> {
    let mut slabs = Slabs::lock();
    match &mut slabs.shared {
        None => slabs.shared = Some(SharedFile::create()?),
        Some(shared) => match shared.phase() {
            Phase::Theirs => return Err(LeftMemoryError::NotOwned),
            Phase::Left => return Err(LeftMemoryError::AlreadyLeft),
            Phase::All => return Ok(()),
            Phase::Ours => shared.set_phase(Phase::All),
        },
    }
    // Those elsewhere would be the first to be used again.
    Slabs::drop_kept(slabs);
    Ok(())
}

/// Has new chunks lie elsewhere again.
fn share_no_more() {
    if let Some(shared) = &mut Slabs::lock().shared
        && shared.has_all()
    {
        shared.set_phase(Phase::Ours);
    }
}
