//! PDUs that are ready to be sent, as a list of slices.

mod inline;
mod sheet;
#[cfg(test)]
mod tests;

use std::collections::{VecDeque, vec_deque};

use lunette_buffer::{Buffer, Payload, PayloadRef};
use lunette_crc32c::{Crc32c, crc32c, to_wire};
use lunette_pdu::{BHS_LEN, DIGEST_LEN, pad_len};

use self::inline::Inline;
use self::sheet::Sheet;
use crate::OutgoingPdu;

/// A PDU; or a part of it, when its data lies in several places; or several PDUs without data; or several that were
/// written where they are sent from.
///
/// Its head (header with digest) and its tail (pad and digest) are [`Inline`] bytes of the outbox, those of the next
/// part right behind them. So what lies between two segments is one slice.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) head_len: u32,
    pub(crate) segment: Payload,
    pub(crate) tail_len: u8,
    /// The block length, as in [`OutgoingPdu::block_len`].
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
    /// A part without bytes around its segment, which is not the end of its PDU.
    pub(crate) fn of(segment: Payload) -> Self {
        Self { segment, ..Self::default() }
    }

    /// Bytes of head and tail.
    pub(crate) fn inline_len(&self) -> usize {
        self.head_len as usize + usize::from(self.tail_len)
    }

    pub(crate) fn len(&self) -> usize {
        self.inline_len() + self.segment.len()
    }

    /// The length of each of the PDUs that it is made of, when they are nothing but headers.
    #[inline]
    fn header_len(&self) -> Option<u32> {
        let is_headers = matches!(self.segment, Payload::Empty) && self.tail_len == 0;
        (is_headers && self.ended_pdus > 0).then(|| self.head_len / u32::from(self.ended_pdus))
    }

    /// The part of its segment in memory, or its place in a file.
    #[inline]
    fn segment(&self) -> PayloadRef<'_> {
        match &self.segment {
            Payload::File(slice) => PayloadRef::File { slice, sent: 0 },
            segment => PayloadRef::Bytes(segment.first_run()),
        }
    }
}

