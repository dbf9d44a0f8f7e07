//! The writable handle on pooled bytes.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use crate::loan::Ledger;
use crate::memory::{Handle, class_len};
use crate::{Loan, Pool, Run, SharedBuffer};

/// Writable bytes with one owner.
///
/// A buffer from [`Pool::take`] has its memory; one from [`Pool::reserve`] takes it from the pool when its bytes are
/// first accessed. No access copies bytes.
///
/// The type is kept small, because buffers are moved often.
pub struct Buffer {
    place: Place,
    allows_loan: bool,
    class: u8,
    len: u32,
}

/// Where the bytes are.
///
/// When its memory, or what was counted, has gone elsewhere, a [gone](Handle::gone) handle is left. A variant of its
/// own would make all buffers larger.
enum Place {
    Memory(Handle),
    /// In memory that `pool`, which has counted the bytes, gives when they are first accessed.
    Reserved {
        pool: Pool,
        /// Set by an access that others may make at the same time.
        handle: OnceLock<Handle>,
    },
}

impl Buffer {
    /// A buffer that has its memory.
    #[inline]
    pub(crate) fn new(handle: Handle, len: usize) -> Self {
        let class = handle.class() as u8;
        Self { place: Place::Memory(handle), allows_loan: false, class, len: len as u32 }
    }

    /// A buffer that takes its memory from `pool`, which has counted the bytes, on first access.
    #[inline]
    pub(crate) fn reserved(pool: Pool, class: usize, len: usize) -> Self {
        let (class, len) = (class as u8, len as u32);
        Self { place: Place::Reserved { pool, handle: OnceLock::new() }, allows_loan: false, class, len }
    }

    /// The length in bytes. Asking for it takes no memory (see [`Pool::reserve`]).
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the length is zero.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Shortens the buffer to `len` bytes; longer values change nothing.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// Changes the length to `len` bytes, if the buffer's size class has room for as many: after [`Self::truncate`] it
    /// has. Bytes that are added may be those of an earlier user. False, and no change, when there is no room.
    pub fn resize(&mut self, len: usize) -> bool {
        let fits = len <= self.class_len();
        if fits {
            self.len = len as u32;
        }
        fits
    }

    /// Lets a store answer a read into this buffer with a [`Loan`] instead of filling it. Call this only where the
    /// answer is looked for in both places; without it a store always fills the buffer.
    pub fn allow_loan(&mut self) {
        self.allows_loan = true;
    }

    /// Trades the buffer for `runs`, as many bytes as the buffer has. The loan takes over what the pool has counted.
    ///
    /// # Errors
    ///
    /// Returns the buffer when it does not [allow](Self::allow_loan) a loan, when it has memory already (see
    /// [`Pool::reserve`]), when there are more than [`MAX_LOAN_RUNS`](crate::MAX_LOAN_RUNS), or when the runs keep more
    /// memory than the buffer has counted, and counting the difference would use up more than half of the budget.
    ///
    /// # Panics
    ///
    /// When the runs have more or fewer bytes than the buffer.
    pub fn lend(mut self, runs: impl Iterator<Item = Run>) -> Result<Loan, Self> {
        let pool = match &self.place {
            Place::Reserved { pool, handle } if self.allows_loan && handle.get().is_none() => pool,
            _ => return Err(self),
        };
        let Some(ledger) = Ledger::new(pool, self.class_len(), runs) else { return Err(self) };
        assert_eq!(ledger.len(), self.len(), "bytes lent for a buffer");
        // The loan counts these bytes from here on.
        self.place = Place::Memory(Handle::gone());
        Ok(Loan::new(ledger))
    }

    /// Bytes of the pool that the buffer counts for.
    #[inline]
    fn class_len(&self) -> usize {
        class_len(usize::from(self.class))
    }

    /// Gives up writing, so that many readers can hold the bytes.
    #[inline]
    pub fn share(mut self) -> SharedBuffer {
        let len = self.len();
        SharedBuffer::new(self.take_handle(), len)
    }

    /// The memory, which a reserved buffer takes here.
    #[inline]
    fn handle(&self) -> &Handle {
        match &self.place {
            Place::Memory(handle) => handle,
            Place::Reserved { pool, handle } => handle.get_or_init(|| pool.clone().into_handle(self.class.into())),
        }
    }

    /// The handle of a buffer that has no other owner.
    #[inline]
    fn handle_mut(&mut self) -> &mut Handle {
        if let Place::Reserved { .. } = self.place {
            self.place = Place::Memory(self.take_handle());
        }
        match &mut self.place {
            Place::Memory(handle) => handle,
            Place::Reserved { .. } => unreachable!("the memory has just been taken"),
        }
    }

    /// Takes the memory out.
    #[inline]
    fn take_handle(&mut self) -> Handle {
        match std::mem::replace(&mut self.place, Place::Memory(Handle::gone())) {
            Place::Memory(handle) => handle,
            Place::Reserved { pool, mut handle } => match handle.take() {
                Some(handle) => handle,
                None => pool.into_handle(self.class.into()),
            },
        }
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        // Where there is memory, its handle returns the bytes.
        if let Place::Reserved { pool, handle } = &self.place
            && handle.get().is_none()
        {
            pool.uncount_bytes(self.class_len());
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.handle().bytes()[..self.len()]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        &mut self.handle_mut().bytes_mut().expect("a Buffer is the only handle on its memory")[..len]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Buffer, PAGE_LEN, Pool};

    #[test]
    fn a_buffer_is_small_to_be_moved() {
        assert!(size_of::<Buffer>() <= 4 * size_of::<usize>());
    }

    #[test]
    fn a_buffer_gets_back_what_was_cut_off_and_no_more() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.take(2 * PAGE_LEN).unwrap();
        buffer.truncate(1);
        assert!(!buffer.resize(2 * PAGE_LEN + 1));
        assert_eq!(buffer.len(), 1);
        assert!(buffer.resize(2 * PAGE_LEN));
        assert_eq!(buffer.len(), 2 * PAGE_LEN);
    }

    #[test]
    fn a_reservation_counts_and_takes_the_memory_that_was_last_in_use() {
        let pool = Pool::new(8192);
        let first = pool.reserve(PAGE_LEN).unwrap();
        let second = pool.reserve(PAGE_LEN).unwrap();
        assert_eq!((pool.used_bytes(), first.len()), (8192, PAGE_LEN));
        assert!(pool.take(1).is_none(), "the budget is used up");
        let place = first.as_ptr();
        drop(first);
        assert_eq!(second.as_ptr(), place);
        drop(second);
        drop(pool.reserve(1));
        assert_eq!(pool.used_bytes(), 0);
        drop(pool.reserve(1).unwrap().share());
        assert_eq!(pool.used_bytes(), 0);
    }
}
