//! The copy engine: pieces are read, written, zeroed and read back, many at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use lunette_buffer::{Buffer, PAGE_LEN, Pool};
use lunette_crc32c::crc32c;
use lunette_store::{AllocationMap, Op, OpKind, Outcome, Run, StoreError};

use super::endpoint::Disk;
use super::flight::{Flight, Moving, Purpose};
use super::io::CopyIo;
use super::plan::{Piece, Plan};
use super::progress::Progress;
use crate::commands::depth::Depth;

/// The most pieces between two flushes when their digests are kept: a bound on memory.
const MAX_WINDOW_PIECES: usize = 64 << 10;

/// The reason why a copy ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    /// One of the disks failed.
    #[error("{disk}: cannot {action} bytes {from} to {to}: {error}{}", remedy_of(error), from = .piece.offset, to = .piece.end())]
    Disk { disk: String, action: &'static str, piece: Piece, error: StoreError },
    /// The written data could not be made durable.
    #[error("{disk}: the copy is not safe on stable storage: {error}{}", remedy_of(error))]
    Flush { disk: String, error: StoreError },
    /// The destination returned other bytes than were written.
    #[error("{disk}: bytes {from} to {to} are not those of the source", from = .piece.offset, to = .piece.end())]
    Differs { disk: String, piece: Piece },
    /// Standard input does not fit.
    #[error("standard input has more than the {len} bytes of {disk}; make that longer")]
    LongStream { disk: String, len: u64 },
    /// Standard input or output failed.
    #[error("cannot {action} byte {offset}: {error}{}", lunette_files::remedy(error))]
    Stream { action: &'static str, offset: u64, error: std::io::Error },
}

/// The remedy for the error of a disk, as the end of a message.
fn remedy_of(error: &StoreError) -> &'static str {
    match error {
        StoreError::NoSpace => "; free space there, or choose another place",
        StoreError::Io(error) | StoreError::Unreadable { error, .. } => lunette_files::remedy(error),
        _ => "",
    }
}

/// The options of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// The number of requests in flight.
    pub(crate) depth: Depth,
    /// Bytes in one request.
    pub(crate) block: u64,
    /// Whether to read everything back and compare digests.
    pub(crate) verify: bool,
    /// Flush, and verify, after this many bytes of data.
    pub(crate) window_bytes: u64,
}

/// The counts of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Bytes of data that were written.
    pub(crate) data_bytes: u64,
    /// Bytes that read as zero and were not sent.
    pub(crate) zero_bytes: u64,
}

/// A piece that is at the destination.
#[derive(Debug, Clone, Copy)]
struct Copied {
    piece: Piece,
    /// CRC32C of the data; `None` for zeroes.
    digest: Option<u32>,
}

/// The purpose of a request in flight.
enum Step {
    Map(Arc<AllocationMap>),
    Read(Piece),
    Write(Piece),
    /// Asks which part of the hole needs zeroes.
    Look(Piece, Arc<AllocationMap>),
    Zero(Piece),
    ReadBack(Copied),
    /// Asks which part of the hole could hold anything but zeroes.
    LookBack(Piece, Arc<AllocationMap>),
}

impl Purpose for Step {
    fn moving(&self) -> Option<Moving> {
        match self {
            Self::Read(_) => Some(Moving::Read),
            // Copies of holes would keep few requests in flight if zeroes did not count.
            Self::Write(_) | Self::Zero(_) => Some(Moving::Write),
            Self::ReadBack(_) => Some(Moving::ReadBack),
            Self::Map(_) | Self::Look(..) | Self::LookBack(..) => None,
        }
    }
}

/// Work that waits for a buffer or a free request.
#[derive(Debug, Clone, Copy)]
enum Task {
    Hole(Piece),
    Zero(Piece),
    Check(Copied),
}

/// A copy under way.
pub(crate) struct Engine<'a> {
    pub(crate) destination: &'a Disk,
    options: Options,
    flight: Flight<Step>,
    tasks: VecDeque<Task>,
    pool: Pool,
    progress: &'a Progress,
    /// Pieces copied since the last flush.
    copied: Vec<Copied>,
    window_bytes: u64,
    pub(crate) totals: Totals,
}

impl<'a> Engine<'a> {
    pub(crate) fn new(destination: &'a Disk, options: Options, io: CopyIo, progress: &'a Progress) -> Self {
        // One buffer more than requests in flight: the last piece moves to a buffer of whole blocks.
        let budget = (options.depth.most() + 1) * (options.block as usize).next_power_of_two();
        Self {
            destination,
            options,
            flight: Flight::new(options.depth, options.block as usize, io),
            tasks: VecDeque::new(),
            pool: Pool::trimmed(budget),
            progress,
            copied: Vec::new(),
            window_bytes: 0,
            totals: Totals::default(),
        }
    }

    /// A buffer for `len` bytes, at most a block. Each request in flight has at most one.
    pub(crate) fn buffer(&self, len: u64) -> Buffer {
        buffer(&self.pool, len)
    }

