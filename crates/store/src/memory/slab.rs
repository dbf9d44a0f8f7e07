//! Memory for the chunks of a store, from the system in slabs as long as a huge page.
//!
//! Blocks that are read at random are seldom where the processor's tables of pages remember them. With pages of 2 MiB instead of
//! 4 KiB a read of 4 KiB takes a tenth to a fifth less of the target's CPU time (`docs/measurements/2026-11-22-huge-pages.md`).
//!
//! A slab with places that were given back asks for small pages until all are in use again: else the system's background task
//! would make it one huge page again, and so take the memory for what is unused.
#![allow(unsafe_code)]

use std::alloc::{Layout, handle_alloc_error};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a chunk.
pub(super) const CHUNK_LEN: usize = 64 << 10;

/// Bytes that are taken from the system together: the usual length of a huge page. A slab starts on a multiple of it.
const SLAB_LEN: usize = 2 << 20;

/// A bit for each place of a slab, the first chunk's is the lowest.
type Places = u32;
const _: () = assert!(SLAB_LEN == CHUNK_LEN * Places::BITS as usize);

/// Chunks that keep their memory when they are dropped: giving it back takes a huge page apart. A write to a chunk that a read
/// holds needs one and soon drops one.
const MAX_KEPT: usize = 64;

/// What nobody has, of the slabs of the whole process.
static SLABS: Mutex<Slabs> = Mutex::new(Slabs { unused: BTreeMap::new(), kept: Vec::new() });

struct Slabs {
    /// By the address of the slab, its places without an owner and without memory: they read as zero. A slab without such places
    /// is not here.
    unused: BTreeMap<usize, Places>,
    /// Addresses of places with the bytes of their last owner.
    kept: Vec<usize>,
}

impl Slabs {
    fn lock() -> MutexGuard<'static, Self> {
        SLABS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place that reads as zero, the first there is: so slabs at the end become empty.
    fn take(&mut self) -> usize {
        let Some(mut entry) = self.unused.first_entry() else {
            self.unused.insert(map_slab(), Places::MAX);
            return self.take();
        };
        let place = entry.get().trailing_zeros();
        *entry.get_mut() &= !(1 << place);
        let slab = *entry.key();
        if *entry.get() == 0 {
            entry.remove();
            want_huge(slab, true);
        }
        slab + place as usize * CHUNK_LEN
    }

    /// Takes back a place whose memory is given back. The slab's address when none of its places is left in use.
    fn put(&mut self, address: usize) -> Option<usize> {
        let slab = address & !(SLAB_LEN - 1);
        let places = self.unused.entry(slab).or_default();
        if *places == 0 {
            want_huge(slab, false);
        }
        *places |= 1 << ((address - slab) / CHUNK_LEN);
        (*places == Places::MAX).then(|| self.unused.remove(&slab)).map(|_| slab)
    }
}

/// The memory of one chunk: [`CHUNK_LEN`] bytes.
#[derive(Debug)]
pub(super) struct Memory(NonNull<u8>);

// SAFETY: it is the only owner of its bytes.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference they are only read.
unsafe impl Sync for Memory {}

impl Memory {
    /// All zero.
    pub(super) fn zeroed() -> Self {
        Self::at(Slabs::lock().take())
    }

    /// With the bytes of `from`, which has as many.
    pub(super) fn copy_of(from: &[u8]) -> Self {
        let mut slabs = Slabs::lock();
        let address = slabs.kept.pop().unwrap_or_else(|| slabs.take());
        drop(slabs);
        let mut memory = Self::at(address);
        memory.copy_from_slice(from);
        memory
    }

    /// The owner of a place that has none.
    fn at(address: usize) -> Self {
        Self(NonNull::new(with_exposed_provenance_mut(address)).expect("nothing is mapped at address 0"))
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are mapped and initialised as long as they are owned here, and nobody else writes to them.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), CHUNK_LEN) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else reads them either.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), CHUNK_LEN) }
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        Self::copy_of(self)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let address = self.0.as_ptr().expose_provenance();
        let mut slabs = Slabs::lock();
        if slabs.kept.len() < MAX_KEPT {
            slabs.kept.push(address);
            return;
        }
        drop(slabs);
        give_back(self);
        let empty = Slabs::lock().put(address);
        if let Some(slab) = empty {
            // SAFETY: the slab was mapped with this length, none of its places has an owner, and it was taken off the list.
            let unmapped = unsafe { unmap(slab, SLAB_LEN) };
            if !unmapped {
                Slabs::lock().unused.insert(slab, Places::MAX);
            }
        }
    }
}

/// Makes all bytes zero, and leaves the pages to the system.
fn give_back(memory: &mut Memory) {
    // SAFETY: all bytes are owned; they read as zero from now on, which is a value of theirs.
    let given = unsafe { madvise(memory.0.as_ptr().cast(), CHUNK_LEN, Advice::LinuxDontNeed) };
    if given.is_err() {
        // The system keeps memory that is locked.
        memory.fill(0);
    }
}

/// Maps a slab of zeroes and gives its address.
///
/// Slabs lie side by side where that is possible: then they are one mapping, and a process may have only some ten thousand
/// (`vm.max_map_count`).
fn map_slab() -> usize {
    let near = map(SLAB_LEN);
    let slab = if near.is_multiple_of(SLAB_LEN) { near } else { replace_by_aligned(near) };
    want_huge(slab, true);
    slab
}

