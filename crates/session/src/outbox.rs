//! PDUs that are ready to be sent, as a list of slices.

mod sheet;
#[cfg(test)]
mod tests;

use std::collections::{VecDeque, vec_deque};

use lunette_buffer::{Buffer, Payload, PayloadRef};
use lunette_crc32c::{Crc32c, crc32c, to_wire};
use lunette_pdu::{BHS_LEN, DIGEST_LEN, pad_len};

use self::sheet::Sheet;
use crate::OutgoingPdu;

/// A PDU; or a part of it, when it has additional header segments, or its data lies in several places; or several PDUs that were written where they are
/// sent from.
pub(crate) struct Part {
    head: [u8; BHS_LEN + DIGEST_LEN],
    head_len: u8,
    pub(crate) segment: Payload,
    tail: [u8; 3 + DIGEST_LEN],
    tail_len: u8,
    /// See [`OutgoingPdu::block_len`].
    block_len: u16,
    /// PDUs that end with it: none when another part of the same PDU follows.
    pub(crate) ended_pdus: u16,
}

/// The digests that PDUs have.
#[derive(Debug, Clone, Copy, Default)]
struct Digests {
    header: bool,
    data: bool,
}

impl Digests {
    /// Bytes before the data segment.
    fn head_len(self) -> usize {
        BHS_LEN + if self.header { DIGEST_LEN } else { 0 }
    }

    /// Bytes of a PDU with a data segment of `data_len` bytes.
    fn pdu_len(self, data_len: usize) -> usize {
        let digest_len = if self.data && data_len > 0 { DIGEST_LEN } else { 0 };
        self.head_len() + data_len + pad_len(data_len) + digest_len
    }
}

impl Part {
    /// A part that begins with `bytes`, no more than a header, and is not the end of its PDU.
    pub(crate) fn new(bytes: &[u8], segment: Payload) -> Self {
        let mut head = [0; _];
        head[..bytes.len()].copy_from_slice(bytes);
        Self { head, head_len: bytes.len() as u8, segment, tail: [0; _], tail_len: 0, block_len: 0, ended_pdus: 0 }
    }

    /// Of its three pieces the one of that number; it may be empty. There is none after them.
    #[inline]
    fn piece(&self, number: u8) -> Option<PayloadRef<'_>> {
        Some(match (number, &self.segment) {
            (0, _) => PayloadRef::Bytes(&self.head[..usize::from(self.head_len)]),
            (1, Payload::File(slice)) => PayloadRef::File { slice, sent: 0 },
            (1, segment) => PayloadRef::Bytes(segment.first_run()),
            (2, _) => PayloadRef::Bytes(&self.tail[..usize::from(self.tail_len)]),
            _ => return None,
        })
    }

    /// What is in memory: the head, the first run of the segment, and the tail.
    pub(crate) fn bytes(&self) -> [&[u8]; 3] {
        [&self.head[..usize::from(self.head_len)], self.segment.first_run(), &self.tail[..usize::from(self.tail_len)]]
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.head_len) + self.segment.len() + usize::from(self.tail_len)
    }
}

/// The queue between the protocol and the socket.
#[derive(Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Part>,
    /// What follows the queue, while more is written.
    sheet: Option<Sheet>,
    /// Bytes of the first part that the socket has already taken.
    front_sent: usize,
    pdus: usize,
    /// PDUs that were queued since this was asked last.
    queued_pdus: u64,
    /// PDUs that were ever queued.
    pushed_pdus: u64,
    owned_bytes: usize,
    segment_bytes: usize,
    digests: Digests,
}

impl Outbox {
    /// Digests hold for PDUs pushed from now on.
    pub(crate) fn configure(&mut self, header_digest: bool, data_digest: bool) {
        self.digests = Digests { header: header_digest, data: data_digest };
    }

    /// Where a data segment of `data_len` bytes is to be put that [`push_placed`](Self::push_placed) appends. When memory is needed, `memory` is asked for a
    /// buffer of the length that it is given at least; `None` when it has none.
    pub(crate) fn place(&mut self, data_len: usize, memory: impl FnOnce(usize) -> Option<Buffer>) -> Option<&mut [u8]> {
        let len = self.digests.pdu_len(data_len);
        if !self.sheet.as_ref().is_some_and(|sheet| sheet.has_room(len)) {
            let sheet = Sheet::new(memory(len)?);
            if !sheet.has_room(len) {
                return None;
            }
            self.end_sheet();
            self.sheet = Some(sheet);
        }
        Some(self.sheet.as_mut()?.place(data_len, self.digests))
    }

