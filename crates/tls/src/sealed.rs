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
        if self.start > 0 && self.end + len > self.bytes.len() {
            // A peer that reads slowly may never let it become empty.
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let start = self.end;
        self.end += len;
        if self.bytes.len() < self.end {
            self.bytes.resize(self.end, 0);
        }
        &mut self.bytes[start..self.end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_never_catches_up_makes_it_no_longer() {
        let mut sealed = Sealed::default();
        sealed.room(1000).fill(1);
        for round in 0..1000_u32 {
            sealed.sent(500);
            sealed.room(500).fill(round as u8);
            assert_eq!((sealed.unsent().len(), sealed.unsent()[999]), (1000, round as u8));
        }
        assert!(sealed.bytes.len() <= 1500, "{} bytes", sealed.bytes.len());
    }
}
