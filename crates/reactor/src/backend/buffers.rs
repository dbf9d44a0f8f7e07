//! Buffers that a ring receives into, chosen by the system when bytes are there: an idle connection holds none.
#![expect(unsafe_code, reason = "memory that is shared with the system")]

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

/// Length of one buffer: the most that one receive brings.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;
/// Buffers of one reactor; a power of two, as the system demands.
pub(crate) const BUFFERS: u16 = 16;

const PAGE: usize = 4096;
/// The entries come first, in pages of their own.
const ENTRIES_BYTES: usize = PAGE;
const LAYOUT: Layout = match Layout::from_size_align(ENTRIES_BYTES + BUFFERS as usize * BUFFER_BYTES, PAGE) {
    Ok(layout) => layout,
    Err(_) => panic!("a small size and a power of two"),
};
const _: () = assert!(BUFFERS.is_power_of_two() && BUFFERS as usize * size_of::<BufRingEntry>() <= ENTRIES_BYTES);

/// Bytes in a buffer that belongs to us until it is given back.
#[derive(Debug)]
pub(crate) struct Chunk {
    buffer: u16,
    len: usize,
}

impl Chunk {
    /// Takes the buffer that a completion names: the system filled `len` bytes of `buffer`. `None` when that cannot be.
    ///
    /// # Safety
    ///
    /// The completion is of a receive on the ring that these buffers are registered with, and no other chunk was made
    /// of it.
    pub(super) unsafe fn new(buffer: u16, len: usize) -> Option<Self> {
        (buffer < BUFFERS && len <= BUFFER_BYTES).then_some(Self { buffer, len })
    }
}

/// The memory alone. [`Buffers`] and the system decide which of them may touch which part of it.
pub(super) struct Memory(NonNull<u8>);

// SAFETY: it is a plain allocation, and offers nothing but its address.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Where the entries begin: what is registered with a ring.
    pub(super) fn entries(&self) -> *mut BufRingEntry {
        self.0.as_ptr().cast()
    }

    fn buffer(&self, index: u16) -> *mut u8 {
        debug_assert!(index < BUFFERS);
        // SAFETY: all buffers lie behind the entries, inside of the allocation.
        unsafe { self.0.as_ptr().add(ENTRIES_BYTES + usize::from(index) * BUFFER_BYTES) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout. A ring that knows of it holds it too, so that ring is gone.
        unsafe { alloc::dealloc(self.0.as_ptr(), LAYOUT) }
    }
}

/// The buffers of one ring.
pub(crate) struct Buffers {
    memory: Arc<Memory>,
    tail: u16,
}

impl Buffers {
    pub(super) fn new() -> Self {
        // SAFETY: the layout is not empty.
        let Some(start) = NonNull::new(unsafe { alloc::alloc_zeroed(LAYOUT) }) else {
            alloc::handle_alloc_error(LAYOUT)
        };
        let mut buffers = Self { memory: Arc::new(Memory(start)), tail: 0 };
        for buffer in 0..BUFFERS {
            buffers.give_back(Chunk { buffer, len: 0 });
        }
        buffers
    }

    pub(super) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    /// The bytes that were received.
    pub(crate) fn bytes(&self, chunk: &Chunk) -> &[u8] {
        // SAFETY: the buffer is inside of the allocation, initialized, and not the system's while the chunk exists.
        unsafe { std::slice::from_raw_parts(self.memory.buffer(chunk.buffer), chunk.len) }
    }

    /// Lets the system receive into it again.
    #[expect(clippy::needless_pass_by_value, reason = "who gives it back has it no longer")]
    pub(crate) fn give_back(&mut self, chunk: Chunk) {
        let place = usize::from(self.tail & (BUFFERS - 1));
        // SAFETY: `place` is inside of the entries, which only we write. The system reads entries up to the tail, and
        // this one is at it: there are as many entries as buffers.
        let entry = unsafe { &mut *self.memory.entries().add(place) };
        entry.set_addr(self.memory.buffer(chunk.buffer) as u64);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(chunk.buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the first entry is initialized; its unused field is the ring's tail, aligned to two bytes and shared
        // with the system as an atomic.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.memory.entries()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_lie_apart_and_inside() {
        let buffers = Buffers::new();
        let end = buffers.memory.entries() as usize + LAYOUT.size();
        for index in 0..BUFFERS {
            let start = buffers.memory.buffer(index) as usize;
            assert!(start.is_multiple_of(PAGE) && start + BUFFER_BYTES <= end);
            assert!(start >= buffers.memory.entries() as usize + ENTRIES_BYTES);
        }
    }

    #[test]
    fn a_completion_out_of_bounds_is_no_chunk() {
        // SAFETY: there is no ring.
        unsafe {
            assert!(Chunk::new(BUFFERS, 1).is_none());
            assert!(Chunk::new(0, BUFFER_BYTES + 1).is_none());
        }
    }
}
