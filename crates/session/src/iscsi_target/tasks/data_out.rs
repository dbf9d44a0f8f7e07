//! Collecting the data of one task: immediate, unsolicited and solicited (RFC 7143 sections 4.2.5.2 and 11.7).
//!
//! This is bookkeeping only. Where the bytes go is decided here; that they arrived whole is the receiver's word.

use std::collections::VecDeque;
use std::ops::Range;

use lunette_buffer::Buffer;
use lunette_pdu::{DataOut, TargetTransferTag};

use crate::extents::{Extents, ExtentsError};
use crate::limits::MAX_OUTSTANDING_R2T;

/// A rule that a Data-Out PDU broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DataOutError {
    #[error("DataSN {got} where {expected} was due")]
    DataSn { got: u32, expected: u32 },
    #[error("offset {got} where {expected} was due")]
    Offset { got: u32, expected: u32 },
    #[error("bytes up to {got} in a sequence that ends at {end}")]
    TooFar { got: u64, end: u32 },
    #[error("{len} bytes at offset {offset}: {why}")]
    Range { offset: u32, len: usize, why: ExtentsError },
    #[error("the F bit does not stand at the end of the sequence")]
    Final,
    #[error("unsolicited data where none was announced")]
    Unannounced,
}

impl DataOutError {
    /// Sense data for the task, in fixed format: ABORTED COMMAND with the additional sense of RFC 7143 section
    /// 11.4.7.2.
    pub(crate) fn sense(self) -> Vec<u8> {
        let [code, qualifier] = match self {
            // Protocol service CRC error: what a lost PDU looks like.
            Self::DataSn { .. } | Self::Offset { .. } | Self::Range { .. } => [0x47, 0x05],
            // Incorrect amount of data.
            Self::TooFar { .. } | Self::Final => [0x0c, 0x0d],
            // Unexpected unsolicited data.
            Self::Unannounced => [0x0c, 0x0c],
        };
        vec![0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, code, qualifier, 0, 0, 0, 0]
    }
}

/// A run of Data-Out PDUs that ends with the F bit. It covers a range, in the order of its bytes or in any (RFC 7143
/// section 13.18).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sequence {
    start: u32,
    end: u32,
    /// No PDU of it has reached further yet. In order, this is where the next one begins.
    reach: u32,
    /// Bytes that have come. None comes twice, so they are all when they are as many as the range has.
    filled: u32,
    /// Counts the PDUs as they are sent, whatever the order of their bytes (RFC 7143 section 11.7.5).
    data_sn: u32,
    /// A solicited sequence must fill its R2T; an unsolicited one may end before its limit.
    exact: bool,
    /// PDUs of it were lost on the way.
    has_gaps: bool,
}

impl Sequence {
    fn new(range: Range<u32>, exact: bool) -> Self {
        Self { start: range.start, end: range.end, reach: range.start, filled: 0, data_sn: 0, exact, has_gaps: false }
    }

    /// Checks the next PDU. True when it is the last one.
    fn accept(&mut self, pdu: &DataOut, rules: DataRules) -> Result<bool, DataOutError> {
        let DataRules { in_order, recovers } = rules;
        self.check_number(pdu, recovers)?;
        self.check_place(pdu, in_order)?;
        let len = pdu.data_segment_len as u32;
        self.reach = self.reach.max(pdu.buffer_offset + len);
        // Bytes of a task that has failed may come again and again.
        self.filled = self.filled.saturating_add(len);
        let full = self.filled == self.end - self.start;
        if (full && !pdu.final_) || (self.exact && pdu.final_ && !full && !self.has_gaps) {
            return Err(DataOutError::Final);
        }
        Ok(pdu.final_)
    }

    /// RFC 7143 section 7.9: a number that is left out tells of a PDU that was lost.
    fn check_number(&mut self, pdu: &DataOut, recovers: bool) -> Result<(), DataOutError> {
        if pdu.data_sn > self.data_sn && recovers {
            self.has_gaps = true;
        } else if pdu.data_sn != self.data_sn {
            return Err(DataOutError::DataSn { got: pdu.data_sn, expected: self.data_sn });
        }
        self.data_sn = pdu.data_sn.wrapping_add(1);
        Ok(())
    }

    fn check_place(&self, pdu: &DataOut, in_order: bool) -> Result<(), DataOutError> {
        let got = pdu.buffer_offset;
        let is_next = got == self.reach || (self.has_gaps && got > self.reach);
        if (in_order && !is_next) || got < self.start {
            let expected = if in_order { self.reach } else { self.start };
            return Err(DataOutError::Offset { got, expected });
        }
        let reach = u64::from(got) + pdu.data_segment_len as u64;
        if reach > u64::from(self.end) {
            return Err(DataOutError::TooFar { got: reach, end: self.end });
        }
        Ok(())
    }
}

