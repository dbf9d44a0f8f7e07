//! Memory of chunks in a file without a name (memfd_create(2)), which another process can map too.
//!
//! A process has one such file at most. It [makes](SharedFile::create) the file when it first shares its memory, or
//! takes on the one that an earlier process [has left](SharedFile::left). The file grows by segments and never becomes
//! shorter. The memory of a chunk that is dropped goes back to the system.
//!
//! The process that maps the memory is not always the one that owns it: [`Phase`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::{Errno, retry_on_intr};

use rustix::process::{Resource, getrlimit};

use super::left::LeftMemoryError;
use super::slab::{CHUNK_LEN, SLAB_LEN, Unused, map_shared, slab_of};

/// Lengths by which the file grows, in bytes. A process has only some tens of thousands of mappings, and one whose
/// addresses are limited may have no room for the first.
const SEGMENT_LENS: [usize; 2] = [32 * SLAB_LEN, SLAB_LEN];

/// The owner of the memory, and the use of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// An earlier process owns it. Nothing is taken or given back.
    Theirs,
    /// Owned by this process. What was given back is used again, and other chunks lie elsewhere.
    Ours,
    /// Owned by this process, and all new chunks lie there as long as it can grow.
    All,
    /// A later process may own it any moment. Nothing is taken or given back.
    Left,
}

/// The file and its mappings.
#[derive(Debug)]
pub(super) struct SharedFile {
    file: Arc<File>,
    /// Bytes of the file that are mapped, from its beginning.
    len: u64,
    /// The mappings by their addresses.
    segments: BTreeMap<usize, Segment>,
    /// Places without an owner. Those that were dropped by a process that does not own the memory still have theirs.
    unused: Unused,
    phase: Phase,
}

#[derive(Debug)]
struct Segment {
    len: usize,
    /// The number of its first place.
    first: u64,
}

/// Where the memory of a place lies.
#[derive(Debug)]
pub(super) struct Backing {
    file: Arc<File>,
    offset: u64,
}

impl Backing {
    /// Has the system give memory to the place, if it has any. A write to a place without would end the process when
    /// it has none.
    pub(super) fn allocate(self) -> bool {
        allocate(&self.file, FallocateFlags::KEEP_SIZE, self.offset, CHUNK_LEN as u64).is_ok()
    }
}

