//! PDUs that are ready to be sent, as a list of slices.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use lunette_buffer::{Payload, PayloadRef};
use lunette_crc32c::{Crc32c, crc32c, to_wire};
use lunette_pdu::{BHS_LEN, DIGEST_LEN, pad_len};

use crate::markers::{Weaver, Woven};

/// A PDU; or a part of it, when markers or additional header segments stand in it, or its data lies in several places.
struct Pdu {
    head: [u8; BHS_LEN + DIGEST_LEN],
    head_len: u8,
    segment: Payload,
    tail: [u8; 3 + DIGEST_LEN],
    tail_len: u8,
    /// Whether another part of the same PDU follows.
    goes_on: bool,
}

impl Pdu {
    /// A part of a PDU that is neither its header nor its end.
    fn part(bytes: &[u8], segment: Payload) -> Self {
        let mut head = [0; _];
        head[..bytes.len()].copy_from_slice(bytes);
        Self { head, head_len: bytes.len() as u8, segment, tail: [0; _], tail_len: 0, goes_on: true }
    }

    fn pieces(&self) -> [PayloadRef<'_>; 3] {
        let [head, segment, tail] = self.parts().map(PayloadRef::Bytes);
        let segment = match &self.segment {
            Payload::File(slice) => PayloadRef::File { slice, sent: 0 },
            _ => segment,
        };
        [head, segment, tail]
    }

    fn parts(&self) -> [&[u8]; 3] {
        [&self.head[..usize::from(self.head_len)], self.segment.first_run(), &self.tail[..usize::from(self.tail_len)]]
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
    /// PDUs that were ever queued.
    pushed_pdus: u64,
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
    pub(crate) fn push(&mut self, bhs: [u8; BHS_LEN], segment: Payload) {
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
    pub(crate) fn push_with_ahs(&mut self, bhs: [u8; BHS_LEN], ahs: &[u8], segment: Payload) {
        let mut header = [&bhs[..], ahs].concat();
        if self.header_digest {
            header.extend(to_wire(crc32c(&header)));
        }
        let (tail, tail_len) = self.tail(&segment);
        let header = Payload::from(header);
        self.owned_bytes += header.owned_len() + segment.owned_len();
        self.segment_bytes += header.len() + segment.len();
        let end = Pdu { tail, tail_len: tail_len as u8, goes_on: false, ..Pdu::part(&[], segment) };
        self.enqueue_parts([Pdu::part(&[], header), end]);
    }

    /// Appends a PDU of one part.
    #[inline]
    fn enqueue(&mut self, pdu: Pdu) {
        match &mut self.markers {
            _ if matches!(pdu.segment, Payload::Lent(_)) => return self.enqueue_parts([pdu]),
            Markers::Off => {}
            Markers::Login { len } => *len += pdu.len() as u64,
            Markers::On(_) => return self.enqueue_parts([pdu]),
        }
        self.pdus += 1;
        self.queued_pdus += 1;
        self.pushed_pdus += 1;
        self.queue.push_back(pdu);
    }

    /// Appends the parts of one PDU.
    #[inline(never)]
    fn enqueue_parts<const N: usize>(&mut self, pdu: [Pdu; N]) {
        self.pdus += 1;
        self.queued_pdus += 1;
        self.pushed_pdus += 1;
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
    fn tail(&self, segment: &Payload) -> ([u8; 3 + DIGEST_LEN], usize) {
        let pad = pad_len(segment.len());
        if self.data_digest { digested_tail(segment, pad) } else { ([0; _], pad) }
    }

    /// How many PDUs were queued since this was asked last.
    pub(crate) fn take_queued_pdus(&mut self) -> u64 {
        std::mem::take(&mut self.queued_pdus)
    }

    /// What is to be sent, in order; nothing is empty.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = PayloadRef<'_>> {
        let mut skip = self.front_sent;
        self.queue.iter().flat_map(Pdu::pieces).filter_map(move |piece| {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            (skipped < piece.len()).then(|| piece.after(skipped))
        })
    }

    /// The same, where nothing is in files.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces().map(|piece| match piece {
            PayloadRef::Bytes(bytes) => bytes,
            PayloadRef::File { .. } => &[],
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

    /// PDUs that were ever queued: tells when the last one of them has [left](Self::has_left).
    pub(crate) fn pushed_pdus(&self) -> u64 {
        self.pushed_pdus
    }

    /// Whether the socket has taken as many PDUs as were queued then.
    pub(crate) fn has_left(&self, pushed_pdus: u64) -> bool {
        self.pushed_pdus - self.pdus as u64 >= pushed_pdus
    }

    /// Bytes that wait for the socket, but for pads and digests.
    pub(crate) fn unsent_bytes(&self) -> usize {
        (self.segment_bytes + self.pdus * BHS_LEN).saturating_sub(self.front_sent)
    }

    /// Bytes that were made for their PDU and count against no pool.
    pub(crate) fn owned_bytes(&self) -> usize {
        self.owned_bytes
    }
}

/// Pad and digest of a data segment, which has none when it is empty.
fn digested_tail(segment: &Payload, pad: usize) -> ([u8; 3 + DIGEST_LEN], usize) {
    let mut tail = [0; 3 + DIGEST_LEN];
    if segment.first_run().is_empty() {
        return (tail, pad);
    }
    let mut digest = Crc32c::new();
    segment.for_each_run(|run| digest.update(run));
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
    queue.extend(weaver.before_pdu().map(|marker| Pdu::part(&marker, Payload::Empty)));
    for whole in pdu {
        let [head, _, tail] = whole.parts();
        let inline = |bytes: &[u8], woven| match woven {
            Woven::Marker(marker) => Pdu::part(&marker, Payload::Empty),
            Woven::Bytes(range) => Pdu::part(&bytes[range], Payload::Empty),
        };
        weaver.weave(head.len(), &mut left, |woven| queue.push_back(inline(head, woven)));
        weaver.weave(whole.segment.len(), &mut left, |woven| match woven {
            Woven::Marker(marker) => queue.push_back(Pdu::part(&marker, Payload::Empty)),
            Woven::Bytes(range) => push_runs(Pdu::part(&[], whole.segment.slice(range)), queue),
        });
        weaver.weave(tail.len(), &mut left, |woven| queue.push_back(inline(tail, woven)));
    }
    if let Some(last) = queue.back_mut() {
        last.goes_on = false;
    }
}