/// The rules for the data of a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataRules {
    /// DataPDUInOrder.
    pub(crate) in_order: bool,
    /// PDUs that are lost are asked for again.
    pub(crate) recovers: bool,
}

/// An R2T to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Solicitation {
    pub(crate) r2t_sn: u32,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

/// The sequences of one task, some of which have ended.
pub(crate) type Sequences = VecDeque<Option<Sequence>>;

/// The data of one task on its way.
#[derive(Debug)]
pub(crate) struct Collector {
    /// Where it goes; none before the device has said, and none when it is not wanted any more.
    buffer: Option<Buffer>,
    /// Bytes that are wanted: the buffer's length, or less when the initiator announced less.
    wanted: u32,
    /// The bytes that have arrived and been verified.
    verified: u32,
    /// Bytes whose header has been accepted.
    arrived: Extents,
    /// Bytes that need no R2T: they have come, or have been asked for.
    asked: Extents,
    unsolicited: Option<Sequence>,
    /// By transfer tag, from `first_ttt` on. A sequence that has ended leaves its place when all before it have.
    solicited: Sequences,
    first_ttt: u16,
    outstanding: u32,
    /// A PDU whose header has been accepted and whose data segment has not been verified.
    arriving: bool,
    next_r2t_sn: u32,
    /// Immediate data that was verified before the driver has said where it goes.
    brought: Vec<u8>,
    /// The command has come again: so does its unsolicited data.
    repeats: bool,
    /// Something came or was asked for since [`is_overdue`](Self::is_overdue) looked last.
    moved: bool,
    /// R2Ts were sent again, and nothing has come since.
    asked_again: bool,
}

impl Collector {
    /// `immediate` bytes come with the command. `unsolicited_end` is how far unsolicited Data-Out PDUs may reach, when
    /// the command announced some.
    pub(crate) fn new(immediate: u32, unsolicited_end: Option<u32>) -> Self {
        Self {
            buffer: None,
            wanted: 0,
            verified: 0,
            arrived: Extents::up_to(immediate),
            asked: Extents::up_to(immediate),
            unsolicited: unsolicited_end.map(|end| Sequence::new(immediate..end, false)),
            solicited: VecDeque::new(),
            first_ttt: 0,
            outstanding: 0,
            arriving: immediate > 0,
            next_r2t_sn: 0,
            brought: Vec::new(),
            repeats: false,
            moved: true,
            asked_again: false,
        }
    }

    /// Uses the memory of another task's sequences, which are gone, unless it has some.
    pub(crate) fn use_memory(&mut self, sequences: &mut Sequences) {
        if sequences.capacity() > 0 && self.solicited.capacity() == 0 {
            std::mem::swap(&mut self.solicited, sequences);
        }
    }

    /// Leaves it to another task.
    pub(crate) fn leave_memory(&mut self, sequences: &mut Sequences) {
        if self.solicited.capacity() > 0 {
            self.solicited.clear();
            std::mem::swap(&mut self.solicited, sequences);
        }
    }

    /// Names the place of the data. `announced` is what the initiator will send at most.
    pub(crate) fn want(&mut self, buffer: Buffer, announced: u32) {
        self.wanted = announced.min(u32::try_from(buffer.len()).unwrap_or(u32::MAX));
        self.buffer = Some(buffer);
        if !self.brought.is_empty() {
            self.take_brought();
        }
    }

    fn take_brought(&mut self) {
        let brought = std::mem::take(&mut self.brought);
        let len = brought.len() as u32;
        let place = self.place(0, len);
        let kept = place.len();
        place.copy_from_slice(&brought[..kept]);
        self.verified(0, len);
    }

    /// The immediate data has been verified already.
    pub(crate) fn bring(&mut self, data: Vec<u8>) {
        self.arriving = false;
        self.brought = data;
    }

    /// The data is not wanted any more. What is under way is still checked, then dropped.
    pub(crate) fn discard(&mut self) {
        self.buffer = None;
        self.wanted = 0;
        self.brought = Vec::new();
    }

    /// The command has come again, though it was not lost. Its unsolicited data will come again too: what is left of
    /// the first run will not.
    pub(crate) fn repeat(&mut self) {
        if self.unsolicited.is_some() {
            self.end_sequence(TargetTransferTag::RESERVED);
        }
        self.repeats = true;
    }

    /// Whether unsolicited data belongs to such a repetition, and is dropped.
    pub(crate) fn skips_repetition(&mut self, last: bool) -> bool {
        let skips = self.repeats;
        self.repeats &= !last;
        skips
    }