/// The queue between the protocol and the socket.
#[derive(Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Part>,
    /// Heads and tails of the queue.
    inline: Inline,
    /// Headers without data that follow each other may be one part.
    joins_headers: bool,
    /// The bytes behind the queue, while more is written.
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

    /// Where a data segment of `data_len` bytes is to be put that [`push_placed`](Self::push_placed) appends. When
    /// memory is needed, `memory` is asked for a buffer of the length that it is given at least; `None` when it has
    /// none.
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

    /// Appends the PDU whose data segment was put into its [`place`](Self::place) just now. The length in `bhs` is that
    /// of the segment.
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
    #[inline]
    fn end_sheet(&mut self) {
        if self.sheet.is_some() {
            self.queue_sheet();
        }
    }

    #[inline(never)]
    fn queue_sheet(&mut self) {
        if let Some(sheet) = self.sheet.take().filter(|sheet| sheet.len() > 0) {
            self.queue.push_back(sheet.into_part());
        }
    }

    /// Nothing was put into the last place.
    pub(crate) fn leave_place(&mut self) {
        self.sheet.take_if(|sheet| sheet.len() == 0);
    }

    /// From now on, headers without data that follow each other may be one part: nothing looks at
    /// [parts](Self::append).
    pub(crate) fn join_headers(&mut self) {
        self.joins_headers = true;
    }

    /// Appends a PDU. The header's DataSegmentLength is that of `segment`. When the caller knows the segment's CRC32C,
    /// nothing reads the segment for its digest, unless its length is no multiple of 4, because the digest covers the
    /// pad. For `block_len` see [`OutgoingPdu`].
    #[inline]
    pub(crate) fn push(&mut self, bhs: [u8; BHS_LEN], segment: Payload, crc: Option<u32>, block_len: u16) {
        if matches!(segment, Payload::Empty) {
            return self.push_header(bhs);
        }
        let head_len = self.push_head(&bhs);
        self.push_segment(head_len, segment, crc, block_len);
    }

    /// Appends a PDU that is nothing but a header.
    #[inline]
    pub(crate) fn push_header(&mut self, bhs: [u8; BHS_LEN]) {
        let head_len = self.push_head(&bhs) as u32;
        self.count();
        if self.joins_headers
            && let Some(last) = self.queue.back_mut()
            && last.ended_pdus < u16::MAX
            && last.header_len() == Some(head_len)
        {
            last.head_len += head_len;
            last.ended_pdus += 1;
        } else {
            self.queue.push_back(Part { head_len, ended_pdus: 1, ..Part::default() });
        }
    }

    /// Appends a PDU with additional header segments.
    pub(crate) fn push_with_ahs(&mut self, bhs: [u8; BHS_LEN], ahs: &[u8], segment: Payload) {
        self.end_sheet();
        self.inline.push(&bhs);
        self.inline.push(ahs);
        let mut head_len = BHS_LEN + ahs.len();
        if self.digests.header {
            let mut digest = Crc32c::new();
            digest.update(&bhs);
            digest.update(ahs);
            self.inline.push(&to_wire(digest.finish()));
            head_len += DIGEST_LEN;
        }
        self.push_segment(head_len, segment, None, 0);
    }

    /// Appends a header with its digest. Gives how long they are.
    #[inline]
    fn push_head(&mut self, bhs: &[u8; BHS_LEN]) -> usize {
        self.end_sheet();
        self.inline.push(bhs);
        if !self.digests.header {
            return BHS_LEN;
        }
        self.inline.push(&to_wire(crc32c(bhs)));
        BHS_LEN + DIGEST_LEN
    }

    /// Appends the rest of a PDU, whose head is there.
    #[inline]
    fn push_segment(&mut self, head_len: usize, segment: Payload, crc: Option<u32>, block_len: u16) {
        self.count();
        let head_len = head_len as u32;
        self.owned_bytes += segment.owned_len();
        self.segment_bytes += segment.len();
        let tail_len = self.push_tail(&segment, crc) as u8;
        let part = Part { head_len, segment, tail_len, block_len, ended_pdus: 1 };
        match part.segment {
            Payload::Lent(_) => push_runs(part, &mut self.queue),
            _ => self.queue.push_back(part),
        }
    }

    /// Appends pad and digest of a segment. Gives how long they are.
    #[inline]
    fn push_tail(&mut self, segment: &Payload, crc: Option<u32>) -> usize {
        let pad_len = pad_len(segment.len());
        self.inline.push(&[0; 3][..pad_len]);
        if !self.digests.data || segment.is_empty() {
            return pad_len;
        }
        let crc = crc.filter(|_| pad_len == 0).unwrap_or_else(|| crc_of(segment, pad_len));
        self.inline.push(&to_wire(crc));
        pad_len + DIGEST_LEN
    }

    /// Counts a PDU whose parts are appended next.
    #[inline]
    fn count(&mut self) {
        self.pdus += 1;
        self.queued_pdus += 1;
        self.pushed_pdus += 1;
    }

    /// Appends bytes that an earlier process has left to be sent, from any place of a PDU on.
    pub(crate) fn push_left(&mut self, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let segment = Payload::from(bytes);
        self.pdus += 1;
        self.pushed_pdus += 1;
        self.owned_bytes += segment.owned_len();
        self.segment_bytes += segment.len();
        self.queue.push_back(Part { ended_pdus: 1, ..Part::of(segment) });
    }

    /// Parts of the queue.
    pub(crate) fn parts(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of the parts from that number on.
    pub(crate) fn len_from(&self, first: usize) -> usize {
        self.queue.range(first..).map(Part::len).sum()
    }

    /// Takes the parts from that number on out, with the bytes around their segments, for a decorator that
    /// [appends](Self::append) them again, cut.
    pub(crate) fn cut_off(&mut self, first: usize, parts: &mut Vec<Part>, inline: &mut Vec<u8>) {
        parts.extend(self.queue.drain(first..));
        self.inline.cut_off(parts.iter().map(Part::inline_len).sum(), inline);
    }

    /// Appends a part that begins with `head` and is not the end of its PDU, which has been counted.
    pub(crate) fn append(&mut self, head: &[u8], segment: Payload) {
        self.inline.push(head);
        self.queue.push_back(Part { head_len: head.len() as u32, ..Part::of(segment) });
    }

    /// The part that was appended last is the end of its PDU.
    pub(crate) fn end_pdu(&mut self) {
        if let Some(last) = self.queue.back_mut() {
            last.ended_pdus = 1;
        }
    }

    /// How many PDUs were queued since this was asked last.
    pub(crate) fn take_queued_pdus(&mut self) -> u64 {
        std::mem::take(&mut self.queued_pdus)
    }

    /// The pieces to be sent, in order; none is empty.
    #[inline]
    pub(crate) fn pieces(&self) -> Pieces<'_> {
        let sheet = self.sheet.as_ref().map(Sheet::bytes);
        Pieces {
            parts: self.queue.iter(),
            inline: self.inline.bytes(),
            segment: None,
            tail_len: 0,
            sheet,
            skip: self.front_sent,
        }
    }

    /// Whether bytes are to be sent from a file.
    pub(crate) fn has_files(&self) -> bool {
        self.queue.iter().any(|part| matches!(part.segment, Payload::File(_)))
    }

    /// The slices to be sent, where nothing is in files.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces().map(|piece| match piece {
            PayloadRef::Bytes(bytes) => bytes,
            PayloadRef::File { .. } => &[],
        })
    }

    /// The socket has taken `len` bytes from the front.
    pub(crate) fn sent(&mut self, len: usize) {
        self.front_sent += len;
        let (mut gone, mut inline_len) = (0, 0);
        for part in &self.queue {
            let segment_len = part.segment.len();
            let part_len = part.inline_len() + segment_len;
            if self.front_sent < part_len {
                break;
            }
            self.front_sent -= part_len;
            self.owned_bytes -= part.segment.owned_len();
            self.segment_bytes -= segment_len;
            self.pdus -= usize::from(part.ended_pdus);
            inline_len += part.inline_len();
            gone += 1;
        }
        self.queue.drain(..gone);
        self.inline.drop_front(inline_len);
        self.drop_headers();
        if self.queue.is_empty()
            && let Some(sheet) = self.sheet.take_if(|sheet| self.front_sent >= sheet.len())
        {
            self.front_sent -= sheet.len();
            self.segment_bytes -= sheet.len();
            self.pdus -= usize::from(sheet.pdus());
        }
        debug_assert!(!self.is_empty() || self.front_sent == 0, "more bytes sent than were queued");
    }

    /// Counts the headers at the front that have been sent, though others of their part have not.
    fn drop_headers(&mut self) {
        if self.front_sent > 0
            && let Some(front) = self.queue.front_mut()
            && let Some(header_len) = front.header_len()
        {
            let gone = self.front_sent as u32 / header_len;
            let gone_len = gone * header_len;
            front.head_len -= gone_len;
            front.ended_pdus -= gone as u16;
            self.pdus -= gone as usize;
            self.front_sent -= gone_len as usize;
            self.inline.drop_front(gone_len as usize);
        }
    }

    /// Takes the first PDU out, which is as good as sent. There are no digests and no markers, and [`sent`](Self::sent)
    /// is not used.
    pub(crate) fn take_pdu(&mut self) -> Option<OutgoingPdu> {
        debug_assert!(self.sheet.is_none(), "a transport that takes PDUs has none that are written as bytes");
        debug_assert_eq!(self.front_sent, 0, "a transport takes bytes or PDUs");
        let front = self.queue.front()?;
        let head_len = front.header_len().unwrap_or(front.head_len) as usize;
        let (bhs, ahs) = self.inline.bytes().get(..head_len)?.split_first_chunk()?;
        let (bhs, ahs) = (*bhs, ahs.into());
        if front.ended_pdus > 1 {
            self.front_sent = head_len;
            self.drop_headers();
            return Some(OutgoingPdu { bhs, ahs, data: Payload::Empty, more: Vec::new(), block_len: 0 });
        }
        let mut part = self.take_part()?;
        self.inline.drop_front(part.inline_len());
        let data = std::mem::take(&mut part.segment);
        let mut pdu = OutgoingPdu { bhs, ahs, data, more: Vec::new(), block_len: part.block_len };
        while part.ended_pdus == 0
            && let Some(next) = self.take_part()
        {
            part = next;
            self.inline.drop_front(part.inline_len());
            pdu.more.push(std::mem::take(&mut part.segment));
        }
        Some(pdu)
    }

    /// Takes the first part out of the queue, but for its bytes.
    #[inline]
    fn take_part(&mut self) -> Option<Part> {
        let part = self.queue.pop_front()?;
        self.owned_bytes -= part.segment.owned_len();
        self.segment_bytes -= part.segment.len();
        self.pdus -= usize::from(part.ended_pdus);
        Some(part)
    }

    /// Forgets what was not sent: there is no socket any more.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.inline.clear();
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

