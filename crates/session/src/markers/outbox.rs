//! Markers put between the bytes that are sent.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut, Range};

use lunette_buffer::Payload;
use lunette_pdu::BHS_LEN;

use super::{Distance, Markers, marker};
use crate::outbox::{Outbox, Part};

/// An outbox whose PDUs are cut at markers, once there are some.
#[derive(Default)]
pub(crate) struct MarkedOutbox {
    outbox: Outbox,
    markers: Markers<Weaver>,
}

impl Deref for MarkedOutbox {
    type Target = Outbox;

    #[inline]
    fn deref(&self) -> &Outbox {
        &self.outbox
    }
}

impl DerefMut for MarkedOutbox {
    #[inline]
    fn deref_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl MarkedOutbox {
    /// The login has ended: from now on there are markers at this distance, in bytes, or none.
    pub(crate) fn start_markers(&mut self, interval: Option<u32>) {
        self.markers.start(interval, Weaver::new);
    }

    pub(crate) fn has_markers(&self) -> bool {
        matches!(self.markers, Markers::On(_))
    }

    /// As [`Outbox::push`], of a segment of whose CRC32C and blocks nothing is known.
    #[inline]
    pub(crate) fn push(&mut self, bhs: [u8; BHS_LEN], segment: Payload) {
        self.push_blocks(bhs, segment, None, 0);
    }

    /// As [`Outbox::push`].
    #[inline]
    pub(crate) fn push_blocks(&mut self, bhs: [u8; BHS_LEN], segment: Payload, crc: Option<u32>, block_len: u16) {
        let queued = self.outbox.parts().len();
        self.outbox.push(bhs, segment, crc, block_len);
        self.pushed(queued);
    }

    /// As [`Outbox::push_with_ahs`].
    pub(crate) fn push_with_ahs(&mut self, bhs: [u8; BHS_LEN], ahs: &[u8], segment: Payload) {
        let queued = self.outbox.parts().len();
        self.outbox.push_with_ahs(bhs, ahs, segment);
        self.pushed(queued);
    }

    /// A PDU is in the outbox, behind that many parts.
    #[inline]
    fn pushed(&mut self, queued: usize) {
        match &mut self.markers {
            Markers::Off => {}
            Markers::Login { len } => *len += self.outbox.parts().range(queued..).map(Part::len).sum::<usize>() as u64,
            Markers::On(weaver) => weaver.weave(self.outbox.parts(), queued),
        }
    }
}

struct Weaver {
    next: Distance,
    /// Spare memory for the parts of a PDU.
    whole: Vec<Part>,
}

impl Weaver {
    fn new(next: Distance) -> Self {
        Self { next, whole: Vec::new() }
    }

    /// Cuts the PDU that begins at `from` where markers stand in it. Pooled data is not copied.
    #[inline(never)]
    fn weave(&mut self, queue: &mut VecDeque<Part>, from: usize) {
        let mut whole = std::mem::take(&mut self.whole);
        whole.extend(queue.drain(from..));
        let mut left = whole.iter().map(Part::len).sum::<usize>() as u32;
        if self.next.is_over() {
            // A marker right before a PDU names that PDU's header.
            self.push_marker(0, queue);
        }
        for part in whole.drain(..) {
            let [head, _, tail] = part.bytes();
            let inline = |bytes: &[u8]| Part::new(bytes, Payload::Empty);
            self.cut(head.len(), &mut left, queue, |range| inline(&head[range]));
            self.cut(part.segment.len(), &mut left, queue, |range| Part::new(&[], part.segment.slice(range)));
            self.cut(tail.len(), &mut left, queue, |range| inline(&tail[range]));
        }
        self.whole = whole;
        if let Some(last) = queue.back_mut() {
            last.ended_pdus = 1;
        }
    }

    /// Cuts the next `len` bytes of a PDU at markers. `pdu_left` counts down the bytes up to its end: the next header begins
    /// there.
    fn cut(&mut self, len: usize, pdu_left: &mut u32, queue: &mut VecDeque<Part>, cut: impl Fn(Range<usize>) -> Part) {
        let mut from = 0;
        while from < len {
            if self.next.is_over() {
                self.push_marker(*pdu_left, queue);
            }
            let piece = self.next.before_marker(len - from);
            queue.push_back(cut(from..from + piece));
            self.next.pass(piece);
            *pdu_left -= piece as u32;
            from += piece;
        }
    }

    fn push_marker(&mut self, ahead: u32, queue: &mut VecDeque<Part>) {
        self.next.pass_marker();
        queue.push_back(Part::new(&marker(ahead), Payload::Empty));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_point_to_the_end_of_the_pdu_that_they_stand_in() {
        let mut queue = VecDeque::from([Part::new(&[1; 48], vec![2; 552].into())]);
        Weaver::new(Distance::after_login(256, 256)).weave(&mut queue, 0);
        let woven = queue.iter().map(|part| part.bytes().concat());
        let data = |len| vec![2; len];
        let expected =
            [marker(0).into(), vec![1; 48], data(208), marker(344).into(), data(256), marker(88).into(), data(88)];
        assert!(woven.eq(expected));
        assert_eq!(queue.iter().filter(|part| part.ended_pdus > 0).count(), 1, "only the last ends it");
    }
}