    /// Whether any data is still to come.
    pub(crate) fn open(&self) -> bool {
        self.arriving || self.unsolicited.is_some() || self.outstanding > 0
    }

    /// R2Ts that have been sent.
    pub(crate) fn r2ts(&self) -> u32 {
        self.next_r2t_sn
    }

    /// Checks a Data-Out header against what is expected of its sequence.
    pub(crate) fn accept(&mut self, pdu: &DataOut, rules: DataRules) -> Result<(), DataOutError> {
        let (offset, len) = (pdu.buffer_offset, pdu.data_segment_len);
        let sequence = if pdu.ttt.is_reserved() { self.unsolicited.as_mut() } else { self.sequence(pdu.ttt) };
        let sequence = sequence.ok_or(DataOutError::Unannounced)?;
        let last = sequence.accept(pdu, rules)?;
        let lacks = (last && sequence.has_gaps).then_some(sequence.start..sequence.end);
        // The sequence has checked that the end is no overflow.
        let range = offset..offset + len as u32;
        self.arrived.insert(range).map_err(|why| DataOutError::Range { offset, len, why })?;
        self.arriving = true;
        (self.moved, self.asked_again) = (true, false);
        if last {
            self.end_sequence(pdu.ttt);
        }
        lacks.map_or(Ok(()), |range| self.ask_for_missing(range))
    }

    /// Asks for the bytes of this range that will not come any more, except those that were asked for once more
    /// meanwhile.
    fn ask_for_missing(&mut self, range: Range<u32>) -> Result<(), DataOutError> {
        // All gaps at once: one after the other would be the square of them.
        let (offset, len) = (range.start, range.len());
        let place = |why| DataOutError::Range { offset, len, why };
        self.asked.copy_within(&range, &self.arrived).map_err(place)?;
        let overlaps = |other: &&Sequence| other.start < range.end && range.start < other.end;
        for Sequence { start, end, .. } in self.solicited.iter().flatten().filter(overlaps) {
            let forgotten: Vec<Range<u32>> = self.asked.missing(*start..*end).collect();
            for gap in forgotten {
                self.asked.insert(gap).map_err(place)?;
            }
        }
        Ok(())
    }

    /// Whether data is outstanding and nothing has moved since this was asked last.
    pub(crate) fn is_overdue(&mut self) -> bool {
        let moved = std::mem::take(&mut self.moved);
        !moved && !self.arriving && self.open()
    }

    /// Waits no longer for data that is overdue. First, R2Ts without an answer count as lost: they are
    /// [outstanding](Self::outstanding) still and may be sent again, as they were. True then. Later the data counts as
    /// lost, and `solicit` asks for it (a recovery R2T because of a reception timeout).
    pub(crate) fn give_up(&mut self) -> bool {
        let unanswered = self.solicited.iter().flatten().any(|sequence| sequence.data_sn == 0);
        if unanswered && !std::mem::replace(&mut self.asked_again, true) {
            return true;
        }
        let announced = self.unsolicited.is_some();
        self.interrupt();
        // What of it comes late is dropped.
        self.repeats = announced;
        false
    }

    fn end_sequence(&mut self, ttt: TargetTransferTag) {
        if ttt.is_reserved() {
            self.unsolicited = None;
            // What it has left out will be asked for.
            self.asked = self.arrived.clone();
            return;
        }
        let at = self.index(ttt);
        if self.solicited.get_mut(at).and_then(Option::take).is_some() {
            self.outstanding -= 1;
        }
        while self.solicited.front().is_some_and(Option::is_none) {
            self.solicited.pop_front();
            self.first_ttt = self.first_ttt.wrapping_add(1);
        }
    }

    fn index(&self, ttt: TargetTransferTag) -> usize {
        usize::from((ttt.0 as u16).wrapping_sub(self.first_ttt))
    }

    fn sequence(&mut self, ttt: TargetTransferTag) -> Option<&mut Sequence> {
        let at = self.index(ttt);
        self.solicited.get_mut(at)?.as_mut()
    }

    /// The R2Ts that wait for data, with their tags; `slot` is the upper half of these.
    pub(crate) fn outstanding(&self, slot: u16) -> impl Iterator<Item = (TargetTransferTag, Solicitation)> {
        let first_sn = self.next_r2t_sn.wrapping_sub(self.solicited.len() as u32);
        self.solicited.iter().zip(0_u32..).filter_map(move |(sequence, at)| {
            let Sequence { start, end, .. } = (*sequence)?;
            let ttt = TargetTransferTag(u32::from(slot) << 16 | u32::from(self.first_ttt.wrapping_add(at as u16)));
            Some((ttt, Solicitation { r2t_sn: first_sn.wrapping_add(at), offset: start, len: end - start }))
        })
    }

