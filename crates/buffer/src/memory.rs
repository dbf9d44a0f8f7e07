//! Pooled memory: pieces in size classes, and the references that bring them back.

use std::sync::Arc;

use crate::Pool;

/// Buffers start on a multiple of this many bytes, as direct I/O requires.
pub const PAGE_LEN: usize = 4096;

/// The longest buffer that a pool gives out: the largest single transfer that a device accepts.
pub const MAX_BUFFER_LEN: usize = 16 << 20;

/// Size classes: one for each power of two from a page to the longest buffer.
pub(crate) const CLASSES: usize = (MAX_BUFFER_LEN / PAGE_LEN).ilog2() as usize + 1;

/// The size class of a buffer of `len` bytes.
#[inline]
pub(crate) fn class_of(len: usize) -> usize {
    len.div_ceil(PAGE_LEN).max(1).next_power_of_two().ilog2() as usize
}

/// Bytes of memory in a size class.
#[inline]
pub(crate) fn class_len(class: usize) -> usize {
    PAGE_LEN << class
}

/// One aligned piece of memory. It belongs to a handle or lies in the free list of its class.
pub(crate) struct Memory {
    bytes: Vec<u8>,
    start: usize,
    pub(crate) class: usize,
    /// Set while a handle owns the memory. Idle memory has none, or pool and memory would keep each other alive.
    pool: Option<Pool>,
}

impl Memory {
    #[inline]
    pub(crate) fn new(class: usize) -> Self {
        Self::of(vec![0; class_len(class) + PAGE_LEN], class)
    }

    /// Like [`new`](Self::new), but `None` where the system has no memory.
    pub(crate) fn try_new(class: usize) -> Option<Self> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(class_len(class) + PAGE_LEN).ok()?;
        bytes.resize(class_len(class) + PAGE_LEN, 0);
        Some(Self::of(bytes, class))
    }

    #[inline]
    fn of(bytes: Vec<u8>, class: usize) -> Self {
        let start = bytes.as_ptr().align_offset(PAGE_LEN);
        Self { bytes, start, class, pool: None }
    }
}

impl Drop for Memory {
    #[inline]
    fn drop(&mut self) {
        // Reached with a pool only when two handles of the same memory were dropped at the same moment on two cores and
        // neither saw itself as the last. The memory is freed; its share of the budget must return.
        if let Some(pool) = self.pool.take() {
            pool.uncount_bytes(class_len(self.class));
        }
    }
}

/// A reference to pooled memory. Dropping the last one returns the memory to its pool.
#[derive(Clone)]
pub(crate) struct Handle(Option<Arc<Memory>>);

impl Handle {
    /// The first handle of `memory`, which was idle and whose bytes `pool` has counted.
    #[inline]
    pub(crate) fn new(mut memory: Arc<Memory>, pool: Pool) -> Self {
        Arc::get_mut(&mut memory).expect("idle memory has one owner").pool = Some(pool);
        Self(Some(memory))
    }

    /// A handle whose memory has gone to another one.
    #[inline]
    pub(crate) fn gone() -> Self {
        Self(None)
    }

    #[inline]
    fn memory(&self) -> &Memory {
        self.0.as_ref().expect("a handle has memory until it is dropped")
    }

    #[inline]
    pub(crate) fn class(&self) -> usize {
        self.memory().class
    }

    /// All bytes of the memory.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let memory = self.memory();
        &memory.bytes[memory.start..]
    }

    /// All bytes of the memory, unless another handle holds it too.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let memory = self.0.as_mut().and_then(Arc::get_mut)?;
        Some(&mut memory.bytes[memory.start..])
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        let Some(mut memory) = self.0.take() else { return };
        // The count is looked at first, for it costs less than to claim the memory.
        if Arc::strong_count(&memory) == 1
            && let Some(pool) = Arc::get_mut(&mut memory).and_then(|last| last.pool.take())
        {
            pool.give_back(memory);
        }
    }
}
