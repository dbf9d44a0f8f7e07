//! The stream that is sent: PDUs, cut into packets, and kept until they are acknowledged.

use std::collections::VecDeque;
use std::iter;
use std::ops::Range;

use lunette_buffer::Payload;
use lunette_pdu::{BHS_LEN, Bhs, Opcode, pad_len};
use lunette_quanta::QuantumSize;
use lunette_session::{OutgoingPdu, Unacknowledged};

/// Zeroes behind a data segment.
static PAD: [u8; 3] = [0; 3];

/// Bytes to be sent, as they lie in memory; no slice is empty.
///
/// Chained iterators over the parts of a PDU were measured to cost 700 instructions more for each packet.
#[derive(Debug, Clone)]
pub struct Slices<'a> {
    header: &'a [u8],
    bytes: &'a [u8],
    pdu: Option<&'a OutgoingPdu>,
    /// The range behind the basic header segment.
    range: Range<usize>,
}

impl<'a> Slices<'a> {
    /// The bytes that lie there.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { header: &[], bytes, pdu: None, range: 0..0 }
    }

    /// The cut, behind a header.
    #[must_use]
    pub fn behind(self, header: &'a [u8]) -> Self {
        Self { header, ..self }
    }

    fn of_pdu(pdu: &'a OutgoingPdu, range: Range<u32>) -> Self {
        Self { header: &[], bytes: &[], pdu: Some(pdu), range: range.start as usize..range.end as usize }
    }
}

impl<'a> Iterator for Slices<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if !self.header.is_empty() {
            return Some(std::mem::take(&mut self.header));
        }
        if !self.bytes.is_empty() {
            return Some(std::mem::take(&mut self.bytes));
        }
        if self.range.is_empty() {
            return None;
        }
        let run = run_at(self.pdu?, self.range.start);
        let run = &run[..run.len().min(self.range.len())];
        self.range.start += run.len();
        (!run.is_empty()).then_some(run)
    }
}

/// The bytes of a PDU that begin `at` bytes behind its basic header segment, to the end of their run.
fn run_at(pdu: &OutgoingPdu, mut at: usize) -> &[u8] {
    if at < pdu.ahs.len() {
        return &pdu.ahs[at..];
    }
    at -= pdu.ahs.len();
    for payload in iter::once(&pdu.data).chain(&pdu.more) {
        if at < payload.len() {
            return payload.run_at(at);
        }
        at -= payload.len();
    }
    PAD[..pad_len(pdu.data_len())].get(at..).unwrap_or_default()
}

/// The part of a PDU that one packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Counts the PDUs of the stream.
    pdu: u64,
    /// In the bytes after the basic header segment.
    start: u32,
    end: u32,
}

impl Cut {
    /// Bytes of payload.
    pub fn payload_len(self) -> usize {
        (self.end - self.start) as usize
    }
}

/// Blocks of a PDU that are quanta with their slots (EDUs), each of which is worth nothing in parts.
#[derive(Debug, Clone, Copy)]
struct Edus {
    size: QuantumSize,
    /// Bytes of the body before the first block that begins in it, modulo the length of a block.
    before: u32,
}

impl Edus {
    /// The offsets of a PDU, if it has any. All of its body is data then.
    fn of(pdu: &OutgoingPdu) -> Option<Self> {
        let size = QuantumSize::of_edu_len(pdu.block_len.into()).filter(|_| pdu.ahs.is_empty())?;
        let len = size.edu_len() as u32;
        let offset = match Bhs::from(pdu.bhs).opcode() {
            Opcode::SCSI_DATA_IN | Opcode::SCSI_DATA_OUT => u32_at(&pdu.bhs, BUFFER_OFFSET),
            _ => 0,
        };
        Some(Self { size, before: (len - offset % len) % len })
    }

    /// Bytes from the end of a block to `end`.
    fn beyond(self, end: u32) -> u32 {
        let len = self.size.edu_len() as u32;
        end.wrapping_add(len - self.before) % len
    }
}

/// Where the buffer offset stands in the headers of Data-In and Data-Out.
const BUFFER_OFFSET: usize = 40;

fn u32_at(bhs: &[u8; BHS_LEN], at: usize) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|i| bhs[at + i]))
}

struct Queued {
    pdu: OutgoingPdu,
    edus: Option<Edus>,
    /// Where it begins in the stream.
    offset: u64,
    len: u32,
    /// The bytes of the data segment in it.
    data_len: u32,
    acknowledged: AcknowledgedPart,
}

