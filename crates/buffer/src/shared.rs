//! The read-only handle on pooled bytes.

use std::fmt;
use std::ops::{Deref, Range};

use crate::Buffer;
use crate::memory::{Handle, class_len};

/// Read-only bytes that several owners hold; a clone costs a reference count.
#[derive(Clone)]
pub struct SharedBuffer {
    handle: Handle,
    range: Range<usize>,
}

impl SharedBuffer {
    #[inline]
    pub(crate) fn new(handle: Handle, len: usize) -> Self {
        Self { handle, range: 0..len }
    }

    /// The length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether the length is zero.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// A view of `range` of this view.
    ///
    /// # Panics
    ///
    /// When `range` lies outside the view.
    #[must_use]
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "slice {range:?} of {} bytes", self.len());
        let start = self.range.start + range.start;
        Self { handle: self.handle.clone(), range: start..start + range.len() }
    }

    /// Bytes of the pool that this view keeps, however few of them it shows.
    #[inline]
    pub fn pooled_bytes(&self) -> usize {
        class_len(self.handle.class())
    }

    /// The writable buffer again, when this is the last handle and shows the buffer from its start.
    ///
    /// # Errors
    ///
    /// Returns the view when others hold the bytes too, or when it starts later in the buffer.
    pub fn try_into_buffer(mut self) -> Result<Buffer, Self> {
        let is_last = self.handle.bytes_mut().is_some();
        if !is_last || self.range.start != 0 {
            return Err(self);
        }
        Ok(Buffer::new(self.handle, self.range.end))
    }
}

impl Deref for SharedBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.handle.bytes()[self.range.clone()]
    }
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuffer({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use crate::{PAGE_LEN, Pool};

    #[test]
    fn the_last_handle_can_be_written_to_again() {
        let pool = Pool::new(1 << 20);
        let shared = pool.take(100).unwrap().share();
        let other = shared.slice(10..20);
        let shared = shared.try_into_buffer().unwrap_err();
        assert!(other.try_into_buffer().is_err(), "a part from the middle");
        let mut buffer = shared.try_into_buffer().unwrap();
        buffer.fill(1);
        assert_eq!(buffer.len(), 100);
    }

    #[test]
    fn shared_views_keep_the_memory_until_the_last_is_gone() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.take(10).unwrap();
        buffer.copy_from_slice(b"0123456789");
        let whole = buffer.share();
        let part = whole.slice(2..6).slice(1..3);
        drop(whole);
        assert_eq!(&part[..], b"34");
        assert_eq!(pool.used_bytes(), PAGE_LEN);
        drop(part);
        assert_eq!(pool.used_bytes(), 0);
    }
}
