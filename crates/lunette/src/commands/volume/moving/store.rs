//! The blocks of a volume or snapshot, with several requests in flight that end in their order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use lunette_buffer::{Buffer, Pool};
use lunette_pools::limits::MAX_CHUNK_BYTES;
use lunette_rbd::RbdUrl;
use lunette_store::{Completion, Op, OpenOptions, Outcome, Store, execute};

use crate::commands::io::PoolIo;
use crate::disks::file::FilePath;
use crate::disks::{DiskName, Place};
use crate::failure::Failure;

/// Requests in flight.
const DEPTH: usize = 8;

/// The disk at a place that the server has told.
pub(super) fn disk(place: &str) -> Result<DiskName, Failure> {
    let place = if RbdUrl::is_meant(place) {
        Place::Image(place.parse().map_err(Failure::other)?)
    } else {
        Place::File(FilePath(place.into()))
    };
    Ok(DiskName { place, keys: None })
}

/// Opens the blocks at a place that the server has told.
pub(super) fn open(place: &str, read_only: bool) -> Result<Queue, Failure> {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Queue::new(place.into(), disk(place)?.open(&options)?.store)
}

/// Requests to a store, the oldest first.
pub(super) struct Queue {
    name: String,
    store: Arc<dyn Store>,
    io: PoolIo,
    pool: Pool,
    waiting: VecDeque<(Request, Option<Receiver<Outcome>>)>,
    /// Whether a request has failed, after which no flush tells what is whole.
    has_failed: bool,
}

/// A range, and what is done there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) offset: u64,
    pub(super) len: u64,
    action: &'static str,
}

impl Queue {
    pub(super) fn new(name: String, store: Arc<dyn Store>) -> Result<Self, Failure> {
        let pool = Pool::trimmed((DEPTH + 1) * MAX_CHUNK_BYTES);
        Ok(Self { name, store, io: PoolIo::start()?, pool, waiting: VecDeque::new(), has_failed: false })
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.store.geometry().len_bytes
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= DEPTH
    }

    /// A buffer of `len` bytes, at most those of a chunk.
    pub(super) fn buffer(&self, len: usize) -> Result<Buffer, Failure> {
        // A store that uses other threads may hold on to a buffer for a moment after its request has ended.
        let one_more = || Pool::new(len.next_power_of_two()).take(len);
        self.pool.take(len).or_else(one_more).ok_or_else(|| Failure::other("no memory for a buffer"))
    }

    /// Starts a read.
    pub(super) fn read(&mut self, offset: u64, len: u64) -> Result<(), Failure> {
        let into = self.buffer(usize::try_from(len).map_err(Failure::other)?)?;
        self.start(Request { offset, len, action: "read" }, Op::Read { offset, into });
        Ok(())
    }

    /// Takes a place in the order without a request.
    pub(super) fn pass(&mut self, offset: u64, len: u64) {
        self.waiting.push_back((Request { offset, len, action: "" }, None));
    }

    /// Writes, after it has waited for room.
    pub(super) fn write(&mut self, offset: u64, from: Buffer) -> Result<(), Failure> {
        self.make_room()?;
        let len = from.len() as u64;
        self.start(Request { offset, len, action: "write" }, Op::Write { offset, from, fua: false });
        Ok(())
    }

    /// Writes zeroes, after it has waited for room.
    pub(super) fn write_zeroes(&mut self, offset: u64, len: u64) -> Result<(), Failure> {
        self.make_room()?;
        let op = Op::WriteZeroes { offset, len, may_unmap: true, fua: false };
        self.start(Request { offset, len, action: "write zeroes to" }, op);
        Ok(())
    }

    fn make_room(&mut self) -> Result<(), Failure> {
        while self.is_full() {
            self.land()?;
        }
        Ok(())
    }

    fn start(&mut self, request: Request, op: Op) {
        let (ended, end) = channel();
        let done = Completion::call(move |outcome| {
            // The receiver is gone after a failure.
            let _ = ended.send(outcome);
        });
        self.store.submit(op, &self.io, done);
        self.waiting.push_back((request, Some(end)));
    }

    /// Waits for the oldest request. `None` when none is left.
    pub(super) fn land(&mut self) -> Result<Option<(Request, Option<Buffer>)>, Failure> {
        let Some((request, end)) = self.waiting.pop_front() else { return Ok(None) };
        let Some(end) = end else { return Ok(Some((request, None))) };
        let outcome = end.recv().map_err(Failure::other)?;
        match outcome.result {
            Ok(()) => Ok(Some((request, outcome.buffer))),
            Err(error) => {
                self.has_failed = true;
                let Request { offset, len, action } = request;
                let end = offset.saturating_add(len);
                Err(Failure::Transfer(format!("{}: cannot {action} bytes {offset} to {end}: {error}", self.name)))
            }
        }
    }

    /// Waits for all requests, and brings what was written to stable storage.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        let mut outcome = Ok(());
        while !self.waiting.is_empty() {
            outcome = outcome.and(self.land().map(drop));
        }
        outcome?;
        if self.has_failed {
            return Err(Failure::Transfer(format!("{}: not all of it was written", self.name)));
        }
        let flushed = execute(&*self.store, Op::Flush).result;
        flushed.map_err(|error| Failure::Transfer(format!("{}: it is not on stable storage: {error}", self.name)))
    }
}

/// Whether all bytes are zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.split_first().is_none_or(|(first, rest)| *first == 0 && rest == &bytes[..rest.len()])
}
