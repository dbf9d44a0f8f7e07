//! The content of the journal of an open volume, and its free bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use crate::associated::VolumeId;
use crate::limits::MAX_SEQUENCE;
use crate::packed::record::{self, Record, Shape};
use crate::packed::tail::{self, Content, RING_OFFSET, Tail};
use crate::packed::{Layout, Move};
use crate::slot::SLOT_LEN;

/// The place of one record in the journal.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Where the record is to be written, from the beginning of the journal.
    pub offset: u64,
    /// The shape of the journal.
    pub shape: Shape,
    pub(crate) sequence: u64,
}

/// Why the journal has no place for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// The journal has no room: make a checkpoint first.
    #[error("the journal is full until a checkpoint has moved its quanta out")]
    Full,
    /// No sequence number is left that a reader would take.
    #[error("the journal's sequence numbers are used up; format a volume and copy the content of this one to it")]
    NumbersUsedUp,
}

/// A quantum whose newest content is in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live {
    /// The slot of the quantum; all zero for an unmapped quantum.
    pub slot: [u8; SLOT_LEN],
    /// Where its ciphertext is, from the beginning of the journal; `None` for an unmapped quantum.
    pub data_offset: Option<u64>,
    sequence: u64,
}

/// The quanta that a checkpoint moves out of the journal.
#[derive(Debug)]
pub struct Checkpoint {
    /// The quanta, in the order of their positions.
    pub moves: Vec<Move>,
    through: u64,
    /// The first position that was not looked at.
    next: u64,
}

/// The journal of an open packed volume: a ring of records.
#[derive(Debug)]
pub struct Journal {
    layout: Layout,
    volume: VolumeId,
    /// The sequence number of the next record.
    next: u64,
    /// The lowest sequence number whose record is needed: what those before it hold has been moved out.
    tail: u64,
    /// Which copy of the tail is written next.
    tail_copy: u64,
    /// Where the next record goes, if it fits there.
    head: u64,
    /// Number and offset of the records from `tail` on, in order.
    records: VecDeque<(u64, u64)>,
    /// The records that are being written.
    under_way: BTreeSet<u64>,
    live: BTreeMap<u64, Live>,
    /// Numbers from `tail` on without a whole record, each range by its first one.
    gaps: BTreeMap<u64, Range<u64>>,
    /// Numbers without a whole record when the journal was opened.
    missing: u64,
    /// The missing records that had been flushed.
    lost: u64,
    /// All records up to this number are known to be on stable storage.
    flushed: u64,
    /// The number of the client that has opened the volume for writing; 0 for none.
    owner: u64,
    /// The owners that the tails named when the journal was opened.
    earlier_owners: [Option<u64>; 2],
}

impl Journal {
    /// The empty journal of a new volume, whose two tails the driver has written.
    pub fn new(layout: Layout, volume: VolumeId) -> Self {
        Self::from(layout, volume, 1, 0)
    }

    /// The tails of a new volume. Nothing else of its journal needs to be written.
    pub fn first_tails(volume: VolumeId) -> [Tail; 2] {
        [0, 1].map(|copy| tail::emit(volume, Content { sequence: 1, flushed: 0, owner: 0 }, copy))
    }

    pub(crate) fn from(layout: Layout, volume: VolumeId, tail: u64, tail_copy: u64) -> Self {
        Self {
            layout,
            volume,
            next: tail,
            tail,
            tail_copy,
            head: RING_OFFSET,
            records: VecDeque::new(),
            under_way: BTreeSet::new(),
            live: BTreeMap::new(),
            gaps: BTreeMap::new(),
            missing: 0,
            lost: 0,
            flushed: 0,
            owner: 0,
            earlier_owners: [Some(0); 2],
        }
    }

    /// Takes in a record that was found after a power cut, in the order of sequence numbers.
    pub(crate) fn found(&mut self, offset: u64, record: &Record<'_>) {
        self.miss(self.next..record.sequence);
        self.next = record.sequence + 1;
        self.head = offset + record.shape.len(&self.layout) as u64;
        self.records.push_back((record.sequence, offset));
        self.take_in(offset, record.sequence, record.shape, record.entries());
    }