/// Which bytes after the basic header segment the peer has.
#[derive(Default)]
struct AcknowledgedPart {
    /// Whether it has the basic header segment and the bytes up to there.
    front: Option<u32>,
    /// The ranges beyond, in order. Rarely more than a few.
    beyond: Vec<Range<u32>>,
}

impl AcknowledgedPart {
    fn insert(&mut self, part: Range<u32>) {
        // The peer mostly has all that is before.
        if self.beyond.is_empty() && part.start <= self.front.unwrap_or(0) {
            self.front = Some(self.front.unwrap_or(0).max(part.end));
            return;
        }
        let at = self.beyond.partition_point(|range| range.start < part.start);
        self.beyond.insert(at, part);
        let mut taken = 0;
        for range in &self.beyond {
            // Only what begins with byte 0 has the basic header segment.
            if range.start > self.front.unwrap_or(0) {
                break;
            }
            self.front = Some(self.front.unwrap_or(0).max(range.end));
            taken += 1;
        }
        self.beyond.drain(..taken);
    }

    fn has(&self, part: &Range<u32>) -> bool {
        self.front.is_some_and(|front| part.end <= front)
            || self.beyond.iter().any(|range| range.start <= part.start && part.end <= range.end)
    }

    fn is_all(&self, len: u32) -> bool {
        self.front == Some(len)
    }
}

/// PDUs on their way to the peer.
#[derive(Default)]
pub struct Outgoing {
    /// The PDUs that are not acknowledged, in the order of the stream.
    queue: VecDeque<Queued>,
    /// The number of the first PDU of the queue.
    first: u64,
    /// The next new bytes to be sent: a PDU, and where in it.
    next: Position,
    /// Where the stream ends.
    end: u64,
    /// The lost cuts, the first lost first.
    lost: VecDeque<Cut>,
    /// Bytes of the queue, sent or not, that the peer has not acknowledged as whole PDUs.
    queued_bytes: usize,
    /// Bytes of data segments of the queue.
    data_bytes: usize,
}

/// Where new bytes begin.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    pdu: u64,
    start: u32,
}

/// Where the bytes of a cut stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The basic header segment of their PDU.
    pub bhs: &'a [u8; BHS_LEN],
    /// The position of the packet's first byte in the stream.
    pub stream_offset: u64,
    /// The position of the payload in its PDU.
    pub pdu_offset: u32,
    /// The quanta, when the payload is whole ones with their slots.
    pub quanta: Option<QuantumSize>,
}

impl Outgoing {
    /// Appends a PDU to the stream. Its data does not lie in files.
    pub fn push(&mut self, pdu: OutgoingPdu) {
        let len = pdu.body_len() as u32;
        let offset = self.end;
        self.end += BHS_LEN as u64 + u64::from(len);
        self.queued_bytes += BHS_LEN + len as usize;
        let edus = Edus::of(&pdu);
        let data_len = pdu.data_len() as u32;
        self.data_bytes += data_len as usize;
        self.queue.push_back(Queued { pdu, edus, offset, len, data_len, acknowledged: AcknowledgedPart::default() });
    }

    /// Bytes that wait to be sent or acknowledged. The caller bounds them: it pushes no more while they are many.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// The unacknowledged rest, from the first PDU with a missing byte on. A buffer that several PDUs share is not free
    /// before the last of them is acknowledged, so what came after a gap counts until the gap is filled.
    pub fn unacknowledged(&self) -> Unacknowledged {
        let bytes = self.queue.front().map_or(0, |front| self.end - front.offset) as usize;
        Unacknowledged { bytes, data_bytes: self.data_bytes }
    }

    /// Where the stream ends, as far as it was pushed.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether everything that was pushed is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next cut, up to `most` bytes of a PDU: a lost one, else new bytes that end before `credit` in the stream.
    pub fn next_cut(&mut self, most: u32, credit: u64) -> Option<Cut> {
        self.next_lost(most).or_else(|| self.next_new(most, credit))
    }

    /// Whether there is something to send within that credit.
    pub fn has_more(&self, credit: u64) -> bool {
        !self.lost.is_empty() || self.needed_credit().is_some_and(|needed| needed <= credit)
    }

    /// Whether new bytes wait for credit alone.
    pub fn waits_for_credit(&self, credit: u64) -> bool {
        self.lost.is_empty() && self.needed_credit().is_some_and(|needed| needed > credit)
    }

    /// The credit that the next new packet needs: for a header and, where its PDU has a body, one byte of that.
    fn needed_credit(&self) -> Option<u64> {
        let (offset, queued) = (self.new_offset()?, self.queued(self.next.pdu)?);
        let header = if self.next.start == 0 { BHS_LEN as u64 } else { 0 };
        Some(offset + header + u64::from(queued.len > self.next.start))
    }

