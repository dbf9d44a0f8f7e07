//! Memory for the chunks of memory stores, mapped in slabs of the length of a huge page.
//!
//! Blocks that are read at random seldom hit the processor's TLB. With pages of 2 MiB instead of 4 KiB, a read of 4 KiB
//! takes a tenth to a fifth less of the target's CPU time (`docs/measurements/2026-11-22-huge-pages.md`).
//!
//! A slab of which some memory was given back is advised to use small pages until all its places are in use again.
//! Otherwise the kernel's background task would make it one huge page again, and so allocate memory for the unused
//! places.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lunette_buffer::address_space;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::bypass;

/// Bytes of a chunk.
pub(super) const CHUNK_LEN: usize = 64 << 10;

/// Bytes of a slab: the usual length of a huge page. Slabs are aligned to their length.
const SLAB_LEN: usize = 2 << 20;

/// A bit mask of the places of a slab; the lowest bit is the first chunk.
type SlotMask = u32;
const _: () = assert!(SLAB_LEN == CHUNK_LEN * SlotMask::BITS as usize);

/// Number of dropped chunks that keep their memory: giving memory back splits a huge page. A write to a chunk that a
/// read holds needs a chunk, and soon drops one.
const MAX_KEPT: usize = 64;

/// The unowned places in the slabs of the process.
static SLABS: Mutex<Slabs> = Mutex::new(Slabs { unused: BTreeMap::new(), kept: Vec::new() });

struct Slabs {
    /// For each slab address, the places without an owner and without memory, which read as zero. A slab without such
    /// places has no entry.
    unused: BTreeMap<usize, SlotMask>,
    /// Addresses of places that still hold the bytes of their last owner.
    kept: Vec<usize>,
}

impl Slabs {
    fn lock() -> MutexGuard<'static, Self> {
        SLABS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place that reads as zero: the first one, so that the last slabs become empty. `None` when the system has
    /// no memory for another slab.
    fn take(&mut self) -> Option<usize> {
        if self.unused.is_empty() {
            self.unused.insert(map_slab()?, SlotMask::MAX);
        }
        let mut entry = self.unused.first_entry()?;
        let place = entry.get().trailing_zeros();
        *entry.get_mut() &= !(1 << place);
        let slab = *entry.key();
        if *entry.get() == 0 {
            entry.remove();
            want_huge(slab, true);
        }
        Some(slab + place as usize * CHUNK_LEN)
    }

    /// Returns a place whose memory was given back. Returns the address of its slab when none of its places is in use.
    fn put(&mut self, address: usize) -> Option<usize> {
        let slab = address & !(SLAB_LEN - 1);
        let places = self.unused.entry(slab).or_default();
        if *places == 0 {
            want_huge(slab, false);
        }
        *places |= 1 << ((address - slab) / CHUNK_LEN);
        (*places == SlotMask::MAX).then(|| self.unused.remove(&slab)).map(|_| slab)
    }
}

/// The memory of one chunk: [`CHUNK_LEN`] bytes.
#[derive(Debug)]
pub(super) struct Memory(NonNull<u8>);

// SAFETY: `Memory` is the only owner of its bytes.
unsafe impl Send for Memory {}
// SAFETY: the bytes are only read through a shared reference.
unsafe impl Sync for Memory {}

impl Memory {
    /// A chunk of zeroes, if the system has memory for it.
    pub(super) fn zeroed() -> Option<Self> {
        Slabs::lock().take().map(Self::at)
    }

    /// A chunk with the bytes of `from`, which has the length of a chunk, if the system has memory for it.
    pub(super) fn copy_of(from: &[u8]) -> Option<Self> {
        let mut slabs = Slabs::lock();
        let address = slabs.kept.pop().or_else(|| slabs.take())?;
        drop(slabs);
        let mut memory = Self::at(address);
        bypass::copy(&mut memory, from);
        Some(memory)
    }

    /// The owner of the place at `address`, which has no other owner.
    fn at(address: usize) -> Self {
        Self(NonNull::new(with_exposed_provenance_mut(address)).expect("nothing is mapped at address 0"))
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are mapped and initialised as long as they are owned here, and `&self` excludes writes to
        // them.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), CHUNK_LEN) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` excludes other reads too.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), CHUNK_LEN) }
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        self
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
            // SAFETY: the slab was mapped with this length, none of its places has an owner, and it was taken off the
            // list.
            let unmapped = unsafe { unmap(slab, SLAB_LEN) };
            if !unmapped {
                Slabs::lock().unused.insert(slab, SlotMask::MAX);
            }
        }
    }
}

/// Zeroes all bytes and gives their pages back to the system.
fn give_back(memory: &mut Memory) {
    // SAFETY: all bytes are owned; they read as zero from now on, which is a valid value.
    let given = unsafe { madvise(memory.0.as_ptr().cast(), CHUNK_LEN, Advice::LinuxDontNeed) };
    if given.is_err() {
        // The system does not take locked memory.
        memory.fill(0);
    }
}

/// Maps a slab of zeroes and returns its address.
///
/// Slabs are adjacent where possible: adjacent slabs are one mapping, and a process may have only some tens of
/// thousands (`vm.max_map_count`).
fn map_slab() -> Option<usize> {
    // To align one takes three.
    let slab = address_space::claim(3 * SLAB_LEN, || {
        let near = map(SLAB_LEN)?;
        if near.is_multiple_of(SLAB_LEN) { Some(near) } else { replace_by_aligned(near) }
    })?;
    want_huge(slab, true);
    Some(slab)
}

