//! PDUs that are ready to be sent, as a list of slices.

use std::collections::VecDeque;
use std::ops::Range;

use lunette_buffer::{FileSlice, Loan, SharedBuffer};
use lunette_crc32c::{Crc32c, crc32c, to_wire};
use lunette_pdu::{BHS_LEN, DIGEST_LEN, pad_len};

use crate::markers::{Weaver, Woven};

/// The data segment of a PDU that waits to be sent.
#[derive(Clone)]
pub(crate) enum Segment {
    Empty,
    /// Text, sense data, an echo: short and made for this PDU.
    Owned(Box<[u8]>),
    /// A piece of a pooled buffer.
    Shared(SharedBuffer),
    /// Bytes in a store's memory; in the queue, a run of them.
    Loan(Loan),
    /// A piece of a file, where there are no digests and no markers.
    File(FileSlice),
}

/// Something to send.
#[derive(Debug, Clone, Copy)]
pub enum Piece<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// Bytes of a pooled buffer, which who sends them may keep.
    Shared {
        /// Where they are.
        buffer: &'a SharedBuffer,
        /// So many of them, from the first on, have been sent.
        sent: usize,
    },
    /// Bytes of memory that a store has lent, which who sends them may keep.
    Loan {
        /// Where they are.
        loan: &'a Loan,
        /// So many of them, from the first on, have been sent.
        sent: usize,
    },
    /// Bytes of a file.
    File {
        /// Where they are.
        slice: &'a FileSlice,
        /// So many of them, from the first on, have been sent.
        sent: usize,
    },
}

impl Piece<'_> {
    /// How many bytes, sent or not.
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Shared { buffer, .. } => buffer.len(),
            Self::Loan { loan, .. } => loan.len(),
            Self::File { slice, .. } => slice.len(),
        }
    }

    /// What is left when the first `sent` bytes, not all, have been sent of a whole one.
    fn after(self, sent: usize) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(&bytes[sent..]),
            Self::Shared { buffer, .. } => Self::Shared { buffer, sent },
            Self::Loan { loan, .. } => Self::Loan { loan, sent },
            Self::File { slice, .. } => Self::File { slice, sent },
        }
    }
}

impl Segment {
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Owned(bytes.into_boxed_slice()) }
    }

    /// Bytes `range` of it. Those of a pooled buffer and of a store are not copied.
    fn slice(&self, range: Range<usize>) -> Self {
        match self {
            Self::Empty => Self::Empty,
            Self::Owned(bytes) => Self::Owned(bytes[range].into()),
            Self::Shared(bytes) => Self::Shared(bytes.slice(range)),
            Self::Loan(loan) => Self::Loan(loan.slice(range)),
            Self::File(file) => Self::File(file.slice(range)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::File(file) => file.len(),
            Self::Loan(loan) => loan.len(),
            _ => self.bytes().len(),
        }
    }

    /// Empty for what is in a file; the first run of a loan.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Empty | Self::File(_) => &[],
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
            Self::Loan(loan) => loan.runs().next().unwrap_or_default(),
        }
    }

    /// Its first run and what comes behind, when it lies in several places.
    fn split_run(&self) -> Option<(Self, Self)> {
        let Self::Loan(loan) = self else { return None };
        let at = self.bytes().len();
        (at < loan.len()).then(|| (self.slice(0..at), self.slice(at..loan.len())))
    }

    pub(crate) fn owned_len(&self) -> usize {
        if let Self::Owned(bytes) = self { bytes.len() } else { 0 }
    }
}

/// A PDU; or a part of it, when markers or additional header segments stand in it, or its data lies in several places.
struct Pdu {
    head: [u8; BHS_LEN + DIGEST_LEN],
    head_len: u8,
    segment: Segment,
    tail: [u8; 3 + DIGEST_LEN],
    tail_len: u8,
    /// Whether another part of the same PDU follows.
    goes_on: bool,
}

impl Pdu {
    /// A part of a PDU that is neither its header nor its end.
    fn part(bytes: &[u8], segment: Segment) -> Self {
        let mut head = [0; _];
        head[..bytes.len()].copy_from_slice(bytes);
        Self { head, head_len: bytes.len() as u8, segment, tail: [0; _], tail_len: 0, goes_on: true }
    }

