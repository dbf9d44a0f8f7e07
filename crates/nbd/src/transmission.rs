//! The transmission phase: requests in, replies out.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lunette_buffer::{Buffer, PAGE_LEN, Payload, Pool};
use lunette_reactor::Turn;
use lunette_store::{AllocationMap, Completion, CompletionSink, Op, OpKind, Outcome};

use crate::handshake::skip;
use crate::limited::{Limited, looked_up};
use crate::limits::{MAX_PAYLOAD_LEN, MAX_REQUEST_BYTES, MAX_SKIPPED_LEN, REQUEST_TIMEOUT};
use crate::outbox::{Outbox, Sending};
use crate::reply::{Body, Reply, errno, status_bytes};
use crate::request::{Negotiated, Plan};
use crate::stream::{Output, Stream};
use crate::wire::{Errno, REQUEST_LEN, Request, command};
use crate::{ConnectionError, Export, SharedIo};

/// Reads from this length on, of a disk in memory, are answered with the memory of the disk.
const MIN_LENT_BYTES: u32 = 64 << 10;

/// Time between two looks for address space.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Answers requests until the client leaves and all of them are answered.
pub(crate) fn run(
    stream: Stream<impl Read, impl Output>,
    export: &Export,
    file_io: &SharedIo,
    negotiated: Negotiated,
) -> Result<(), ConnectionError> {
    let Stream { mut reader, writer } = stream;
    let outbox = Arc::new(Outbox::default());
    let pending = Pending { slots: Mutex::default(), outbox: Arc::clone(&outbox), structured: negotiated.structured };
    let (pool, pending) = (Pool::new(MAX_REQUEST_BYTES), Arc::new(pending));
    if pool.reserve(MAX_PAYLOAD_LEN as usize).is_none() {
        // No request would ever get a buffer.
        return Err(ConnectionError::Io(io::ErrorKind::OutOfMemory.into()));
    }
    let sending = Mutex::new(Sending::new(writer));
    let intake = Intake { export, io: file_io, negotiated, outbox: &outbox, sending: &sending, pool, pending };
    let read = thread::scope(|scope| {
        let (outbox, sending) = (&outbox, &sending);
        thread::Builder::new()
            .name("lunette-nbd-write".into())
            .spawn_scoped(scope, move || outbox.write_replies(sending))?;
        let read = intake.read_requests(&mut reader);
        outbox.window.drain();
        outbox.end();
        read
    });
    let wrote = sending.into_inner().unwrap_or_else(PoisonError::into_inner).into_result();
    read.and(wrote.map_err(ConnectionError::Io))
}

/// The reading half of a connection.
struct Intake<'a, W> {
    export: &'a Export,
    io: &'a SharedIo,
    negotiated: Negotiated,
    outbox: &'a Arc<Outbox>,
    sending: &'a Mutex<Sending<W>>,
    pool: Pool,
    pending: Arc<Pending>,
}

