//! Writes of a packed volume: records of the journal.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use lunette_buffer::Buffer;
use lunette_quanta::limits::MAX_RECORD_ENTRIES;
use lunette_quanta::packed::record::{self, Shape};
use lunette_quanta::packed::{ReserveError, Ticket};
use lunette_quanta::{Codec, SLOT_LEN};
use lunette_store::{Completion, CompletionSink, FileIo, Op, Outcome, StoreError};

use crate::counts::Tally;
use crate::failure::shared_failure;
use crate::limits::{MAX_LIVE, MAX_RECORDS_UNDER_WAY};
use crate::owners::Owners;
use crate::packed::{Packed, State};
use crate::request::{Request, What};

/// Some quanta of a request.
type Part = (Arc<Request>, Range<u64>);

/// A record that is made and written.
struct Record {
    packed: Arc<Packed>,
    ticket: Ticket,
    /// The quanta of requests that it holds, those that are sealed first.
    parts: Vec<Part>,
}

impl Packed {
    /// Queues a write.
    pub(crate) fn enqueue(&self, request: &Arc<Request>) {
        self.state().queue.push_back((Arc::clone(request), request.range.start));
    }

    /// Writes records from the queue, as many as may be under way.
    pub(crate) fn write_records(self: &Arc<Self>, io: &dyn FileIo) {
        loop {
            let next = {
                let mut state = self.state();
                if state.closed.is_some() {
                    break;
                }
                self.next_record(&mut state)
            };
            let Some((record, buffer)) = next else { return };
            self.write_record(record, buffer, io);
        }
        if let Err(error) = self.check_open() {
            self.fail_queue(error);
        }
    }

