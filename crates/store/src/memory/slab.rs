//! Memory for the chunks of memory stores, mapped in slabs of the length of a huge page.
//!
//! Blocks that are read at random seldom hit the processor's TLB. With pages of 2 MiB instead of 4 KiB, a read of 4 KiB
//! takes a tenth to a fifth less of the target's CPU time (`docs/measurements/2026-11-22-huge-pages.md`).
//!
//! A slab of which some memory was given back is advised to use small pages until all its places are in use again.
//! Otherwise the kernel's background task would make it one huge page again, and so allocate memory for the unused
//! places.
//!
//! Chunks that another process can take on lie in slabs of a file instead (`shared.rs`), under the same rules.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lunette_buffer::address_space;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::bypass;
use super::left::LeftMemoryError;
use super::shared::{Backing, SharedFile};

/// Bytes of a chunk.
pub(super) const CHUNK_LEN: usize = 64 << 10;

/// Bytes of a slab: the usual length of a huge page. Slabs are aligned to their length.
pub(super) const SLAB_LEN: usize = 2 << 20;

/// A bit mask of the places of a slab; the lowest bit is the first chunk.
type SlotMask = u32;
const _: () = assert!(SLAB_LEN == CHUNK_LEN * SlotMask::BITS as usize);

/// Number of dropped chunks that keep their memory: giving memory back splits a huge page. A write to a chunk that a
/// read holds needs a chunk, and soon drops one.
const MAX_KEPT: usize = 64;

/// The unowned places in the slabs of the process.
static SLABS: Mutex<Slabs> = Mutex::new(Slabs { anonymous: Unused(BTreeMap::new()), kept: Vec::new(), shared: None });

pub(super) struct Slabs {
    /// The unowned places without memory in slabs that belong to this process alone.
    anonymous: Unused,
    /// Addresses of places that still hold the bytes of their last owner.
    kept: Vec<usize>,
    /// The memory that another process can take on.
    pub(super) shared: Option<SharedFile>,
}

/// A place that was taken.
struct Place {
    address: usize,
    /// Where its memory has yet to come from, if the system does not give it by itself.
    backing: Option<Backing>,
}

impl Slabs {
    pub(super) fn lock() -> MutexGuard<'static, Self> {
        SLABS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place that reads as zero. `None` when the system has no memory for another slab.
    fn take(&mut self) -> Option<Place> {
        // Without more of it a write goes on elsewhere, and the handover fails instead.
        if let Some((address, backing)) = self.shared.as_mut().and_then(SharedFile::take) {
            return Some(Place { address, backing: Some(backing) });
        }
        if self.anonymous.is_empty() {
            self.anonymous.add(map_slab()?);
        }
        self.anonymous.take().map(|address| Place { address, backing: None })
    }

    /// Returns a place without memory. Returns the address of its slab when it is not needed any more.
    fn put(&mut self, address: usize) -> Option<usize> {
        match self.shared_at(address) {
            Some(shared) => {
                shared.put(address);
                None
            }
            None => self.anonymous.put(address).inspect(|slab| self.anonymous.remove(*slab)),
        }
    }

    fn shared_at(&mut self, address: usize) -> Option<&mut SharedFile> {
        self.shared.as_mut().filter(|shared| shared.place_at(address).is_some())
    }

    /// Keeps the memory of a dropped chunk for the next one, if there is a use for it.
    fn keep(&mut self, address: usize) -> bool {
        let is_of_use = match &self.shared {
            Some(shared) if shared.place_at(address).is_some() => shared.is_ours(),
            Some(shared) => !shared.has_all(),
            None => true,
        };
        let keeps = is_of_use && self.kept.len() < MAX_KEPT;
        if keeps {
            self.kept.push(address);
        }
        keeps
    }

    /// Drops the places that were kept, by the rules that hold now.
    pub(super) fn drop_kept(mut slabs: MutexGuard<'static, Self>) {
        let kept = std::mem::take(&mut slabs.kept);
        drop(slabs);
        kept.into_iter().map(Memory::at).for_each(drop);
    }
}

/// The unowned places of some slabs. They have no memory and read as zero.
///
/// A slab without such places has no entry.
#[derive(Debug)]
pub(super) struct Unused(BTreeMap<usize, SlotMask>);

impl Unused {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds all places of a slab.
    pub(super) fn add(&mut self, slab: usize) {
        self.0.insert(slab, SlotMask::MAX);
    }

    /// Leaves a slab out from now on.
    pub(super) fn remove(&mut self, slab: usize) {
        self.0.remove(&slab);
    }

    /// Takes the first place, so that the last slabs become empty.
    pub(super) fn take(&mut self) -> Option<usize> {
        let (slab, places) = self.0.first_key_value()?;
        let address = slab + places.trailing_zeros() as usize * CHUNK_LEN;
        self.claim(address).then_some(address)
    }

    /// Takes the place at this address. False when it has an owner.
    pub(super) fn claim(&mut self, address: usize) -> bool {
        let (slab, place) = slot(address);
        let Some(places) = self.0.get_mut(&slab) else { return false };
        let was_unused = *places & place != 0;
        *places &= !place;
        if *places == 0 {
            self.0.remove(&slab);
            want_huge(slab, true);
        }
        was_unused
    }

    /// Returns a place. Returns the address of its slab when none of its places is in use.
    pub(super) fn put(&mut self, address: usize) -> Option<usize> {
        let (slab, place) = slot(address);
        let places = self.0.entry(slab).or_default();
        if *places == 0 {
            want_huge(slab, false);
        }
        *places |= place;
        (*places == SlotMask::MAX).then_some(slab)
    }

