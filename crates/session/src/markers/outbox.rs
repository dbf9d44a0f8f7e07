//! Markers put between the bytes that are sent.

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
        if !self.has_markers() {
            self.outbox.join_headers();
        }
    }

    pub(crate) fn has_markers(&self) -> bool {
        matches!(self.markers, Markers::On(_))
    }

    /// Pushes a header, as [`Outbox::push_header`] does.
    #[inline]
    pub(crate) fn push_header(&mut self, bhs: [u8; BHS_LEN]) {
        let queued = self.outbox.parts();
        self.outbox.push_header(bhs);
        self.pushed(queued);
    }

    /// Pushes a segment of whose CRC32C and blocks nothing is known, as [`Outbox::push`] does.
    #[inline]
    pub(crate) fn push(&mut self, bhs: [u8; BHS_LEN], segment: Payload) {
        self.push_blocks(bhs, segment, None, 0);
    }

    /// Pushes a segment, as [`Outbox::push`] does.
    #[inline]
    pub(crate) fn push_blocks(&mut self, bhs: [u8; BHS_LEN], segment: Payload, crc: Option<u32>, block_len: u16) {
        let queued = self.outbox.parts();
        self.outbox.push(bhs, segment, crc, block_len);
        self.pushed(queued);
    }

    /// Pushes a PDU with additional headers, as [`Outbox::push_with_ahs`] does.
    pub(crate) fn push_with_ahs(&mut self, bhs: [u8; BHS_LEN], ahs: &[u8], segment: Payload) {
        let queued = self.outbox.parts();
        self.outbox.push_with_ahs(bhs, ahs, segment);
        self.pushed(queued);
    }

    /// A PDU is in the outbox, behind that many parts.
    #[inline]
    fn pushed(&mut self, queued: usize) {
        match &mut self.markers {
            Markers::Off => {}
            Markers::Login { len } => *len += self.outbox.len_from(queued) as u64,
            Markers::On(weaver) => weaver.weave(&mut self.outbox, queued),
        }
    }
}

struct Weaver {
    next: Distance,
    /// Spare memory for the parts of a PDU, and for the bytes around their segments.
    whole: (Vec<Part>, Vec<u8>),
}

impl Weaver {
    fn new(next: Distance) -> Self {
        Self { next, whole: Default::default() }
    }

    /// Cuts the PDU that begins with part number `first` where markers stand in it. Pooled data is not copied.
    #[inline(never)]
    fn weave(&mut self, outbox: &mut Outbox, first: usize) {
        let (mut parts, mut inline) = std::mem::take(&mut self.whole);
        let mut left = outbox.len_from(first) as u32;
        outbox.cut_off(first, &mut parts, &mut inline);
        if self.next.is_over() {
            // A marker right before a PDU names that PDU's header.
            self.append_marker(0, outbox);
        }
        let mut rest = &inline[..];
        for part in parts.drain(..) {
            let (bytes, behind) = rest.split_at(part.inline_len());
            let (head, tail) = bytes.split_at(part.head_len as usize);
            rest = behind;
            self.cut(head.len(), &mut left, outbox, |range| (&head[range], Payload::Empty));
            self.cut(part.segment.len(), &mut left, outbox, |range| (&[], part.segment.slice(range)));
            self.cut(tail.len(), &mut left, outbox, |range| (&tail[range], Payload::Empty));
        }
        inline.clear();
        self.whole = (parts, inline);
        outbox.end_pdu();
    }

    /// Appends the next `len` bytes of a PDU, cut at markers. `pdu_left` counts down the bytes up to its end: the next
    /// header begins there.
    fn cut<'a>(
        &mut self,
        len: usize,
        pdu_left: &mut u32,
        outbox: &mut Outbox,
        cut: impl Fn(Range<usize>) -> (&'a [u8], Payload),
    ) {
        let mut from = 0;
        while from < len {
            if self.next.is_over() {
                self.append_marker(*pdu_left, outbox);
            }
            let piece = self.next.before_marker(len - from);
            let (bytes, segment) = cut(from..from + piece);
            outbox.append(bytes, segment);
            self.next.pass(piece);
            *pdu_left -= piece as u32;
            from += piece;
        }
    }

    fn append_marker(&mut self, ahead: u32, outbox: &mut Outbox) {
        self.next.pass_marker();
        outbox.append(&marker(ahead), Payload::Empty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_point_to_the_end_of_the_pdu_that_they_stand_in() {
        let mut outbox = Outbox::default();
        outbox.push([1; BHS_LEN], vec![2; 552].into(), None, 0);
        Weaver::new(Distance::after_login(256, 256)).weave(&mut outbox, 0);
        let data = |len| vec![2; len];
        let expected =
            [marker(0).into(), vec![1; 48], data(208), marker(344).into(), data(256), marker(88).into(), data(88)];
        assert_eq!(outbox.slices().collect::<Vec<_>>().concat(), expected.concat());
        assert_eq!(outbox.pdus(), 1);
        outbox.sent(expected.concat().len() - 1);
        assert_eq!(outbox.pdus(), 1, "only the last byte ends it");
        outbox.sent(1);
        assert_eq!(outbox.pdus(), 0);
    }
}