    /// Copies what `plan` hands out until it is exhausted or it is time to [`settle`](Self::settle).
    pub(crate) fn copy(&mut self, source: &Disk, plan: &mut Plan) -> Result<(), CopyError> {
        let mut asked = false;
        loop {
            while self.flight.has_room() && self.start_next(source, plan, &mut asked) {}
            if self.flight.is_empty() {
                return Ok(());
            }
            let (step, outcome) = self.flight.land();
            match step {
                Step::Map(found) => {
                    asked = false;
                    // A source that cannot tell where its data lies is read as a whole.
                    plan.learn(&outcome.result.map(|()| found.take()).unwrap_or_default());
                }
                Step::Read(piece) => {
                    let buffer = done(source, "read", piece, outcome)?;
                    self.put(piece, buffer.expect("a read gives its buffer back"));
                }
                step => self.landed(step, outcome)?,
            }
        }
    }

    /// Starts the next request. False when there is none, or it must wait. `asked` is set while the source is being
    /// asked where it holds data.
    fn start_next(&mut self, source: &Disk, plan: &mut Plan, asked: &mut bool) -> bool {
        if let Some(task) = self.tasks.pop_front() {
            self.start(task);
        } else if let Some((offset, len)) = plan.unknown().filter(|_| !*asked) {
            *asked = true;
            let (op, found) = allocation(offset, len);
            self.flight.start(&*source.store, op, Step::Map(found));
        } else if let Some(piece) = self.next_piece(plan) {
            if piece.hole {
                self.start(Task::Hole(piece));
            } else {
                let op = Op::Read { offset: piece.offset, into: self.buffer(piece.len) };
                self.flight.start(&*source.store, op, Step::Read(piece));
            }
        } else {
            return false;
        }
        true
    }

    fn next_piece(&self, plan: &mut Plan) -> Option<Piece> {
        if self.is_window_full() { None } else { plan.next() }
    }

    /// Whether it is time to [`settle`](Self::settle).
    pub(crate) fn is_window_full(&self) -> bool {
        self.window_bytes >= self.options.window_bytes || self.copied.len() >= MAX_WINDOW_PIECES
    }

    /// Writes a piece of data; the flight must have room. A piece of zeroes becomes a hole.
    pub(crate) fn put(&mut self, piece: Piece, buffer: Buffer) {
        if is_zero(&buffer) {
            drop(buffer);
            return self.start(Task::Hole(Piece { hole: true, ..piece }));
        }
        let buffer = self.whole_blocks(buffer);
        let digest = self.options.verify.then(|| crc32c(&buffer));
        let piece = Piece { len: buffer.len() as u64, ..piece };
        if let Some(digest) = digest {
            self.copied.push(Copied { piece, digest: Some(digest) });
        }
        self.window_bytes += piece.len;
        let op = Op::Write { offset: piece.offset, from: buffer, fua: false };
        self.flight.start(&*self.destination.store, op, Step::Write(piece));
    }

    /// Extends data to whole blocks. The source may end within a block of the destination; the rest of that block
    /// becomes zero.
    fn whole_blocks(&self, buffer: Buffer) -> Buffer {
        let granularity = self.destination.granularity() as usize;
        if buffer.len().is_multiple_of(granularity) {
            return buffer;
        }
        let mut whole = self.buffer(buffer.len().next_multiple_of(granularity) as u64);
        whole[..buffer.len()].copy_from_slice(&buffer);
        whole[buffer.len()..].fill(0);
        whole
    }

    /// Starts work at the destination. The flight must have room.
    fn start(&mut self, task: Task) {
        let store = &*self.destination.store;
        match task {
            Task::Hole(piece) => {
                let piece = Piece { len: piece.len.next_multiple_of(self.destination.granularity()), ..piece };
                if self.options.verify {
                    self.copied.push(Copied { piece, digest: None });
                }
                if self.destination.blank {
                    self.zeroed(piece);
                } else {
                    let (op, found) = allocation(piece.offset, piece.len);
                    self.flight.start(store, op, Step::Look(piece, found));
                }
            }
            Task::Zero(Piece { offset, len, .. }) => {
                let op = Op::WriteZeroes { offset, len, may_unmap: true, fua: false };
                self.flight.start(store, op, Step::Zero(Piece { offset, len, hole: true }));
            }
            Task::Check(copied) => {
                let Piece { offset, len, hole } = copied.piece;
                if hole {
                    let (op, found) = allocation(offset, len);
                    self.flight.start(store, op, Step::LookBack(copied.piece, found));
                } else {
                    let op = Op::Read { offset, into: self.buffer(len) };
                    self.flight.start(store, op, Step::ReadBack(copied));
                }
            }
        }
    }

    fn zeroed(&mut self, piece: Piece) {
        self.totals.zero_bytes += piece.len;
        self.progress.advance(piece.len);
    }