    /// The addresses of all places, in their order.
    pub(super) fn addresses(&self) -> impl Iterator<Item = usize> {
        self.0.iter().flat_map(|(slab, places)| {
            let unused = (0..SlotMask::BITS).filter(move |place| places & (1 << place) != 0);
            unused.map(move |place| slab + place as usize * CHUNK_LEN)
        })
    }
}

/// The slab of an address, and the place in it.
fn slot(address: usize) -> (usize, SlotMask) {
    let slab = slab_of(address);
    (slab, 1 << ((address - slab) / CHUNK_LEN))
}

/// The slab of an address.
pub(super) fn slab_of(address: usize) -> usize {
    address & !(SLAB_LEN - 1)
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
        let place = Slabs::lock().take()?;
        Self::on(place)
    }

    /// A chunk with the bytes of `from`, which has the length of a chunk, if the system has memory for it.
    pub(super) fn copy_of(from: &[u8]) -> Option<Self> {
        let mut slabs = Slabs::lock();
        let kept = slabs.kept.pop().map(|address| Place { address, backing: None });
        let place = kept.or_else(|| slabs.take())?;
        drop(slabs);
        let mut memory = Self::on(place)?;
        bypass::copy(&mut memory, from);
        Some(memory)
    }

    /// The chunk that another process has left at this place.
    pub(super) fn left(place: u64) -> Result<Self, LeftMemoryError> {
        let mut slabs = Slabs::lock();
        let shared = slabs.shared.as_mut().ok_or(LeftMemoryError::NotShared)?;
        shared.claim(place).map(Self::at)
    }

    /// The number of its place in the memory that another process can take on.
    pub(super) fn place(&self) -> Option<u64> {
        Slabs::lock().shared.as_ref()?.place_at(self.address())
    }

    /// The owner of a place that was taken.
    fn on(place: Place) -> Option<Self> {
        if place.backing.is_some_and(|backing| !backing.allocate()) {
            Slabs::lock().put(place.address);
            return None;
        }
        Some(Self::at(place.address))
    }

    fn address(&self) -> usize {
        self.0.as_ptr().expose_provenance()
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
        let address = self.address();
        let mut slabs = Slabs::lock();
        if slabs.keep(address) {
            return;
        }
        if let Some(shared) = slabs.shared_at(address) {
            // Under the lock: once the memory is left to another process, nothing of it is given back.
            if shared.is_ours() {
                give_back(self, Advice::LinuxRemove);
            }
            shared.put(address);
            return;
        }
        drop(slabs);
        give_back(self, Advice::LinuxDontNeed);
        let empty = Slabs::lock().put(address);
        if let Some(slab) = empty {
            // SAFETY: the slab was mapped with this length, none of its places has an owner, and it was taken off the
            // list.
            let unmapped = unsafe { unmap(slab, SLAB_LEN) };
            if !unmapped {
                Slabs::lock().anonymous.add(slab);
            }
        }
    }
}

/// Zeroes all bytes and gives their pages back to the system, by the advice that does so for their mapping.
fn give_back(memory: &mut Memory, advice: Advice) {
    // SAFETY: all bytes are owned; they read as zero from now on, which is a valid value.
    let given = unsafe { madvise(memory.0.as_ptr().cast(), CHUNK_LEN, advice) };
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

/// Maps a part of a file that is shared with other processes, at the address of a slab. The part is a whole number of
/// slabs, and the file may not become shorter.
pub(super) fn map_shared(file: &File, offset: u64, len: usize) -> io::Result<usize> {
    // That much contains an aligned range.
    let room = len.checked_add(SLAB_LEN).ok_or(io::ErrorKind::OutOfMemory)?;
    let start = address_space::claim(room, || map(room)).ok_or(io::ErrorKind::OutOfMemory)?;
    let aligned = start.next_multiple_of(SLAB_LEN);
    let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the range was mapped here and is not in use, so another mapping may replace it.
    let mapped = unsafe { mmap(with_exposed_provenance_mut(aligned), len, access, flags, file, offset) };
    // SAFETY: none of the ranges is in use. Without the new mapping that is all.
    unsafe {
        unmap(start, aligned - start);
        unmap(aligned + len, start + room - (aligned + len));
        if mapped.is_err() {
            unmap(aligned, len);
        }
    }
    Ok(mapped.map(<*mut _>::expose_provenance)?)
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
    fn unused(slabs: &Unused, slab: usize) -> Option<u32> {
        slabs.0.get(&slab).map(|places| places.count_ones())
    }

    #[test]
    fn places_are_taken_once_and_an_unused_slab_is_returned() {
        let slab = map_slab().unwrap();
        let mut slabs = Unused(BTreeMap::from([(slab, SlotMask::MAX)]));
        let taken: Vec<usize> = (0..SlotMask::BITS).map(|_| slabs.take().unwrap()).collect();
        assert!(taken.iter().enumerate().all(|(at, address)| *address == slab + at * CHUNK_LEN));
        assert_eq!(unused(&slabs, slab), None, "a full slab is not in the list");
        assert_eq!(slabs.put(taken[5]), None);
        assert_eq!(slabs.put(taken[3]), None);
        assert_eq!(unused(&slabs, slab), Some(2));
        assert_eq!([slabs.take(), slabs.take()].map(Option::unwrap), [taken[3], taken[5]]);
        let told: Vec<usize> = taken.iter().filter_map(|address| slabs.put(*address)).collect();
        assert_eq!((told, unused(&slabs, slab)), (vec![slab], Some(SlotMask::BITS)));
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
        let mut slabs = Unused(BTreeMap::from([(slab, SlotMask::MAX)]));
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