    /// Appends the PDU whose data segment was put into its [`place`](Self::place) just now. The length in `bhs` is that of the segment.
    pub(crate) fn push_placed(&mut self, bhs: &[u8; BHS_LEN], data_len: usize) {
        let Some(sheet) = &mut self.sheet else {
            debug_assert!(false, "there was a place");
            return;
        };
        self.segment_bytes += sheet.push(bhs, data_len, self.digests);
        self.count();
    }

    /// Bytes of the PDUs on the sheet.
    pub(crate) fn sheet_len(&self) -> usize {
        self.sheet.as_ref().map_or(0, Sheet::len)
    }

    /// Bytes of the pool that the sheet takes.
    pub(crate) fn sheet_room(&self) -> usize {
        self.sheet.as_ref().map_or(0, Sheet::room)
    }

    /// Other PDUs follow.
    fn end_sheet(&mut self) {
        if let Some(sheet) = self.sheet.take().filter(|sheet| sheet.len() > 0) {
            self.queue.push_back(sheet.into_part());
        }
    }

    /// Nothing was put into the last place.
    pub(crate) fn leave_place(&mut self) {
        self.sheet.take_if(|sheet| sheet.len() == 0);
    }

    /// Appends a PDU. The header's DataSegmentLength is that of `segment`. When the caller knows the segment's CRC32C, nothing reads the segment for
    /// its digest, unless its length is no multiple of 4, because the digest covers the pad. For `block_len` see [`OutgoingPdu`].
    pub(crate) fn push(&mut self, bhs: [u8; BHS_LEN], segment: Payload, crc: Option<u32>, block_len: u16) {
        self.end_sheet();
        let mut head = [0; BHS_LEN + DIGEST_LEN];
        head[..BHS_LEN].copy_from_slice(&bhs);
        let mut head_len = BHS_LEN;
        if self.digests.header {
            head[BHS_LEN..].copy_from_slice(&to_wire(crc32c(&bhs)));
            head_len += DIGEST_LEN;
        }
        let (tail, tail_len) = match crc {
            Some(crc) if self.digests.data && pad_len(segment.len()) == 0 => known_tail(crc),
            _ => self.tail(&segment),
        };
        self.owned_bytes += segment.owned_len();
        self.segment_bytes += segment.len();
        let (head_len, tail_len) = (head_len as u8, tail_len as u8);
        let part = Part { head, head_len, segment, tail, tail_len, block_len, ended_pdus: 1 };
        self.count();
        match part.segment {
            Payload::Lent(_) => push_runs(part, &mut self.queue),
            _ => self.queue.push_back(part),
        }
    }

    /// Appends a PDU with additional header segments. They are rare, so the header goes as if it were a segment.
    pub(crate) fn push_with_ahs(&mut self, bhs: [u8; BHS_LEN], ahs: &[u8], segment: Payload) {
        self.end_sheet();
        let mut header = [&bhs[..], ahs].concat();
        if self.digests.header {
            header.extend(to_wire(crc32c(&header)));
        }
        let (tail, tail_len) = self.tail(&segment);
        let header = Payload::from(header);
        self.owned_bytes += header.owned_len() + segment.owned_len();
        self.segment_bytes += header.len() + segment.len();
        self.count();
        self.queue.push_back(Part::new(&[], header));
        push_runs(Part { tail, tail_len: tail_len as u8, ended_pdus: 1, ..Part::new(&[], segment) }, &mut self.queue);
    }

    /// Counts a PDU whose parts are appended next.
    #[inline]
    fn count(&mut self) {
        self.pdus += 1;
        self.queued_pdus += 1;
        self.pushed_pdus += 1;
    }

    /// What is to be sent, for a decorator that cuts the parts of a PDU again. Their bytes must stay the same.
    pub(crate) fn parts(&mut self) -> &mut VecDeque<Part> {
        &mut self.queue
    }

    /// Pad and digest, and how long they are.
    #[inline]
    fn tail(&self, segment: &Payload) -> ([u8; 3 + DIGEST_LEN], usize) {
        let pad = pad_len(segment.len());
        if self.digests.data { digested_tail(segment, pad) } else { ([0; _], pad) }
    }

    /// How many PDUs were queued since this was asked last.
    pub(crate) fn take_queued_pdus(&mut self) -> u64 {
        std::mem::take(&mut self.queued_pdus)
    }