    /// Handles the end of a request at the destination.
    fn landed(&mut self, step: Step, outcome: Outcome) -> Result<(), CopyError> {
        let disk = self.destination;
        match step {
            Step::Write(piece) => {
                done(disk, "write", piece, outcome)?;
                self.totals.data_bytes += piece.len;
                self.progress.advance(piece.len);
            }
            Step::Look(piece, found) => {
                for part in parts_with_space(piece, &outcome, &found) {
                    self.tasks.push_back(Task::Zero(part));
                }
                self.zeroed(piece);
            }
            Step::Zero(piece) => {
                done(disk, "write zeroes to", piece, outcome)?;
            }
            Step::LookBack(piece, found) => {
                for part in parts_with_space(piece, &outcome, &found) {
                    self.tasks
                        .extend(cut(part, self.options.block).map(|piece| Task::Check(Copied { piece, digest: None })));
                }
            }
            Step::ReadBack(Copied { piece, digest }) => {
                let buffer = done(disk, "read back", piece, outcome)?.expect("a read gives its buffer back");
                let same = digest.map_or_else(|| is_zero(&buffer), |digest| crc32c(&buffer) == digest);
                if !same {
                    return Err(CopyError::Differs { disk: disk.name.clone(), piece });
                }
            }
            Step::Map(_) | Step::Read(_) => unreachable!("requests to the source end where they were started"),
        }
        Ok(())
    }

    /// Waits until the flight has room for another request at the destination.
    pub(crate) fn make_room(&mut self) -> Result<(), CopyError> {
        loop {
            while self.flight.has_room() {
                let Some(task) = self.tasks.pop_front() else { return Ok(()) };
                self.start(task);
            }
            let (step, outcome) = self.flight.land();
            self.landed(step, outcome)?;
        }
    }

    /// Waits for everything in flight, makes it durable, and reads it back when verifying.
    pub(crate) fn settle(&mut self) -> Result<(), CopyError> {
        self.drain()?;
        let outcome = self.request(Op::Flush);
        outcome.result.map_err(|error| CopyError::Flush { disk: self.destination.name.clone(), error })?;
        self.window_bytes = 0;
        for copied in std::mem::take(&mut self.copied) {
            self.make_room()?;
            self.start(Task::Check(copied));
        }
        self.drain()
    }

    fn drain(&mut self) -> Result<(), CopyError> {
        self.make_room()?;
        while !self.flight.is_empty() {
            let (step, outcome) = self.flight.land();
            self.landed(step, outcome)?;
            self.make_room()?;
        }
        Ok(())
    }

    /// Runs one request, with nothing else in flight.
    fn request(&mut self, op: Op) -> Outcome {
        debug_assert!(op.kind() == OpKind::Flush && self.flight.is_empty());
        let nothing = Piece { offset: 0, len: 0, hole: true };
        self.flight.start(&*self.destination.store, op, Step::Zero(nothing));
        self.flight.land().1
    }
}

/// A request for where a store holds data.
pub(crate) fn allocation(offset: u64, len: u64) -> (Op, Arc<AllocationMap>) {
    let found = Arc::new(AllocationMap::default());
    (Op::Allocation { offset, len, found: Arc::clone(&found) }, found)
}

/// A buffer from a pool that has one for each request in flight.
pub(crate) fn buffer(pool: &Pool, len: u64) -> Buffer {
    let len = len as usize;
    let one_more = || Pool::new(len.next_power_of_two().max(PAGE_LEN)).take(len);
    // A store that uses other threads may hold on to a buffer for a moment after its request has ended.
    pool.take(len).or_else(one_more).expect("a request is no longer than the longest buffer")
}

/// The buffer of a successful request, or an error that says which action failed.
pub(crate) fn done(
    disk: &Disk,
    action: &'static str,
    piece: Piece,
    outcome: Outcome,
) -> Result<Option<Buffer>, CopyError> {
    match outcome.result {
        Ok(()) => Ok(outcome.buffer),
        Err(error) => Err(CopyError::Disk { disk: disk.name.clone(), action, piece, error }),
    }
}

/// The parts of a hole that have space at the destination, which may hold other bytes than zeroes. Where the store
/// cannot tell, all of it.
fn parts_with_space(piece: Piece, outcome: &Outcome, found: &AllocationMap) -> Vec<Piece> {
    let mut runs = found.take();
    if outcome.result.is_err() {
        runs.clear();
    }
    let known: u64 = runs.iter().map(|run| run.len).sum();
    runs.push(Run { len: piece.len.saturating_sub(known), allocated: true });
    let mut parts: Vec<Piece> = Vec::new();
    let mut offset = piece.offset;
    for run in runs {
        let len = run.len.min(piece.end() - offset);
        match parts.last_mut() {
            _ if len == 0 || !run.allocated => {}
            Some(last) if last.end() == offset => last.len += len,
            _ => parts.push(Piece { offset, len, hole: false }),
        }
        offset += len;
    }
    parts
}

/// Pieces of a block at most.
fn cut(piece: Piece, block: u64) -> impl Iterator<Item = Piece> {
    (piece.offset..piece.end()).step_by(block as usize).map(move |offset| Piece {
        offset,
        len: block.min(piece.end() - offset),
        hole: false,
    })
}

fn is_zero(bytes: &[u8]) -> bool {
    // Most data differs from zero early. The rest is compared with itself, shifted by a byte, which the library does in
    // wide steps.
    match bytes.split_first() {
        None => true,
        Some((first, rest)) => *first == 0 && rest == &bytes[..rest.len()],
    }
}