/// Says whether a slab shall have huge pages. Without an answer: a system without any refuses, and so does one with too many
/// mappings.
fn want_huge(slab: usize, is_wanted: bool) {
    let advice = if is_wanted { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: how large pages are changes none of their bytes.
    let _ = unsafe { madvise(with_exposed_provenance_mut(slab), SLAB_LEN, advice) };
}

/// A slab for one that does not start where it must.
fn replace_by_aligned(crooked: usize) -> usize {
    // Twice as long, for there is a place in it where a slab may start. The last: systems map downwards.
    let len = 2 * SLAB_LEN;
    // SAFETY: it was just mapped, and nobody else knows of it.
    unsafe { unmap(crooked, SLAB_LEN) };
    let start = map(len);
    let slab = (start + SLAB_LEN) & !(SLAB_LEN - 1);
    // SAFETY: what is before and behind the slab was mapped here and nobody knows of it.
    unsafe {
        unmap(start, slab - start);
        unmap(slab + SLAB_LEN, start + len - (slab + SLAB_LEN));
    }
    slab
}

/// Maps zeroes at a place that the system chooses.
fn map(len: usize) -> usize {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping changes none that is there.
    let mapped = unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
    mapped.unwrap_or_else(|_| handle_alloc_error(Layout::new::<[u8; SLAB_LEN]>())).expose_provenance()
}

/// Gives whole pages back to the system. False when it does not take them: the process has too many mappings for a hole in one.
/// Then they stay as they are.
///
/// # Safety
///
/// Nobody uses them, now or, unless they stay, later.
unsafe fn unmap(start: usize, len: usize) -> bool {
    // SAFETY: the caller's promise.
    len == 0 || unsafe { munmap(with_exposed_provenance_mut(start), len) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unused places of the slab of an address, as `put` and `take` leave them.
    fn unused(slabs: &Slabs, slab: usize) -> Option<u32> {
        slabs.unused.get(&slab).map(|places| places.count_ones())
    }

    #[test]
    fn places_are_taken_once_and_a_slab_without_users_is_told() {
        let slab = map_slab();
        let mut slabs = Slabs { unused: BTreeMap::from([(slab, Places::MAX)]), kept: Vec::new() };
        let taken: Vec<usize> = (0..Places::BITS).map(|_| slabs.take()).collect();
        assert!(taken.iter().enumerate().all(|(at, address)| *address == slab + at * CHUNK_LEN));
        assert_eq!(unused(&slabs, slab), None, "a full slab is not in the list");
        assert_eq!(slabs.put(taken[5]), None);
        assert_eq!(slabs.put(taken[3]), None);
        assert_eq!(unused(&slabs, slab), Some(2));
        assert_eq!([slabs.take(), slabs.take()], [taken[3], taken[5]]);
        let told: Vec<usize> = taken.iter().filter_map(|address| slabs.put(*address)).collect();
        assert_eq!((told, unused(&slabs, slab)), (vec![slab], None));
    }

    /// Whether the system makes huge pages of the memory at an address.
    fn is_huge(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_inside = false;
        for line in maps.lines() {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let range = range.map(|(start, end)| [start, end].map(|text| usize::from_str_radix(text, 16)));
            if let Some([Ok(start), Ok(end)]) = range {
                is_inside = (start..end).contains(&address);
            } else if is_inside && line.starts_with("VmFlags:") {
                return line.split(' ').any(|flag| flag == "hg");
            }
        }
        false
    }

    #[test]
    fn a_slab_with_memory_given_back_is_not_made_whole_again() {
        let slab = map_slab();
        if !is_huge(slab) {
            return;
        }
        let mut slabs = Slabs { unused: BTreeMap::from([(slab, Places::MAX)]), kept: Vec::new() };
        let taken: Vec<usize> = (0..Places::BITS).map(|_| slabs.take()).collect();
        assert!(is_huge(slab));
        slabs.put(taken[3]);
        assert!(!is_huge(slab));
        slabs.take();
        assert!(is_huge(slab));
    }

    #[test]
    fn chunks_are_zero_whatever_their_place_held_before() {
        for _ in 0..3 {
            let mut chunks: Vec<Memory> = (0..3 * MAX_KEPT).map(|_| Memory::zeroed()).collect();
            for chunk in &mut chunks {
                assert!(chunk.iter().all(|byte| *byte == 0));
                chunk.fill(0xA5);
            }
        }
    }

    #[test]
    fn slabs_lie_side_by_side() {
        let slabs: Vec<usize> = (0..32).map(|_| map_slab()).collect();
        assert!(slabs.iter().all(|slab| slab.is_multiple_of(SLAB_LEN)));
        let alone = slabs.iter().filter(|slab| !slabs.contains(&(*slab + SLAB_LEN))).count();
        for slab in &slabs {
            // SAFETY: nobody else knows of it.
            assert!(unsafe { unmap(*slab, SLAB_LEN) });
        }
        // Other tests map something, too.
        assert!(alone < slabs.len() / 2, "{alone} without a neighbour");
    }

    #[test]
    fn a_copy_has_its_own_bytes() {
        let mut first = Memory::zeroed();
        first[..4].copy_from_slice(b"abcd");
        let mut second = first.clone();
        second[0] = b'x';
        assert_eq!((&first[..4], &second[..4], second.len()), (&b"abcd"[..], &b"xbcd"[..], CHUNK_LEN));
    }

    #[test]
    fn chunks_are_given_and_taken_by_several_threads() {
        std::thread::scope(|scope| {
            for fill in 1..5 {
                scope.spawn(move || {
                    for _ in 0..50 {
                        let mut chunks: Vec<Memory> = (0..50).map(|_| Memory::zeroed()).collect();
                        for chunk in &mut chunks {
                            chunk[CHUNK_LEN - 1] = fill;
                        }
                        let copies = chunks.clone();
                        assert!(copies.iter().all(|chunk| chunk[0] == 0 && chunk[CHUNK_LEN - 1] == fill));
                    }
                });
            }
        });
    }
}