    fn miss(&mut self, numbers: Range<u64>) {
        let flushed = self.flushed.saturating_add(1).clamp(numbers.start, numbers.end);
        self.missing += numbers.end - numbers.start;
        self.lost += flushed - numbers.start;
        if !numbers.is_empty() {
            self.gaps.insert(numbers.start, numbers);
        }
    }

    /// Sequence numbers without a whole record when the journal was opened, although a record after them is whole, or
    /// they were [lost](Self::lost).
    ///
    /// Of those that were not lost, the writes had failed or were not flushed before a power cut, or the records were
    /// whole once and are damaged. Which of these cannot be told. The quanta of such a record have their content from
    /// before it. Nothing is missing where the damaged record was the last one and is not known to have been flushed.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// The [missing](Self::missing) records that had been flushed.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes in up to which number all needed records had been flushed. Called before the records are taken in.
    pub(crate) fn found_flushed(&mut self, flushed: u64) {
        self.flushed = flushed;
    }

    /// All records were taken in that were found.
    pub(crate) fn found_all(&mut self) {
        let end = self.flushed + 1;
        if self.next < end {
            self.miss(self.next..end);
            // No later record gets the number of one that was lost, which is in the ring somewhere.
            self.next = end;
        }
    }

    /// The highest number up to which all needed records were written, so that the next flush makes them stable.
    pub fn written_through(&self) -> u64 {
        let first_gap = self.gaps.first_key_value().map_or(self.next, |(first, _)| *first);
        self.under_way.first().map_or(self.next, |first| *first).min(first_gap) - 1
    }

    /// A flush has succeeded before which all needed records up to `through` had been [written](Self::written_through).
    /// Whether that is more than was known.
    pub fn flushed(&mut self, through: u64) -> bool {
        let is_more = self.flushed < through;
        self.flushed = self.flushed.max(through);
        is_more
    }

    /// The highest number up to which all needed records are known to be on stable storage.
    pub fn flushed_through(&self) -> u64 {
        self.flushed
    }

    /// The highest number whose quanta, and those of all records before it, are in their places.
    pub fn moved_through(&self) -> u64 {
        self.tail - 1
    }

    /// The tail that notes what was flushed, to be written at any time that is not between [`tail`](Self::tail) and
    /// [`checkpointed`](Self::checkpointed). It overwrites the copy that the next checkpoint overwrites, so it need not
    /// be flushed itself.
    pub fn note(&self) -> Tail {
        tail::emit(self.volume, self.content(self.tail), self.tail_copy)
    }

    fn content(&self, sequence: u64) -> Content {
        Content { sequence, flushed: self.flushed, owner: self.owner }
    }

    /// The owners that the tails name.
    pub(crate) fn found_owners(&mut self, owners: [Option<u64>; 2]) {
        self.earlier_owners = owners;
    }

    /// The tails by which a client says that it has opened the volume for writing, before any record: flush; write the
    /// first one and flush; write the second one and flush. `owner` is a random number of this opening.
    ///
    /// Both, because a client that had the volume before may go on to overwrite one of them with its
    /// [notes](Self::note).
    pub fn take_over(&mut self, owner: u64) -> [Tail; 2] {
        self.owner = owner;
        self.flushed(self.written_through());
        [self.tail_copy, self.tail_copy ^ 1].map(|copy| tail::emit(self.volume, self.content(self.tail), copy))
    }

    /// Whether another client has opened the volume for writing since this one did. `tails` are the first
    /// [`TAILS_LEN`](super::TAILS_LEN) bytes of the journal as they are now, which the driver reads before a
    /// checkpoint.
    pub fn has_another_owner(&self, tails: &[u8]) -> bool {
        let foreign = |owner| owner != self.owner && !self.earlier_owners.contains(&Some(owner));
        tail::owners(tails, self.volume).into_iter().flatten().any(foreign)
    }