    /// Whether `ttt` belongs to an R2T of this task that is outstanding.
    pub(crate) fn solicits(&self, ttt: TargetTransferTag) -> bool {
        matches!(self.solicited.get(self.index(ttt)), Some(Some(_)))
    }

    /// Where bytes `offset..offset + len` of the task go. What lies beyond is to be dropped.
    pub(crate) fn place(&mut self, offset: u32, len: u32) -> &mut [u8] {
        let range = self.wanted_part(offset, len);
        self.buffer.as_mut().and_then(|buffer| buffer.get_mut(range)).unwrap_or_default()
    }

    /// Notes that these bytes have arrived and been verified.
    pub(crate) fn verified(&mut self, offset: u32, len: u32) {
        self.arriving = false;
        self.verified += self.wanted_part(offset, len).len() as u32;
    }

    /// Notes that these bytes of an accepted header did not arrive whole: instead of `verified`, when the task can go
    /// on. Bytes that never arrived may be reported too, when their sequence will not bring them any more. `solicit`
    /// asks for them again: a recovery R2T (RFC 7143 section 7.7) is an R2T like any other, with the next R2TSN and a
    /// tag of its own. An error means that the task cannot go on.
    pub(crate) fn lost(&mut self, offset: u32, len: u32) -> Result<(), DataOutError> {
        let range = offset..offset.saturating_add(len);
        let place = |why| DataOutError::Range { offset, len: len as usize, why };
        self.arriving = false;
        self.arrived.remove(&range).map_err(place)?;
        self.asked.remove(&range).map_err(place)
    }

    /// The stream is gone. What was under way does not come any more and will be asked for again, on another
    /// connection.
    pub(crate) fn interrupt(&mut self) {
        self.arriving = false;
        self.repeats = false;
        self.unsolicited = None;
        self.solicited.clear();
        self.outstanding = 0;
        self.asked = self.arrived.clone();
    }

    /// Interrupts the task while these bytes were arriving. When they cannot be told from the others, all of them come
    /// again.
    pub(crate) fn interrupt_within(&mut self, offset: u32, len: u32) {
        if self.arrived.remove(&(offset..offset.saturating_add(len))).is_err() {
            self.arrived = Extents::default();
            self.verified = 0;
            self.brought = Vec::new();
        }
        self.interrupt();
    }

    /// Goes on over another connection. RFC 7143 section 7.2.2: the initiator has received the R2Ts before
    /// `exp_data_sn`; a number that none of them had means nothing (section 11.5.6). The next R2T is numbered after
    /// these.
    pub(crate) fn resume(&mut self, exp_data_sn: u32) {
        if exp_data_sn <= self.next_r2t_sn {
            self.next_r2t_sn = exp_data_sn;
        }
    }

    /// The next R2T, when one is due: nothing is asked for while unsolicited data is under way, and no more than
    /// `at_most` sequences at a time. The lowest bytes that are missing come first.
    pub(crate) fn solicit(&mut self, max_burst_len: u32, at_most: u32) -> Option<Solicitation> {
        let full = self.outstanding >= at_most || self.solicited.len() >= MAX_OUTSTANDING_R2T as usize;
        if full || self.unsolicited.is_some() {
            return None;
        }
        let gap = self.asked.missing(0..self.wanted).next()?;
        let len = max_burst_len.min(gap.end - gap.start);
        // It fills a gap from its lower end, or begins at the first byte: there is always a place for it.
        self.asked.insert(gap.start..gap.start + len).ok()?;
        let r2t_sn = self.next_r2t_sn;
        self.next_r2t_sn += 1;
        Some(Solicitation { r2t_sn, offset: gap.start, len })
    }

    /// The R2T was sent under this tag. The tags of a task count up.
    pub(crate) fn solicited(&mut self, ttt: TargetTransferTag, asked: Solicitation) {
        if self.solicited.is_empty() {
            self.first_ttt = ttt.0 as u16;
        }
        debug_assert_eq!(self.index(ttt), self.solicited.len(), "a sequence is found by its tag");
        self.solicited.push_back(Some(Sequence::new(asked.offset..asked.offset + asked.len, true)));
        self.outstanding += 1;
        self.moved = true;
    }

    /// The buffer, once all that was wanted is in it.
    pub(crate) fn take_complete(&mut self) -> Option<Buffer> {
        if self.open() || self.verified < self.wanted { None } else { self.buffer.take() }
    }

    fn wanted_part(&self, offset: u32, len: u32) -> Range<usize> {
        let end = offset.saturating_add(len).min(self.wanted);
        offset.min(end) as usize..end as usize
    }
}

#[cfg(test)]
mod tests;
