//! Bytes that are ready for a socket.

use std::mem;

/// Sealed records, and how much of them was sent. The memory is kept, and is not cleared between two uses.
#[derive(Debug, Default)]
pub struct Sealed {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Sealed {
    /// The bytes that were not sent yet.
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Whether all of it was sent.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The first `len` bytes of [`unsent`](Self::unsent) were sent.
    pub fn sent(&mut self, len: usize) {
        self.start = self.end.min(self.start + len);
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Takes the memory out, for another connection to use.
    #[must_use = "it would be freed"]
    pub fn take_memory(&mut self) -> Self {
        (self.start, self.end) = (0, 0);
        mem::take(self)
    }

    /// Whether it has memory.
    pub fn has_memory(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Room for `len` bytes behind the others.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        let start = self.end;
        self.end += len;
        if self.bytes.len() < self.end {
            self.bytes.resize(self.end, 0);
        }
        &mut self.bytes[start..self.end]
    }
}