impl<W: Output> Intake<'_, W> {
    /// Starts requests. Those that have come together are one turn: the store's threads are woken once for all of them.
    fn read_requests(&self, reader: &mut BufReader<Limited<impl Read>>) -> Result<(), ConnectionError> {
        let _turn = Turn::begin();
        while self.wait_for_request(reader)? {
            reader.get_mut().start(REQUEST_TIMEOUT);
            let mut header = [0; REQUEST_LEN];
            self.read_whole(reader, &mut header)?;
            let request = Request::parse(&header)
                .ok_or(ConnectionError::Protocol("a request that does not start with its magic number"))?;
            if request.command == command::DISC {
                return Ok(());
            }
            let held_bytes = self.held_bytes(&request);
            if !self.outbox.window.enter(held_bytes, || self.part_ends()) {
                // The writing half reports the reason.
                return Ok(());
            }
            // The client is not charged for the wait for room.
            reader.get_mut().start(REQUEST_TIMEOUT);
            if let Err(error) = self.handle(reader, &request, held_bytes) {
                self.outbox.window.leave(1, held_bytes);
                return Err(error);
            }
            if self.outbox.has_much() {
                self.outbox.send_now(self.sending);
            }
        }
        Ok(())
    }

    /// Before a wait: sends what is ready, and does what the turn has put off.
    fn part_ends(&self) {
        self.outbox.send_now(self.sending);
        Turn::part_ends();
    }

    /// Waits until there is a part of a request, without a limit. False when the client has left, or takes no more
    /// replies.
    fn wait_for_request(&self, reader: &mut BufReader<Limited<impl Read>>) -> io::Result<bool> {
        if !reader.buffer().is_empty() {
            return Ok(true);
        }
        self.part_ends();
        reader.get_mut().stop();
        loop {
            match reader.fill_buf() {
                Ok(bytes) => return Ok(!bytes.is_empty()),
                Err(error) if looked_up(&error) && !self.outbox.window.is_closed() => {}
                Err(error) if looked_up(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Bytes of the pool that a request will hold: a whole size class.
    fn held_bytes(&self, request: &Request) -> usize {
        match self.export.plan(request, self.negotiated) {
            Ok(Plan::Read | Plan::Write { .. }) => (request.len as usize).next_power_of_two().max(PAGE_LEN),
            _ => 0,
        }
    }

    fn buffer(&self, len: u32) -> Buffer {
        let len = len as usize;
        let one_more = || Pool::new(len.next_power_of_two().max(PAGE_LEN)).take(len);
        loop {
            // The window has as much room as the pool. A store that uses other threads may hold on to a buffer for a
            // moment after its request has ended.
            if let Some(buffer) = self.pool.take(len).or_else(one_more) {
                return buffer;
            }
            // Where the address space is limited, other requests have what is left of it.
            self.part_ends();
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// A buffer that gets its memory when it is filled: that of a reply that has just been sent, which is still in the
    /// cache.
    fn room(&self, len: u32) -> Buffer {
        self.pool.reserve(len as usize).unwrap_or_else(|| self.buffer(len))
    }

    /// Answers a request that has entered the window, or starts it. On an error neither has been done.
    fn handle(
        &self,
        reader: &mut BufReader<Limited<impl Read>>,
        request: &Request,
        held_bytes: usize,
    ) -> Result<(), ConnectionError> {
        let Request { offset, len, .. } = *request;
        let plan = match self.export.plan(request, self.negotiated) {
            Ok(plan) => plan,
            Err(error) => {
                self.part_ends();
                skip_payload(reader, request)?;
                self.pending.refuse(request, error);
                return Ok(());
            }
        };
        let store = &*self.export.store;
        let mut answer = Answer::Done;
        let op = match plan {
            Plan::Read => {
                let mut into = self.room(len);
                if len >= MIN_LENT_BYTES && store.capabilities().memory {
                    into.allow_loan();
                } else if store.answers_at_once(OpKind::Read) && store.read_at_once(offset, &mut into) {
                    let body = self.pending.data(offset, into.into());
                    self.outbox.add(Reply { cookie: request.cookie, body, held_bytes });
                    return Ok(());
                }
                answer = Answer::Data { offset };
                Op::Read { offset, into }
            }
            Plan::Write { fua } => {
                let Some(from) = self.write_at_once(reader, request, fua)? else {
                    self.outbox.add(Reply { cookie: request.cookie, body: Body::Simple(None), held_bytes });
                    return Ok(());
                };
                Op::Write { offset, from, fua }
            }
            Plan::WriteZeroes { may_unmap, fua } => Op::WriteZeroes { offset, len: len.into(), may_unmap, fua },
            Plan::Unmap => Op::Unmap { offset, len: len.into() },
            Plan::Flush => Op::Flush,
            Plan::BlockStatus { one } => {
                let found = Arc::new(AllocationMap::default());
                answer = Answer::Status { found: Arc::clone(&found), len, one };
                Op::Allocation { offset, len: len.into(), found }
            }
        };
        let tag = self.pending.add(Started { cookie: request.cookie, answer, held_bytes });
        store.submit(op, &**self.io, Completion::new(Arc::<Pending>::clone(&self.pending), tag));
        Ok(())
    }

    /// Writes the payload of `request`; where the store does not do that at once, gives it in a buffer.
    fn write_at_once(
        &self,
        reader: &mut BufReader<Limited<impl Read>>,
        request: &Request,
        fua: bool,
    ) -> io::Result<Option<Buffer>> {
        let (store, len) = (&*self.export.store, request.len as usize);
        let mut at_once = store.answers_at_once(OpKind::Write);
        if let Some(payload) = reader.buffer().get(..len).filter(|_| at_once) {
            if store.write_at_once(request.offset, payload, fua) {
                reader.consume(len);
                return Ok(None);
            }
            at_once = false;
        }
        let mut from = self.buffer(request.len);
        self.read_whole(reader, &mut from)?;
        let is_done = at_once && store.write_at_once(request.offset, &from, fua);
        Ok((!is_done).then_some(from))
    }

    /// Fills `into`. Where that takes a wait, what the turn has put off is done before.
    fn read_whole(&self, reader: &mut BufReader<Limited<impl Read>>, into: &mut [u8]) -> io::Result<()> {
        if reader.buffer().len() < into.len() {
            self.part_ends();
        }
        reader.read_exact(into)
    }
}

/// Skips the payload of a refused write, which is still on its way.
fn skip_payload(reader: &mut impl BufRead, request: &Request) -> Result<(), ConnectionError> {
    match request.command {
        command::WRITE if request.len > MAX_SKIPPED_LEN => Err(ConnectionError::Protocol("a write of absurd length")),
        command::WRITE => Ok(skip(reader, request.len)?),
        _ => Ok(()),
    }
}

/// Requests under way in the store, and where their replies go.
struct Pending {
    slots: Mutex<Slots>,
    outbox: Arc<Outbox>,
    structured: bool,
}

#[derive(Default)]
struct Slots {
    started: Vec<Option<Started>>,
    free: Vec<usize>,
}

struct Started {
    cookie: u64,
    answer: Answer,
    held_bytes: usize,
}

/// The kind of reply to a success.
enum Answer {
    Done,
    Data { offset: u64 },
    Status { found: Arc<AllocationMap>, len: u32, one: bool },
}

impl Pending {
    fn add(&self, started: Started) -> u64 {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let index = slots.free.pop().unwrap_or(slots.started.len());
        match slots.started.get_mut(index) {
            Some(slot) => *slot = Some(started),
            None => slots.started.push(Some(started)),
        }
        index as u64
    }

    fn take(&self, tag: u64) -> Option<Started> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let started = slots.started.get_mut(tag as usize)?.take()?;
        slots.free.push(tag as usize);
        Some(started)
    }

    /// Answers a request that does not reach the store.
    fn refuse(&self, request: &Request, error: Errno) {
        let chunks = self.structured && matches!(request.command, command::READ | command::BLOCK_STATUS);
        self.outbox.add(Reply { cookie: request.cookie, body: self.error(chunks, error), held_bytes: 0 });
    }

    /// The reply to a read.
    fn data(&self, offset: u64, bytes: Payload) -> Body {
        if self.structured { Body::Data { offset, bytes } } else { Body::Plain(bytes) }
    }

    /// The reply to a failure. A read must be answered in chunks once that is negotiated; a block status always is.
    fn error(&self, chunks: bool, error: Errno) -> Body {
        if chunks && self.structured { Body::Error(error) } else { Body::Simple(Some(error)) }
    }
}

impl CompletionSink for Pending {
    fn complete(&self, tag: u64, outcome: Outcome) {
        let Some(Started { cookie, answer, held_bytes }) = self.take(tag) else { return };
        let bytes = outcome.loan.map(Payload::Lent).or_else(|| outcome.buffer.map(Payload::from));
        let body = match (outcome.result, answer, bytes) {
            (Err(error), answer, _) => {
                tracing::warn!(%error, "a request failed in the store");
                self.error(!matches!(answer, Answer::Done), errno(&error))
            }
            (Ok(()), Answer::Data { offset }, Some(bytes)) => self.data(offset, bytes),
            // A store that loses the buffer has no data to reply with.
            (Ok(()), Answer::Data { .. }, None) => self.error(true, Errno::Io),
            (Ok(()), Answer::Status { found, len, one }, _) => Body::Status(status_bytes(&found.take(), len, one)),
            (Ok(()), Answer::Done, _) => Body::Simple(None),
        };
        self.outbox.add(Reply { cookie, body, held_bytes });
    }
}

#[cfg(test)]
mod tests;