/// Advises the system whether to use huge pages for a slab. Failures are ignored: a system without huge pages refuses,
/// and so does one with too many mappings.
fn want_huge(slab: usize, is_wanted: bool) {
    let advice = if is_wanted { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: the page size does not change the bytes.
    let _ = unsafe { madvise(with_exposed_provenance_mut(slab), SLAB_LEN, advice) };
}

/// Replaces an unaligned mapping by an aligned slab.
fn replace_by_aligned(crooked: usize) -> Option<usize> {
    // Twice the length contains an aligned slab. The last one is used, because systems map downwards.
    let len = 2 * SLAB_LEN;
    // SAFETY: the range was just mapped and is not in use.
    unsafe { unmap(crooked, SLAB_LEN) };
    let start = map(len)?;
    let slab = (start + SLAB_LEN) & !(SLAB_LEN - 1);
    // SAFETY: the ranges before and after the slab were mapped here and are not in use.
    unsafe {
        unmap(start, slab - start);
        unmap(slab + SLAB_LEN, start + len - (slab + SLAB_LEN));
    }
    Some(slab)
}

/// Maps zeroes at an address that the system chooses.
fn map(len: usize) -> Option<usize> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping changes no existing one.
    let mapped = unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
    mapped.ok().map(<*mut _>::expose_provenance)
}

/// Gives whole pages back to the system. False when the system refuses, because the process has too many mappings to
/// split one. The pages stay mapped then.
///
/// # Safety
///
/// The pages are not in use. Unless they stay mapped, they are never used again.
unsafe fn unmap(start: usize, len: usize) -> bool {
    // SAFETY: the caller's promise.
    len == 0 || unsafe { munmap(with_exposed_provenance_mut(start), len) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of unused places in a slab, as `put` and `take` leave them.
    fn unused(slabs: &Slabs, slab: usize) -> Option<u32> {
        slabs.unused.get(&slab).map(|places| places.count_ones())
    }

    #[test]
    fn places_are_taken_once_and_an_unused_slab_is_returned() {
        let slab = map_slab().unwrap();
        let mut slabs = Slabs { unused: BTreeMap::from([(slab, SlotMask::MAX)]), kept: Vec::new() };
        let taken: Vec<usize> = (0..SlotMask::BITS).map(|_| slabs.take().unwrap()).collect();
        assert!(taken.iter().enumerate().all(|(at, address)| *address == slab + at * CHUNK_LEN));
        assert_eq!(unused(&slabs, slab), None, "a full slab is not in the list");
        assert_eq!(slabs.put(taken[5]), None);
        assert_eq!(slabs.put(taken[3]), None);
        assert_eq!(unused(&slabs, slab), Some(2));
        assert_eq!([slabs.take(), slabs.take()].map(Option::unwrap), [taken[3], taken[5]]);
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
    fn a_slab_with_unused_places_does_not_ask_for_huge_pages() {
        let slab = map_slab().unwrap();
        if !is_huge(slab) {
            return;
        }
        let mut slabs = Slabs { unused: BTreeMap::from([(slab, SlotMask::MAX)]), kept: Vec::new() };
        let taken: Vec<usize> = (0..SlotMask::BITS).map(|_| slabs.take().unwrap()).collect();
        assert!(is_huge(slab));
        slabs.put(taken[3]);
        assert!(!is_huge(slab));
        slabs.take();
        assert!(is_huge(slab));
    }

    #[test]
    fn chunks_are_zero_whatever_their_place_held_before() {
        for _ in 0..3 {
            let mut chunks: Vec<Memory> = (0..3 * MAX_KEPT).map(|_| Memory::zeroed().unwrap()).collect();
            for chunk in &mut chunks {
                assert!(chunk.iter().all(|byte| *byte == 0));
                chunk.fill(0xA5);
            }
        }
    }

    #[test]
    fn slabs_lie_side_by_side() {
        let slabs: Vec<usize> = (0..32).map(|_| map_slab().unwrap()).collect();
        assert!(slabs.iter().all(|slab| slab.is_multiple_of(SLAB_LEN)));
        let alone = slabs.iter().filter(|slab| !slabs.contains(&(*slab + SLAB_LEN))).count();
        for slab in &slabs {
            // SAFETY: the slab was mapped here and is not in use.
            assert!(unsafe { unmap(*slab, SLAB_LEN) });
        }
        // Other tests map memory too.
        assert!(alone < slabs.len() / 2, "{alone} without a neighbour");
    }

    #[test]
    fn a_copy_has_its_own_bytes() {
        let mut first = Memory::zeroed().unwrap();
        first[..4].copy_from_slice(b"abcd");
        let mut second = Memory::copy_of(&first).unwrap();
        second[0] = b'x';
        assert_eq!((&first[..4], &second[..4], second.len()), (&b"abcd"[..], &b"xbcd"[..], CHUNK_LEN));
    }

    #[test]
    fn chunks_are_given_and_taken_by_several_threads() {
        std::thread::scope(|scope| {
            for fill in 1..5 {
                scope.spawn(move || {
                    for _ in 0..50 {
                        let mut chunks: Vec<Memory> = (0..50).map(|_| Memory::zeroed().unwrap()).collect();
                        for chunk in &mut chunks {
                            chunk[CHUNK_LEN - 1] = fill;
                        }
                        let copies: Vec<_> = chunks.iter().map(|chunk| Memory::copy_of(chunk).unwrap()).collect();
                        assert!(copies.iter().all(|chunk| chunk[0] == 0 && chunk[CHUNK_LEN - 1] == fill));
                    }
                });
            }
        });
    }
}