    /// Takes the first record's writes out of the queue.
    fn next_record(self: &Arc<Self>, state: &mut State) -> Option<(Record, Buffer)> {
        let must_wait = state.under_way == MAX_RECORDS_UNDER_WAY || state.full || state.freeing;
        if must_wait || state.queue.is_empty() {
            return None;
        }
        let (parts, shape) = self.gather(state);
        if state.journal.live_len() + shape.sealed + shape.holes > 2 * MAX_LIVE {
            state.full = true;
            self.owners.mailbox.wake();
            return None;
        }
        let buffer = self.owners.buffers.take_for_record(shape.len(&self.layout))?;
        let ticket = match state.journal.reserve(shape) {
            Ok(ticket) => ticket,
            Err(error) => {
                match error {
                    ReserveError::Full => state.full = true,
                    ReserveError::NumbersUsedUp => state.closed = Some(Arc::new(io::Error::other(error))),
                }
                self.owners.mailbox.wake();
                return None;
            }
        };
        for (request, part) in &parts {
            let (front, next) = state.queue.front_mut().expect("its parts were gathered from the queue");
            debug_assert!(Arc::ptr_eq(front, request));
            *next = part.end;
            if part.end == request.range.end {
                state.queue.pop_front();
            }
        }
        state.under_way += 1;
        state.since_checkpoint += shape.len(&self.layout) as u64;
        if self.is_due(state) {
            self.owners.mailbox.wake();
        }
        let (mut sealed, holes): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|(request, _)| matches!(request.what, What::Write { .. }));
        sealed.extend(holes);
        Some((Record { packed: Arc::clone(self), ticket, parts: sealed }, buffer))
    }

    /// The front of the queue, as much as one record holds: at least one quantum.
    fn gather(&self, state: &State) -> (Vec<Part>, Shape) {
        let mut parts = Vec::new();
        let mut shape = Shape { sealed: 0, holes: 0 };
        for (request, next) in &state.queue {
            let wanted = (request.range.end - next).min((MAX_RECORD_ENTRIES - shape.sealed - shape.holes) as u64);
            let with = |quanta: u64| match request.what {
                What::Write { .. } => Shape { sealed: shape.sealed + quanta as usize, ..shape },
                _ => Shape { holes: shape.holes + quanta as usize, ..shape },
            };
            let fits = |quanta: &u64| with(*quanta).len(&self.layout) <= self.record_bytes;
            // The length grows with the number of quanta, so the most that fit are found by halving.
            let (mut quanta, mut too_many) = (0, wanted + 1);
            while too_many - quanta > 1 {
                let middle = quanta.midpoint(too_many);
                if fits(&middle) { quanta = middle } else { too_many = middle }
            }
            if quanta == 0 && shape.sealed + shape.holes == 0 {
                quanta = 1;
            }
            if quanta == 0 {
                break;
            }
            shape = with(quanta);
            parts.push((Arc::clone(request), *next..next + quanta));
            if next + quanta < request.range.end {
                break;
            }
        }
        (parts, shape)
    }

    fn write_record(&self, record: Record, mut buffer: Buffer, io: &dyn FileIo) {
        if let Err(error) = self.seal(&record, &mut buffer) {
            return record.ended(Err(error), &buffer);
        }
        let fua = record.parts.iter().any(|(request, _)| request.what.fua());
        let offset = self.layout.journal_offset() + record.ticket.offset;
        Tally::add(&self.owners.tally.records, 1);
        let sink: Arc<dyn CompletionSink> = Arc::new(record);
        self.owners.inner.submit(Op::Write { offset, from: buffer, fua }, io, Completion::new(sink, 0));
    }

    fn seal(&self, record: &Record, buffer: &mut [u8]) -> Result<(), StoreError> {
        let len = self.owners.size.bytes();
        let (slots, data) = record::places(buffer, record.ticket.shape, &self.layout);
        let mut at = 0;
        for (request, part) in &record.parts {
            if !matches!(request.what, What::Write { .. }) {
                break;
            }
            let mut seal = |codec: &Codec, sealing, first: usize, plain: &[u8]| {
                let (from, quanta) = (at + first, plain.len() / len);
                let slots = &mut slots[from * SLOT_LEN..][..quanta * SLOT_LEN];
                codec.seal_split(sealing, plain, &mut data[from * len..][..plain.len()], slots);
            };
            request.with_bytes(part, |plain| self.owners.seals.seal(part, plain.as_deref(), &mut seal))?;
            at += (part.end - part.start) as usize;
        }
        let positions: Vec<u64> = record.parts.iter().flat_map(|(_, part)| part.clone()).collect();
        let volume = self.owners.seals.codec().volume();
        record::finish(buffer, &self.layout, volume, &record.ticket, positions.into_iter());
        Ok(())
    }

    /// Ends all writes of the queue with a failure.
    pub(crate) fn fail_queue(&self, error: StoreError) {
        let queue = {
            let mut state = self.state();
            std::mem::take(&mut state.queue)
        };
        let error = shared_failure(error);
        for (request, next) in queue {
            request.ended(request.range.end - next, Err(error()));
        }
    }
}

impl Record {
    fn ended(&self, result: Result<(), StoreError>, record: &[u8]) {
        let packed = &*self.packed;
        let Owners { seals, mailbox, .. } = &packed.owners;
        if result.is_ok() && seals.anchor().is_some() {
            seals.written(record::entries(record, self.ticket.shape));
        }
        let more = {
            let mut state = packed.state();
            match &result {
                Ok(()) => state.journal.written(&self.ticket, record),
                Err(_) => state.journal.abandoned(&self.ticket),
            }
            state.under_way -= 1;
            !state.queue.is_empty() || packed.is_due(&state)
        };
        let error = result.err().map(shared_failure);
        for (request, part) in &self.parts {
            request.ended(part.end - part.start, error.as_ref().map_or(Ok(()), |error| Err(error())));
        }
        if more {
            mailbox.wake();
        }
    }
}

impl CompletionSink for Record {
    fn complete(&self, _: u64, outcome: Outcome) {
        match outcome.buffer {
            Some(record) => self.ended(outcome.result, &record),
            // What was written is known to the medium alone: the record counts after the next replay, not before.
            None => self.ended(outcome.result.and(Err(crate::unit::no_buffer())), &[]),
        }
    }
}