impl SharedFile {
    /// A new file, for all chunks from now on.
    pub(super) fn create() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = match memfd_create("lunette", flags | MemfdFlags::NOEXEC_SEAL) {
            // Linux before 6.3.
            Err(Errno::INVAL) => memfd_create("lunette", flags),
            other => other,
        }?;
        // No process can take bytes away that another one has mapped.
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        Ok(Self::new(file.into(), Phase::All))
    }

    /// The file of an earlier process.
    pub(super) fn left(descriptor: OwnedFd) -> Result<Self, LeftMemoryError> {
        let seals = fcntl_get_seals(&descriptor).map_err(|_| LeftMemoryError::NotMemory("it has no seals"))?;
        if !seals.contains(SealFlags::SHRINK) || seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(LeftMemoryError::NotMemory("it has other seals"));
        }
        let file = File::from(descriptor);
        let metadata = file.metadata()?;
        let len = usize::try_from(metadata.len()).ok().filter(|len| len.is_multiple_of(SLAB_LEN));
        let (true, Some(len)) = (metadata.is_file(), len) else {
            return Err(LeftMemoryError::NotMemory("it has another length"));
        };
        let mut shared = Self::new(file, Phase::Theirs);
        if len > 0 {
            shared.map(len)?;
        }
        Ok(shared)
    }

    fn new(file: File, phase: Phase) -> Self {
        Self { file: Arc::new(file), len: 0, segments: BTreeMap::new(), unused: Unused::new(), phase }
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Whether places may be given back.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.phase, Phase::Ours | Phase::All)
    }

    /// Whether other memory has no use any more.
    pub(super) fn has_all(&self) -> bool {
        matches!(self.phase, Phase::All)
    }

    /// Takes a place that reads as zero, if this is the time for it and there is one.
    pub(super) fn take(&mut self) -> Option<(usize, Backing)> {
        let address = match self.phase {
            Phase::Theirs | Phase::Left => None,
            Phase::Ours => self.unused.take(),
            Phase::All => self.unused.take().or_else(|| {
                self.grow()?;
                self.unused.take()
            }),
        }?;
        let offset = self.place_at(address)? * CHUNK_LEN as u64;
        Some((address, Backing { file: Arc::clone(&self.file), offset }))
    }

    /// Takes what an earlier process has left at this place.
    pub(super) fn claim(&mut self, place: u64) -> Result<usize, LeftMemoryError> {
        let places = self.len / CHUNK_LEN as u64;
        let is_inside = |segment: &Segment| {
            place.checked_sub(segment.first).is_some_and(|at| at < (segment.len / CHUNK_LEN) as u64)
        };
        let (start, segment) = self
            .segments
            .iter()
            .find(|(_, segment)| is_inside(segment))
            .ok_or(LeftMemoryError::NoSuchPlace { place, places })?;
        let address = start + (place - segment.first) as usize * CHUNK_LEN;
        if self.unused.claim(address) { Ok(address) } else { Err(LeftMemoryError::PlaceTwice { place }) }
    }

    pub(super) fn put(&mut self, address: usize) {
        self.unused.put(address);
    }

    /// The number of the place at an address, if the address is in this memory.
    pub(super) fn place_at(&self, address: usize) -> Option<u64> {
        let (start, segment) = self.segments.range(..=address).next_back()?;
        let offset = address - start;
        (offset < segment.len).then(|| segment.first + (offset / CHUNK_LEN) as u64)
    }

    /// Owns the memory from now on. Whatever no chunk of this process uses is given back.
    pub(super) fn own(&mut self, phase: Phase) {
        self.phase = phase;
        let mut runs: Vec<Range<u64>> = Vec::new();
        let numbered = |address| self.place_at(address);
        for place in self.unused.addresses().filter_map(numbered) {
            match runs.last_mut() {
                Some(run) if run.end == place => run.end += 1,
                _ => runs.push(place..place + 1),
            }
        }
        for run in runs {
            let (offset, len) = (run.start * CHUNK_LEN as u64, (run.end - run.start) * CHUNK_LEN as u64);
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if let Err(error) = allocate(&self.file, hole, offset, len) {
                tracing::warn!(len, %error, "memory that an earlier process has used cannot be given back");
                self.forget(&run);
            }
        }
    }

    /// Leaves out the slabs of places that may hold the bytes of an earlier owner.
    fn forget(&mut self, run: &Range<u64>) {
        let inside = |address: &usize| self.place_at(*address).is_some_and(|place| run.contains(&place));
        let slabs: BTreeSet<usize> = self.unused.addresses().filter(inside).map(slab_of).collect();
        for slab in slabs {
            self.unused.remove(slab);
        }
    }

    fn grow(&mut self) -> Option<()> {
        SEGMENT_LENS.into_iter().find_map(|len| {
            // Only what is mapped counts: the next attempt finds the file as long as this one has made it.
            let end = self.len + len as u64;
            // To try would end the process.
            if getrlimit(Resource::Fsize).current.is_some_and(|most| most < end) {
                return None;
            }
            if self.file.metadata().ok()?.len() < end {
                self.file.set_len(end).ok()?;
            }
            self.map(len).ok()
        })
    }

    /// Maps the next bytes of the file.
    fn map(&mut self, len: usize) -> io::Result<()> {
        let address = map_shared(&self.file, self.len, len)?;
        self.segments.insert(address, Segment { len, first: self.len / CHUNK_LEN as u64 });
        (address..address + len).step_by(SLAB_LEN).for_each(|slab| self.unused.add(slab));
        self.len += len as u64;
        Ok(())
    }
}

fn allocate(file: &File, flags: FallocateFlags, offset: u64, len: u64) -> rustix::io::Result<()> {
    retry_on_intr(|| fallocate(file, flags, offset, len))
}
