//! Bytes that are ready for a socket.

use std::collections::VecDeque;
use std::mem;

/// Sealed records, and how much of them was sent. The memory is kept, and is not cleared between two uses.
#[derive(Debug, Default)]
pub struct Sealed {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes that were ever sealed, and that were ever sent.
    totals: [u64; 2],
    /// The records with content that were not sent as a whole: the total at their end, and the bytes of content.
    records: VecDeque<(u64, usize)>,
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

    /// The first `len` bytes of [`unsent`](Self::unsent) were sent. Gives the bytes of content of which the whole
    /// record has left: before that no peer can open it.
    pub fn sent(&mut self, len: usize) -> usize {
        let len = len.min(self.end - self.start);
        self.start += len;
        self.totals[1] += len as u64;
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        let mut content = 0;
        while let Some((end, len)) = self.records.front()
            && *end <= self.totals[1]
        {
            content += len;
            self.records.pop_front();
        }
        content
    }

    /// Takes the memory out, for another connection to use.
    #[must_use = "it would be freed"]
    pub fn take_memory(&mut self) -> Self {
        // Nothing that is unsent may reach another peer.
        (self.start, self.end, self.totals) = (0, 0, [0, 0]);
        self.records.clear();
        mem::take(self)
    }

    /// Whether it has memory.
    pub fn has_memory(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// The record that ends here has content.
    pub(crate) fn end_record(&mut self, content: usize) {
        self.records.push_back((self.totals[0], content));
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
        self.totals[0] += len as u64;
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
        sealed.room(500).fill(1);
        sealed.room(500).fill(1);
        sealed.end_record(9);
        for round in 0..1000_u32 {
            assert_eq!(sealed.sent(500), if round == 0 { 0 } else { 9 });
            sealed.room(500).fill(round as u8);
            sealed.end_record(9);
            assert_eq!((sealed.unsent().len(), sealed.unsent()[999]), (1000, round as u8));
        }
        assert!(sealed.bytes.len() <= 1500, "{} bytes", sealed.bytes.len());
    }
}