/// The pieces of parts that have not been sent. Nested iterators over lists of pieces were measured to cost a quarter
/// more instructions.
#[derive(Default)]
pub(crate) struct Pieces<'a> {
    parts: vec_deque::Iter<'a, Part>,
    /// Heads and tails that are still to come.
    inline: &'a [u8],
    /// The segment behind the last bytes, and the length of the tail behind it.
    segment: Option<PayloadRef<'a>>,
    tail_len: u8,
    /// The bytes behind all parts.
    sheet: Option<&'a [u8]>,
    /// Bytes that have been sent.
    skip: usize,
}

impl<'a> Pieces<'a> {
    /// The bytes up to the next segment, or to the end of all parts; there may be none.
    #[inline]
    fn next_inline(&mut self) -> &'a [u8] {
        let mut len = usize::from(std::mem::take(&mut self.tail_len));
        for part in &mut self.parts {
            len += part.head_len as usize;
            if !matches!(part.segment, Payload::Empty) {
                (self.segment, self.tail_len) = (Some(part.segment()), part.tail_len);
                break;
            }
            len += usize::from(part.tail_len);
        }
        let (bytes, rest) = self.inline.split_at(len);
        self.inline = rest;
        bytes
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = PayloadRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<PayloadRef<'a>> {
        loop {
            let piece = match self.segment.take() {
                Some(segment) => segment,
                None => match self.next_inline() {
                    [] if self.segment.is_none() => PayloadRef::Bytes(self.sheet.take()?),
                    bytes => PayloadRef::Bytes(bytes),
                },
            };
            let skipped = self.skip.min(piece.len());
            self.skip -= skipped;
            if skipped < piece.len() {
                return Some(piece.after(skipped));
            }
        }
    }
}

/// The CRC32C of a data segment with its pad.
fn crc_of(segment: &Payload, pad_len: usize) -> u32 {
    let mut digest = Crc32c::new();
    segment.for_each_run(|run| digest.update(run));
    digest.update(&[0; 3][..pad_len]);
    digest.finish()
}

/// Appends a part, cut so that each segment lies in one place. Its tail comes behind the last.
#[inline(never)]
fn push_runs(mut part: Part, queue: &mut VecDeque<Part>) {
    while let Some((first, rest)) = part.segment.split_run() {
        queue.push_back(Part { segment: first, tail_len: 0, ended_pdus: 0, ..part });
        (part.head_len, part.segment) = (0, rest);
    }
    queue.push_back(part);
}
