//! The share of the pool that the answers of one connection hold until they are sent, or acknowledged when they may
//! have to be sent again.

use std::collections::VecDeque;

/// Buffers of answers, in the order in which they leave. Each counts as a whole: an initiator that takes four bytes of
/// what a command has read keeps all of its buffer.
#[derive(Default)]
pub(crate) struct HeldAnswers {
    /// The end of each in the stream of data segments, and its bytes of the pool.
    waiting: VecDeque<(u64, usize)>,
    /// Bytes of data segments that were ever queued by answers.
    queued: u64,
    bytes: usize,
}

impl HeldAnswers {
    /// An answer has queued data segments.
    #[inline]
    pub(crate) fn push(&mut self, segment_bytes: usize, pooled_bytes: usize) {
        if segment_bytes > 0 {
            self.queued += segment_bytes as u64;
            self.waiting.push_back((self.queued, pooled_bytes));
            self.bytes += pooled_bytes;
        }
    }

    /// The answer that came last, which is still waiting, has queued more data segments in the same buffer.
    #[inline]
    pub(crate) fn extend(&mut self, segment_bytes: usize) {
        self.queued += segment_bytes as u64;
        if let Some((end, _)) = self.waiting.back_mut() {
            *end = self.queued;
        }
    }

    /// Bytes of the pool that are held while `left` bytes of data segments are. Segments that no answer queued make
    /// this late, never early.
    pub(crate) fn bytes(&mut self, left: usize) -> usize {
        let released = self.queued.saturating_sub(left as u64);
        while let Some((_, pooled_bytes)) = self.waiting.front().filter(|(end, _)| *end <= released) {
            self.bytes -= pooled_bytes;
            self.waiting.pop_front();
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_as_a_whole_until_its_last_byte_is_sent() {
        let mut answers = HeldAnswers::default();
        answers.push(4, 4096);
        answers.push(100, 8192);
        for (left, held) in [(104, 12288), (101, 12288), (100, 8192), (1, 8192), (0, 0)] {
            assert_eq!(answers.bytes(left), held, "{left} bytes left");
        }
        answers.push(4, 4096);
        assert_eq!(answers.bytes(4), 4096);
    }

    #[test]
    fn bytes_of_others_make_it_late_and_the_end_makes_it_right() {
        let mut answers = HeldAnswers::default();
        answers.push(4, 4096);
        assert_eq!(answers.bytes(50), 4096);
        assert_eq!(answers.bytes(0), 0);
    }
}
