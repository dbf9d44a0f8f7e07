//! PDUs that are ready to be sent, as a list of slices.

use std::collections::VecDeque;

use lunette_buffer::SharedBuffer;
use lunette_crc32c::{Crc32c, crc32c, to_wire};
use lunette_pdu::{BHS_LEN, DIGEST_LEN, pad_len};

/// The data segment of a PDU that waits to be sent.
#[derive(Clone)]
pub(crate) enum Segment {
    Empty,
    /// Text, sense data, an echo: short and made for this PDU.
    Owned(Box<[u8]>),
    /// A piece of a pooled buffer.
    Shared(SharedBuffer),
}

impl Segment {
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Owned(bytes.into_boxed_slice()) }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }

    pub(crate) fn owned_len(&self) -> usize {
        if let Self::Owned(bytes) = self { bytes.len() } else { 0 }
    }
}

struct Pdu {
    head: [u8; BHS_LEN + DIGEST_LEN],
    head_len: u8,
    segment: Segment,
    tail: [u8; 3 + DIGEST_LEN],
    tail_len: u8,
}

impl Pdu {
    fn parts(&self) -> [&[u8]; 3] {
        [&self.head[..usize::from(self.head_len)], self.segment.bytes(), &self.tail[..usize::from(self.tail_len)]]
    }

    fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }
}

/// The queue between the protocol and the socket.
#[derive(Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Pdu>,
    /// Bytes of the first PDU that the socket has already taken.
    front_sent: usize,
    owned_bytes: usize,
    segment_bytes: usize,
    header_digest: bool,
    data_digest: bool,
}

impl Outbox {
    /// Digests hold for PDUs pushed from now on.
    pub(crate) fn configure(&mut self, header_digest: bool, data_digest: bool) {
        self.header_digest = header_digest;
        self.data_digest = data_digest;
    }

    /// Appends a PDU. The header's DataSegmentLength is that of `segment`.
    pub(crate) fn push(&mut self, bhs: [u8; BHS_LEN], segment: Segment) {
        let mut head = [0; BHS_LEN + DIGEST_LEN];
        head[..BHS_LEN].copy_from_slice(&bhs);
        let mut head_len = BHS_LEN;
        if self.header_digest {
            head[BHS_LEN..].copy_from_slice(&to_wire(crc32c(&bhs)));
            head_len += DIGEST_LEN;
        }
        let (tail, tail_len) = self.tail(segment.bytes());
        self.owned_bytes += segment.owned_len();
        self.segment_bytes += segment.bytes().len();
        self.queue.push_back(Pdu { head, head_len: head_len as u8, segment, tail, tail_len: tail_len as u8 });
    }

    /// Appends a PDU with additional header segments. They are rare, so the header goes as if it were a segment.
    pub(crate) fn push_with_ahs(&mut self, bhs: [u8; BHS_LEN], ahs: &[u8], segment: Segment) {
        let mut header = [&bhs[..], ahs].concat();
        if self.header_digest {
            header.extend(to_wire(crc32c(&header)));
        }
        let (tail, tail_len) = self.tail(segment.bytes());
        let header = Segment::owned(header);
        self.owned_bytes += header.owned_len() + segment.owned_len();
        self.segment_bytes += header.bytes().len() + segment.bytes().len();
        let headless = |segment, tail, tail_len| Pdu { head: [0; _], head_len: 0, segment, tail, tail_len };
        self.queue.push_back(headless(header, [0; _], 0));
        self.queue.push_back(headless(segment, tail, tail_len as u8));
    }

    fn tail(&self, segment: &[u8]) -> ([u8; 3 + DIGEST_LEN], usize) {
        let mut tail = [0; 3 + DIGEST_LEN];
        let mut len = pad_len(segment.len());
        if self.data_digest && !segment.is_empty() {
            let mut digest = Crc32c::new();
            digest.update(segment);
            digest.update(&tail[..len]);
            tail[len..len + DIGEST_LEN].copy_from_slice(&to_wire(digest.finish()));
            len += DIGEST_LEN;
        }
        (tail, len)
    }

    /// What is to be sent, in order; empty slices are left out.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.front_sent;
        self.queue.iter().flat_map(Pdu::parts).filter_map(move |part| {
            let skipped = skip.min(part.len());
            skip -= skipped;
            (skipped < part.len()).then(|| &part[skipped..])
        })
    }

    /// The socket has taken `len` bytes from the front.
    pub(crate) fn sent(&mut self, len: usize) {
        self.front_sent += len;
        while let Some(front) = self.queue.front() {
            let front_len = front.len();
            if self.front_sent < front_len {
                break;
            }
            self.front_sent -= front_len;
            self.owned_bytes -= front.segment.owned_len();
            self.segment_bytes -= front.segment.bytes().len();
            self.queue.pop_front();
        }
        debug_assert!(!self.queue.is_empty() || self.front_sent == 0, "more bytes sent than were queued");
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn pdus(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of data segments that wait, pooled or not.
    pub(crate) fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// Bytes that were made for their PDU and count against no pool.
    pub(crate) fn owned_bytes(&self) -> usize {
        self.owned_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(outbox: &mut Outbox, step: usize) -> Vec<u8> {
        let mut wire = Vec::new();
        while !outbox.is_empty() {
            let ready: Vec<u8> = outbox.slices().flatten().copied().collect();
            let taken = step.min(ready.len());
            wire.extend(&ready[..taken]);
            outbox.sent(taken);
        }
        wire
    }

    fn filled() -> Outbox {
        let mut outbox = Outbox::default();
        outbox.push([1; BHS_LEN], Segment::Empty);
        outbox.configure(true, true);
        outbox.push([2; BHS_LEN], Segment::owned(b"hello".to_vec()));
        outbox.push([3; BHS_LEN], Segment::owned(Vec::new()));
        outbox
    }

    #[test]
    fn the_wire_holds_headers_digests_segments_and_pads_in_order() {
        let mut expected = vec![1; BHS_LEN];
        expected.extend([2; BHS_LEN]);
        expected.extend(to_wire(crc32c(&[2; BHS_LEN])));
        expected.extend(b"hello\0\0\0");
        expected.extend(to_wire(crc32c(b"hello\0\0\0")));
        expected.extend([3; BHS_LEN]);
        expected.extend(to_wire(crc32c(&[3; BHS_LEN])));
        for step in [1, 5, 47, 48, 49, 1000] {
            assert_eq!(drain(&mut filled(), step), expected, "step {step}");
        }
    }

    #[test]
    fn additional_header_segments_stand_between_header_and_its_digest() {
        let mut outbox = Outbox::default();
        outbox.configure(true, true);
        outbox.push_with_ahs([2; BHS_LEN], &[9; 8], Segment::owned(b"hello".to_vec()));
        outbox.push_with_ahs([2; BHS_LEN], &[9; 8], Segment::Empty);
        let header = [&[2; BHS_LEN][..], &[9; 8]].concat();
        let header = [&header[..], &to_wire(crc32c(&header))].concat();
        let expected = [&header[..], b"hello\0\0\0", &to_wire(crc32c(b"hello\0\0\0")), &header].concat();
        assert_eq!(drain(&mut outbox, 7), expected);
        assert_eq!((outbox.pdus(), outbox.owned_bytes(), outbox.segment_bytes()), (0, 0, 0));
    }

    #[test]
    fn owned_bytes_are_counted_until_they_are_sent() {
        let mut outbox = filled();
        assert_eq!((outbox.pdus(), outbox.owned_bytes()), (3, 5));
        drain(&mut outbox, 64);
        assert_eq!((outbox.pdus(), outbox.owned_bytes()), (0, 0));
    }
}
