//! The bytes of an outbox that are no data: headers, pads and digests, one behind the other.

/// Bytes with an open end, of which the first are dropped when they have been sent. They lie in one place, so that they
/// leave as one slice.
#[derive(Default)]
pub(super) struct Inline {
    bytes: Vec<u8>,
    /// Bytes at the front that were dropped.
    dropped: usize,
}

impl Inline {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.dropped..]
    }

    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Drops the first `len` bytes. What is left is moved to the front when it is no longer than what was dropped, so
    /// that each byte is moved once for each that was dropped, at most.
    #[inline]
    pub(super) fn drop_front(&mut self, len: usize) {
        self.dropped += len;
        if 2 * self.dropped >= self.bytes.len() {
            self.bytes.drain(..self.dropped);
            self.dropped = 0;
        }
    }

    /// Moves the last `len` bytes to the end of `to`.
    pub(super) fn cut_off(&mut self, len: usize, to: &mut Vec<u8>) {
        to.extend(self.bytes.drain(self.bytes.len() - len..));
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.dropped = 0;
    }
}