    fn pieces(&self) -> [Piece<'_>; 3] {
        let [head, segment, tail] = self.parts().map(Piece::Bytes);
        let segment = match &self.segment {
            Segment::Empty | Segment::Owned(_) => segment,
            Segment::Shared(buffer) => Piece::Shared { buffer, sent: 0 },
            Segment::Loan(loan) => Piece::Loan { loan, sent: 0 },
            Segment::File(slice) => Piece::File { slice, sent: 0 },
        };
        [head, segment, tail]
    }

    fn parts(&self) -> [&[u8]; 3] {
        [&self.head[..usize::from(self.head_len)], self.segment.bytes(), &self.tail[..usize::from(self.tail_len)]]
    }

    fn len(&self) -> usize {
        usize::from(self.head_len) + self.segment.len() + usize::from(self.tail_len)
    }
}

/// The queue between the protocol and the socket.
#[derive(Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Pdu>,
    /// Bytes of the first PDU that the socket has already taken.
    front_sent: usize,
    pdus: usize,
    /// PDUs that were queued since this was asked last.
    queued_pdus: u64,
    owned_bytes: usize,
    segment_bytes: usize,
    header_digest: bool,
    data_digest: bool,
    markers: Markers,
}

enum Markers {
    /// The login may agree on them: they will count its bytes.
    Login {
        len: u64,
    },
    Off,
    On(Weaver),
}

impl Default for Markers {
    fn default() -> Self {
        Self::Login { len: 0 }
    }
}

impl Outbox {
    /// Digests hold for PDUs pushed from now on.
    pub(crate) fn configure(&mut self, header_digest: bool, data_digest: bool) {
        self.header_digest = header_digest;
        self.data_digest = data_digest;
    }

    /// The login has ended: from now on there are markers at this distance, in bytes, or none.
    pub(crate) fn start_markers(&mut self, interval: Option<u32>) {
        let Markers::Login { len } = self.markers else { return };
        self.markers = interval.map_or(Markers::Off, |interval| Markers::On(Weaver::new(len, interval)));
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
        let (tail, tail_len) = self.tail(&segment);
        self.owned_bytes += segment.owned_len();
        self.segment_bytes += segment.len();
        self.enqueue(Pdu { head, head_len: head_len as u8, segment, tail, tail_len: tail_len as u8, goes_on: false });
    }

    /// Appends a PDU with additional header segments. They are rare, so the header goes as if it were a segment.
    pub(crate) fn push_with_ahs(&mut self, bhs: [u8; BHS_LEN], ahs: &[u8], segment: Segment) {
        let mut header = [&bhs[..], ahs].concat();
        if self.header_digest {
            header.extend(to_wire(crc32c(&header)));
        }
        let (tail, tail_len) = self.tail(&segment);
        let header = Segment::owned(header);
        self.owned_bytes += header.owned_len() + segment.owned_len();
        self.segment_bytes += header.len() + segment.len();
        let end = Pdu { tail, tail_len: tail_len as u8, goes_on: false, ..Pdu::part(&[], segment) };
        self.enqueue_parts([Pdu::part(&[], header), end]);
    }

    /// Appends a PDU of one part.
    #[inline]
    fn enqueue(&mut self, pdu: Pdu) {
        match &mut self.markers {
            _ if matches!(pdu.segment, Segment::Loan(_)) => return self.enqueue_parts([pdu]),
            Markers::Off => {}
            Markers::Login { len } => *len += pdu.len() as u64,
            Markers::On(_) => return self.enqueue_parts([pdu]),
        }
        self.pdus += 1;
        self.queued_pdus += 1;
        self.queue.push_back(pdu);
    }

    /// Appends the parts of one PDU.
    #[inline(never)]
    fn enqueue_parts<const N: usize>(&mut self, pdu: [Pdu; N]) {
        self.pdus += 1;
        self.queued_pdus += 1;
        match &mut self.markers {
            Markers::Off => {}
            Markers::Login { len } => *len += pdu.iter().map(Pdu::len).sum::<usize>() as u64,
            Markers::On(weaver) => return weave(weaver, &pdu, &mut self.queue),
        }
        for part in pdu {
            push_runs(part, &mut self.queue);
        }
    }

    /// Pad and digest, and how long they are.
    #[inline]
    fn tail(&self, segment: &Segment) -> ([u8; 3 + DIGEST_LEN], usize) {
        let pad = pad_len(segment.len());
        if self.data_digest { digested_tail(segment, pad) } else { ([0; _], pad) }
    }