    /// Where the next new bytes stand in the stream.
    fn new_offset(&self) -> Option<u64> {
        let queued = self.queued(self.next.pdu)?;
        let sent_header = if self.next.start > 0 { BHS_LEN as u64 } else { 0 };
        Some(queued.offset + sent_header + u64::from(self.next.start))
    }

    fn next_lost(&mut self, most: u32) -> Option<Cut> {
        while let Some(cut) = self.lost.pop_front() {
            let Some(queued) = self.queued(cut.pdu) else { continue };
            if queued.acknowledged.has(&(cut.start..cut.end)) {
                continue;
            }
            // The path may carry less than it did.
            let end = cut.end.min(queued.end_of_cut(cut.start, most));
            if end < cut.end {
                self.lost.push_front(Cut { start: end, ..cut });
            }
            return Some(Cut { end, ..cut });
        }
        None
    }

    fn next_new(&mut self, most: u32, credit: u64) -> Option<Cut> {
        let Position { pdu, start } = self.next;
        let offset = self.new_offset().filter(|offset| *offset < credit)?;
        let queued = self.queued(pdu)?;
        let header = if start == 0 { BHS_LEN as u64 } else { 0 };
        let room = u32::try_from((credit - offset).checked_sub(header)?).unwrap_or(u32::MAX);
        let end = queued.end_of_cut(start, most.min(room));
        if end == start && queued.len > start {
            return None;
        }
        self.next = if end == queued.len { Position { pdu: pdu + 1, start: 0 } } else { Position { pdu, start: end } };
        Some(Cut { pdu, start, end })
    }

    fn queued(&self, pdu: u64) -> Option<&Queued> {
        self.queue.get(usize::try_from(pdu.checked_sub(self.first)?).ok()?)
    }

    /// Where a cut stands; `None` when all of its PDU is acknowledged.
    pub fn place(&self, cut: Cut) -> Option<Place<'_>> {
        let queued = self.queued(cut.pdu)?;
        let sent_header = if cut.start > 0 { BHS_LEN as u64 } else { 0 };
        let stream_offset = queued.offset + sent_header + u64::from(cut.start);
        let is_whole = |edus: &Edus| cut.start < cut.end && edus.beyond(cut.start) == 0 && edus.beyond(cut.end) == 0;
        let quanta = queued.edus.filter(is_whole).map(|edus| edus.size);
        Some(Place { bhs: &queued.pdu.bhs, stream_offset, pdu_offset: cut.start, quanta })
    }

    /// The payload of a cut, as it lies in memory; nothing when all of its PDU is acknowledged.
    pub fn slices(&self, cut: Cut) -> Slices<'_> {
        self.queued(cut.pdu).map_or(Slices::of(&[]), |queued| Slices::of_pdu(&queued.pdu, cut.start..cut.end))
    }

    /// The peer has a cut.
    pub fn acknowledged(&mut self, cut: Cut) {
        let Some(index) = cut.pdu.checked_sub(self.first).and_then(|index| usize::try_from(index).ok()) else { return };
        let Some(queued) = self.queue.get_mut(index) else { return };
        if queued.acknowledged.is_all(queued.len) {
            return;
        }
        queued.acknowledged.insert(cut.start..cut.end);
        if !queued.acknowledged.is_all(queued.len) {
            return;
        }
        self.queued_bytes -= BHS_LEN + queued.len as usize;
        // What the data occupies is given back at once; the place in the queue when those before are acknowledged, too.
        queued.pdu.data = Payload::Empty;
        queued.pdu.more = Vec::new();
        while let Some(front) = self.queue.front() {
            if !front.acknowledged.is_all(front.len) {
                break;
            }
            self.data_bytes -= front.data_len as usize;
            self.first += 1;
            self.queue.pop_front();
        }
    }

    /// A cut was lost: it is sent again before anything new.
    pub fn lost(&mut self, cut: Cut) {
        self.lost.push_back(cut);
    }
}

impl Queued {
    /// Where a cut of up to `most` bytes that begins at `start` ends: between two quanta where one fits.
    fn end_of_cut(&self, start: u32, most: u32) -> u32 {
        let end = start.saturating_add(most);
        let beyond = self.edus.map_or(0, |edus| edus.beyond(end));
        if end < self.len && beyond < end - start { end - beyond } else { end.min(self.len) }
    }
}

#[cfg(test)]
mod tests;