    /// What is to be sent, in order; nothing is empty.
    #[inline]
    pub(crate) fn pieces(&self) -> impl Iterator<Item = PayloadRef<'_>> {
        let mut parts = self.queue.iter();
        let sheet = self.sheet.as_ref().map(Sheet::bytes);
        Pieces { part: parts.next(), number: 0, parts, sheet, skip: self.front_sent }
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
        let mut gone = 0;
        for part in &self.queue {
            let part_len = part.len();
            if self.front_sent < part_len {
                break;
            }
            self.front_sent -= part_len;
            self.owned_bytes -= part.segment.owned_len();
            self.segment_bytes -= part.segment.len();
            self.pdus -= usize::from(part.ended_pdus);
            gone += 1;
        }
        // In their place: a part is large to be moved out.
        self.queue.drain(..gone);
        if self.queue.is_empty()
            && let Some(sheet) = self.sheet.take_if(|sheet| self.front_sent >= sheet.len())
        {
            self.front_sent -= sheet.len();
            self.segment_bytes -= sheet.len();
            self.pdus -= usize::from(sheet.pdus());
        }
        debug_assert!(!self.is_empty() || self.front_sent == 0, "more bytes sent than were queued");
    }

    /// Takes the first PDU out, which is as good as sent. There are no digests and no markers, and [`sent`](Self::sent) is not used.
    pub(crate) fn take_pdu(&mut self) -> Option<OutgoingPdu> {
        let mut part = self.take_part()?;
        let (bhs, ahs) = match part.head_len {
            // With additional header segments the header is the segment of a part of its own.
            0 => {
                let header = part.segment.to_vec();
                part = self.take_part()?;
                let (bhs, ahs) = header.split_first_chunk()?;
                (*bhs, ahs.into())
            }
            _ => (*part.head.first_chunk()?, Box::default()),
        };
        let mut pdu = OutgoingPdu { bhs, ahs, data: part.segment, more: Vec::new(), block_len: part.block_len };
        let mut goes_on = part.ended_pdus == 0;
        while goes_on && let Some(part) = self.take_part() {
            goes_on = part.ended_pdus == 0;
            pdu.more.push(part.segment);
        }
        Some(pdu)
    }

    fn take_part(&mut self) -> Option<Part> {
        debug_assert!(self.sheet.is_none(), "a transport that takes PDUs has none that are written as bytes");
        debug_assert_eq!(self.front_sent, 0, "a transport takes bytes or PDUs");
        let part = self.queue.pop_front()?;
        self.owned_bytes -= part.segment.owned_len();
        self.segment_bytes -= part.segment.len();
        self.pdus -= usize::from(part.ended_pdus);
        Some(part)
    }

    /// Forgets what was not sent: there is no socket any more.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.sheet = None;
        (self.front_sent, self.pdus, self.owned_bytes, self.segment_bytes) = (0, 0, 0, 0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.sheet_len() == 0
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

/// The pieces of parts that have not been sent. Nested iterators over lists of pieces were measured to cost a quarter more instructions.
struct Pieces<'a> {
    part: Option<&'a Part>,
    /// Of the next piece of that part.
    number: u8,
    parts: vec_deque::Iter<'a, Part>,
    /// What comes behind them.
    sheet: Option<&'a [u8]>,
    /// Bytes that have been sent.
    skip: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = PayloadRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<PayloadRef<'a>> {
        loop {
            let piece = match self.part {
                Some(part) => {
                    let Some(piece) = part.piece(self.number) else {
                        (self.part, self.number) = (self.parts.next(), 0);
                        continue;
                    };
                    self.number += 1;
                    piece
                }
                None => PayloadRef::Bytes(self.sheet.take()?),
            };
            let skipped = self.skip.min(piece.len());
            self.skip -= skipped;
            if skipped < piece.len() {
                return Some(piece.after(skipped));
            }
        }
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

/// A digest that the caller knows.
fn known_tail(crc: u32) -> ([u8; 3 + DIGEST_LEN], usize) {
    let mut tail = [0; 3 + DIGEST_LEN];
    tail[..DIGEST_LEN].copy_from_slice(&to_wire(crc));
    (tail, DIGEST_LEN)
}

/// Appends a part, cut so that each segment lies in one place.
#[inline(never)]
fn push_runs(mut part: Part, queue: &mut VecDeque<Part>) {
    while let Some((first, rest)) = part.segment.split_run() {
        queue.push_back(Part { segment: first, tail_len: 0, ended_pdus: 0, ..part });
        (part.head_len, part.segment) = (0, rest);
    }
    queue.push_back(part);
}