    /// How many PDUs were queued since this was asked last.
    pub(crate) fn take_queued_pdus(&mut self) -> u64 {
        std::mem::take(&mut self.queued_pdus)
    }

    /// What is to be sent, in order; nothing is empty.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let mut skip = self.front_sent;
        self.queue.iter().flat_map(Pdu::pieces).filter_map(move |piece| {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            (skipped < piece.len()).then(|| piece.after(skipped))
        })
    }

    /// What is to be sent, in order; empty slices are left out. There is nothing in files.
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
            self.segment_bytes -= front.segment.len();
            self.pdus -= usize::from(!front.goes_on);
            self.queue.pop_front();
        }
        debug_assert!(!self.queue.is_empty() || self.front_sent == 0, "more bytes sent than were queued");
    }

    /// Forgets what was not sent: there is no socket any more.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        (self.front_sent, self.pdus, self.owned_bytes, self.segment_bytes) = (0, 0, 0, 0);
    }

    pub(crate) fn has_markers(&self) -> bool {
        matches!(self.markers, Markers::On(_))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn pdus(&self) -> usize {
        self.pdus
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

/// Pad and digest of a data segment, which has none when it is empty.
fn digested_tail(segment: &Segment, pad: usize) -> ([u8; 3 + DIGEST_LEN], usize) {
    let mut tail = [0; 3 + DIGEST_LEN];
    let bytes = segment.bytes();
    if bytes.is_empty() {
        return (tail, pad);
    }
    let mut digest = Crc32c::new();
    match segment {
        Segment::Loan(loan) => loan.runs().for_each(|run| digest.update(run)),
        _ => digest.update(bytes),
    }
    digest.update(&tail[..pad]);
    tail[pad..pad + DIGEST_LEN].copy_from_slice(&to_wire(digest.finish()));
    (tail, pad + DIGEST_LEN)
}

/// Appends a part, cut so that each segment lies in one place.
fn push_runs(mut pdu: Pdu, queue: &mut VecDeque<Pdu>) {
    while let Some((first, rest)) = pdu.segment.split_run() {
        queue.push_back(Pdu { segment: first, tail_len: 0, goes_on: true, ..pdu });
        (pdu.head_len, pdu.segment) = (0, rest);
    }
    queue.push_back(pdu);
}

/// Cuts a PDU to parts where markers stand in it. Pooled data is not copied.
fn weave(weaver: &mut Weaver, pdu: &[Pdu], queue: &mut VecDeque<Pdu>) {
    let mut left = pdu.iter().map(Pdu::len).sum::<usize>() as u32;
    queue.extend(weaver.before_pdu().map(|marker| Pdu::part(&marker, Segment::Empty)));
    for whole in pdu {
        let [head, _, tail] = whole.parts();
        let inline = |bytes: &[u8], woven| match woven {
            Woven::Marker(marker) => Pdu::part(&marker, Segment::Empty),
            Woven::Bytes(range) => Pdu::part(&bytes[range], Segment::Empty),
        };
        weaver.weave(head.len(), &mut left, |woven| queue.push_back(inline(head, woven)));
        weaver.weave(whole.segment.len(), &mut left, |woven| match woven {
            Woven::Marker(marker) => queue.push_back(Pdu::part(&marker, Segment::Empty)),
            Woven::Bytes(range) => push_runs(Pdu::part(&[], whole.segment.slice(range)), queue),
        });
        weaver.weave(tail.len(), &mut left, |woven| queue.push_back(inline(tail, woven)));
    }
    if let Some(last) = queue.back_mut() {
        last.goes_on = false;
    }
}

#[cfg(test)]
mod tests {
    use lunette_buffer::{Pool, Run};
    use proptest::collection::vec;
    use proptest::prelude::*;

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
    fn markers_stand_in_headers_segments_and_tails_and_are_not_digested() {
        let mut outbox = filled();
        let login = drain(&mut outbox, 1000);
        assert_eq!(login.len(), 48 + 52 + 12 + 52);
        // As a connection counts: everything up to here was the login.
        outbox.start_markers(Some(32));
        let data: Vec<u8> = (0..61).collect();
        outbox.push([4; BHS_LEN], Segment::owned(data.clone()));
        outbox.push([5; BHS_LEN], Segment::Empty);
        assert_eq!((outbox.pdus(), outbox.owned_bytes(), outbox.segment_bytes()), (2, 61, 61));
        let wire = drain(&mut outbox, 7);
        assert_eq!((outbox.pdus(), outbox.owned_bytes(), outbox.segment_bytes()), (0, 0, 0));

        let padded = [&data[..], &[0; 3]].concat();
        let digest = |bytes: &[u8]| to_wire(crc32c(bytes));
        let first = [&[4; BHS_LEN][..], &digest(&[4; BHS_LEN]), &padded, &digest(&padded)].concat();
        let second = [&[5; BHS_LEN][..], &digest(&[5; BHS_LEN])].concat();
        let mut stream = login.clone();
        for (pdu, pdus) in [(&first, 1), (&second, 2)] {
            for (at, word) in pdu.chunks(4).enumerate() {
                if stream.len() % 40 == 32 {
                    let left = if at == 0 { 0 } else { (pdu.len() - 4 * at) as u32 };
                    stream.extend([left.to_be_bytes(), left.to_be_bytes()].concat());
                }
                stream.extend(word);
            }
            assert!(stream.len() > login.len() + pdus * 60, "each has a marker");
        }
        assert_eq!(wire, stream[login.len()..]);
    }

    /// A loan of `bytes` in runs of these lengths; the last takes the rest.
    fn lent(bytes: &[u8], lens: &[usize]) -> Segment {
        let mut rest = bytes;
        let mut runs = Vec::new();
        for len in lens.iter().copied().chain([usize::MAX]) {
            let (run, later) = rest.split_at(len.min(rest.len()));
            rest = later;
            runs.extend((!run.is_empty()).then(|| Run { memory: run.into(), range: 0..run.len() }));
        }
        let mut buffer = Pool::new(1 << 20).reserve(bytes.len()).unwrap();
        assert!(buffer.lend(runs.into_iter()));
        Segment::Loan(buffer.into_loan().unwrap())
    }

    proptest! {
        #[test]
        fn lent_data_gives_the_same_stream_wherever_its_runs_end(
            segments in vec((vec(any::<u8>(), 1..300), vec(1..100_usize, 0..6), any::<bool>()), 1..6),
            digests in any::<(bool, bool)>(),
            markers in proptest::option::of(16..64_u32),
            step in 1..400_usize,
        ) {
            let mut outboxes = [false, true].map(|lends| {
                let mut outbox = Outbox::default();
                outbox.configure(digests.0, digests.1);
                outbox.start_markers(markers.map(|words| 4 * words));
                for (bytes, lens, ahs) in &segments {
                    let segment = if lends { lent(bytes, lens) } else { Segment::owned(bytes.clone()) };
                    if *ahs {
                        outbox.push_with_ahs([7; BHS_LEN], &[9; 8], segment);
                    } else {
                        outbox.push([7; BHS_LEN], segment);
                    }
                }
                outbox
            });
            let told = |outbox: &Outbox| (outbox.pdus(), outbox.segment_bytes());
            prop_assert_eq!(told(&outboxes[0]), told(&outboxes[1]));
            let [owned, lent] = outboxes.each_mut().map(|outbox| drain(outbox, step));
            prop_assert!(owned == lent);
            prop_assert_eq!(told(&outboxes[1]), (0, 0));
        }
    }

    #[test]
    fn pieces_name_the_buffer_and_what_was_sent_of_it() {
        let buffer = Pool::new(1 << 20).take(100).unwrap().share();
        let mut outbox = Outbox::default();
        outbox.push([1; BHS_LEN], Segment::Shared(buffer.slice(0..50)));
        outbox.sent(BHS_LEN + 7);
        let mut pieces = outbox.pieces();
        assert!(matches!(pieces.next(), Some(Piece::Shared { buffer, sent: 7 }) if buffer.len() == 50));
        assert!(matches!(pieces.next(), Some(Piece::Bytes(pad)) if pad == [0; 2]));
        assert!(pieces.next().is_none());
    }

    #[test]
    fn owned_bytes_are_counted_until_they_are_sent() {
        let mut outbox = filled();
        assert_eq!((outbox.pdus(), outbox.owned_bytes()), (3, 5));
        drain(&mut outbox, 64);
        assert_eq!((outbox.pdus(), outbox.owned_bytes()), (0, 0));
    }
}