    /// Reserves the place of a record.
    ///
    /// # Errors
    ///
    /// [`ReserveError`]. A record that is longer than [`longest_record`](Self::longest_record) never fits.
    ///
    /// # Panics
    ///
    /// When the shape is not [allowed](Shape::is_allowed).
    pub fn reserve(&mut self, shape: Shape) -> Result<Ticket, ReserveError> {
        assert!(shape.is_allowed(), "a record has 1 to MAX_RECORD_ENTRIES quanta");
        // The tail after the record is one higher, and has the same bound.
        if self.next >= MAX_SEQUENCE {
            return Err(ReserveError::NumbersUsedUp);
        }
        let offset = self.room(shape.len(&self.layout) as u64).ok_or(ReserveError::Full)?;
        self.head = offset + shape.len(&self.layout) as u64;
        let ticket = Ticket { offset, shape, sequence: self.next };
        self.next += 1;
        self.records.push_back((ticket.sequence, offset));
        self.under_way.insert(ticket.sequence);
        Ok(ticket)
    }

    fn room(&self, len: u64) -> Option<u64> {
        let fits = |free: Range<u64>| free.end.saturating_sub(free.start) >= len;
        let end = self.layout.journal_len;
        match self.records.front() {
            None if fits(self.head..end) => Some(self.head),
            None => fits(RING_OFFSET..end).then_some(RING_OFFSET),
            Some((_, oldest)) if self.head > *oldest => {
                if fits(self.head..end) {
                    Some(self.head)
                } else {
                    fits(RING_OFFSET..*oldest).then_some(RING_OFFSET)
                }
            }
            // The ring has wrapped, or is full.
            Some((_, oldest)) => fits(self.head..*oldest).then_some(self.head),
        }
    }

    /// The record was written and acknowledged: its quanta are read from it from now on.
    ///
    /// # Panics
    ///
    /// When `record` is not that of the ticket.
    pub fn written(&mut self, ticket: &Ticket, record: &[u8]) {
        self.under_way.remove(&ticket.sequence);
        self.take_in(ticket.offset, ticket.sequence, ticket.shape, record::entries(record, ticket.shape));
    }

    fn take_in<'a>(
        &mut self,
        offset: u64,
        sequence: u64,
        shape: Shape,
        entries: impl Iterator<Item = (u64, &'a [u8; SLOT_LEN])>,
    ) {
        let data = offset + shape.data_offset(&self.layout) as u64;
        for (index, (position, slot)) in entries.enumerate() {
            let data_offset = (index < shape.sealed).then(|| data + (index * self.layout.size.bytes()) as u64);
            let live = Live { slot: *slot, data_offset, sequence };
            let present = self.live.entry(position).or_insert(live);
            if present.sequence <= sequence {
                *present = live;
            }
        }
    }

    /// Bytes of the longest record that fits an empty journal.
    pub fn longest_record(&self) -> u64 {
        self.layout.journal_len - RING_OFFSET
    }

    /// The write of the record failed, or its outcome is unknown: after a power cut its quanta are old or new.
    pub fn abandoned(&mut self, ticket: &Ticket) {
        self.under_way.remove(&ticket.sequence);
        self.gaps.insert(ticket.sequence, ticket.sequence..ticket.sequence + 1);
    }

    /// The quanta of a range whose content is in the journal; the others are in their places.
    pub fn live(&self, positions: Range<u64>) -> impl Iterator<Item = (u64, &Live)> {
        self.live.range(positions).map(|(position, live)| (*position, live))
    }

    /// The number of quanta whose content is in the journal.
    pub fn live_len(&self) -> usize {
        self.live.len()
    }

    /// The last record that a checkpoint gives up: that before the first one that is still under way.
    fn last_ended(&self) -> u64 {
        self.under_way.first().map_or(self.next, |first| *first) - 1
    }

    /// Whether a checkpoint would free room. It would not when there is no record, or the oldest is still under way.
    pub fn can_free(&self) -> bool {
        self.last_ended() >= self.tail
    }

    /// The records that a checkpoint has to move out: all that were written before the first record that is still under
    /// way.
    pub fn checkpoint(&self) -> Checkpoint {
        let mut checkpoint = self.begin_checkpoint();
        self.gather(&mut checkpoint, usize::MAX);
        checkpoint
    }

    /// Begins a [`checkpoint`](Self::checkpoint) whose moves are gathered in several steps, between which others may
    /// use the journal.
    pub fn begin_checkpoint(&self) -> Checkpoint {
        Checkpoint { moves: Vec::new(), through: self.last_ended(), next: 0 }
    }

    /// Looks at `most` more quanta of the journal. Whether that were all.
    ///
    /// What a quantum got since the checkpoint began is in a record that stays, so it is not moved. The flush comes
    /// after the last step, so that record is stable before the older one is given up.
    pub fn gather(&self, checkpoint: &mut Checkpoint, most: usize) -> bool {
        let mut looked_at = 0;
        for (position, live) in self.live.range(checkpoint.next..).take(most) {
            looked_at += 1;
            checkpoint.next = position + 1;
            if live.sequence <= checkpoint.through {
                let (position, slot, data_offset) = (*position, live.slot, live.data_offset);
                checkpoint.moves.push(Move { position, slot, data_offset });
            }
        }
        looked_at < most
    }

    /// The tail that says that the quanta of a checkpoint are in their places: to be written when they are flushed, and
    /// flushed itself.
    pub fn tail(&self, checkpoint: &Checkpoint) -> Tail {
        tail::emit(self.volume, self.content(checkpoint.through + 1), self.tail_copy)
    }

    /// The tail of a checkpoint was written and flushed: its records are free.
    pub fn checkpointed(&mut self, checkpoint: &Checkpoint) {
        self.free(checkpoint);
        self.forget(&checkpoint.moves);
    }

    /// The first half of [`checkpointed`](Self::checkpointed). Until all moves are [forgotten](Self::forget), quanta
    /// are still read from the freed records, so the caller reserves none meanwhile.
    pub fn free(&mut self, checkpoint: &Checkpoint) {
        self.tail = checkpoint.through + 1;
        self.tail_copy ^= 1;
        while self.records.front().is_some_and(|(sequence, _)| *sequence < self.tail) {
            self.records.pop_front();
        }
        self.gaps.retain(|_, numbers| numbers.end > self.tail);
    }

    /// The second half of [`checkpointed`](Self::checkpointed), for some of the moves: they are read from their places
    /// from now on.
    pub fn forget(&mut self, moves: &[Move]) {
        for moved in moves {
            if self.live.get(&moved.position).is_some_and(|live| live.sequence < self.tail) {
                self.live.remove(&moved.position);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MIN_JOURNAL_LEN;
    use crate::size::QuantumSize;

    #[test]
    fn no_record_gets_a_number_that_readers_do_not_take() {
        let layout = Layout::largest(1 << 20, QuantumSize::B512, 512, MIN_JOURNAL_LEN).unwrap();
        let mut journal = Journal::from(layout, VolumeId([1; 16]), MAX_SEQUENCE - 1, 0);
        let shape = Shape { sealed: 1, holes: 0 };
        let ticket = journal.reserve(shape).unwrap();
        assert_eq!(ticket.sequence, MAX_SEQUENCE - 1);
        assert_eq!(journal.reserve(shape), Err(ReserveError::NumbersUsedUp));
        journal.abandoned(&ticket);
        let tail = journal.tail(&journal.checkpoint());
        let found = tail::find(&tail.bytes, VolumeId([1; 16])).map(|(tail, copy)| (tail.sequence, copy));
        assert_eq!(found, Some((MAX_SEQUENCE, 0)), "the last tail is read");
    }
}
