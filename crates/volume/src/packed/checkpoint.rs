//! Checkpoints: what is in the journal goes to its places.

use std::io;
use std::ops::Range;
use std::sync::PoisonError;

use lunette_buffer::Buffer;
use lunette_quanta::packed::{Layout, Move, TAILS_LEN};
use lunette_quanta::{Condition, OpenError, Reason, SLOT_LEN, check};
use lunette_store::{Op, StoreError};

use crate::counts::Tally;
use crate::limits::MAX_PIECE_BYTES;
use crate::packed::journal::{block_len, write_tail};
use crate::packed::{Packed, State};
use crate::unit::{Unit, filled};

/// Quanta that are moved together.
const MOVED_TOGETHER: usize = 1024;

/// Quanta of the journal that are looked at while requests wait for the state. All of them, 131072 at most before a
/// checkpoint is due, took 16 to 55 ms (AMD EPYC), and as much again when they were forgotten.
const WALKED_TOGETHER: usize = 1024;

/// Bytes of slot blocks that are changed by one read and one write.
const SLOT_RUN_BYTES: u64 = 64 << 10;

impl Packed {
    /// Moves everything out of the journal that can be, and frees its records. Gives the number of quanta.
    ///
    /// The calling thread waits for the unit.
    pub(crate) fn checkpoint(&self) -> Result<u64, StoreError> {
        let unit = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut checkpoint, before) = {
            let mut state = self.state();
            state.refuse_if_closed()?;
            if !state.journal.can_free() || (state.dropped && !state.full) {
                return Ok(0);
            }
            state.since_checkpoint = 0;
            (state.journal.begin_checkpoint(), state.readers.turn())
        };
        while !self.state().journal.gather(&mut checkpoint, WALKED_TOGETHER) {}
        let flush = || unit.flush().map_err(|error| self.close_for_changes(error));
        // Later readers find the quanta that are moved in the journal, so their places can be overwritten.
        self.wait_for_readers(before);
        self.check_owner(&unit)?;
        flush()?;
        move_out(&unit, &self.layout, self.owners.size.bytes(), &checkpoint.moves)?;
        flush()?;
        self.bar_notes();
        let tail = self.state().journal.tail(&checkpoint);
        write_tail(&unit, &self.layout, &tail).map_err(|error| self.close_for_changes(error))?;
        flush()?;
        {
            let mut state = self.state();
            state.journal.free(&checkpoint);
            state.freeing = true;
        }
        self.admit_notes();
        for moves in checkpoint.moves.chunks(WALKED_TOGETHER) {
            self.state().journal.forget(moves);
        }
        let before = self.state().readers.turn();
        // Later readers find the quanta in their places, so the records can be overwritten.
        self.wait_for_readers(before);
        let waiting = {
            let mut state = self.state();
            (state.freeing, state.full) = (false, false);
            !state.queue.is_empty()
        };
        if waiting {
            self.owners.mailbox.wake();
        }
        Tally::add(&self.owners.tally.checkpoints, 1);
        Ok(checkpoint.moves.len() as u64)
    }

    /// Closes the volume for changes when another client has opened it for writing since.
    fn check_owner(&self, unit: &Unit) -> Result<(), StoreError> {
        let tails = unit.read(self.layout.journal_offset(), TAILS_LEN)?;
        if self.state().journal.has_another_owner(&tails) {
            let why = "another client has opened this packed volume for writing; use it from one client at a time";
            return Err(self.close_for_changes(io::Error::other(why).into()));
        }
        Ok(())
    }

    fn wait_for_readers(&self, generation: usize) {
        let reading = |state: &mut State| !state.readers.is_empty(generation);
        drop(self.readers_left.wait_while(self.state(), reading).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Moves quanta, which are in the order of their positions, to their places.
pub(crate) fn move_out(unit: &Unit, layout: &Layout, quantum_len: usize, moves: &[Move]) -> Result<(), StoreError> {
    for together in moves.chunks(MOVED_TOGETHER) {
        let extents = read_extents(unit, layout, quantum_len, together)?;
        write_data(unit, layout, quantum_len, extents)?;
        write_holes(unit, layout, quantum_len, together)?;
        write_slots(unit, layout, together)?;
    }
    Ok(())
}

/// Ciphertexts of adjacent quanta.
struct Extent {
    first: u64,
    data: Buffer,
}

/// Reads the ciphertexts of moves from the journal, in the order of positions. Each is checked against its slot,
/// because the copy in the journal is the only good one: what is damaged is read once more, and fails if it stays so.
fn read_extents(unit: &Unit, layout: &Layout, len: usize, moves: &[Move]) -> Result<Vec<Extent>, StoreError> {
    let sealed: Vec<&Move> = moves.iter().filter(|at| at.data_offset.is_some()).collect();
    let offset = |at: &Move| layout.journal_offset() + at.data_offset.unwrap_or_default();
    let adjacent = |a: &&Move, b: &&Move| a.position + 1 == b.position && offset(a) + len as u64 == offset(b);
    let runs: Vec<&[&Move]> = sealed.chunk_by(adjacent).flat_map(|run| run.chunks(MAX_PIECE_BYTES / len)).collect();
    let mut next = runs.iter().enumerate();
    let (mut extents, mut damaged) = (Vec::new(), Vec::new());
    unit.run(
        || -> Result<_, StoreError> {
            let Some((number, run)) = next.next() else { return Ok(None) };
            let into = unit.take(run.len() * len)?;
            Ok(Some((number, Op::Read { offset: offset(run[0]), into })))
        },
        |number, outcome| {
            let (run, data) = (runs[number], filled(outcome)?);
            match first_damaged(run, &data) {
                None => extents.push(Extent { first: run[0].position, data }),
                Some(_) => damaged.push(run),
            }
            Ok(())
        },
    )?;
    for run in damaged {
        let data = unit.read(offset(run[0]), run.len() * len)?;
        if let Some(position) = first_damaged(run, &data) {
            let reason = OpenError { position, reason: Reason::Damaged };
            tracing::warn!(position, "a quantum in the journal is damaged, so it is not moved to its place");
            return Err(StoreError::Refused { offset: position * len as u64, reason: reason.into() });
        }
        extents.push(Extent { first: run[0].position, data });
    }
    extents.sort_by_key(|extent| extent.first);
    Ok(extents)
}

/// The position of the first quantum whose ciphertext does not fit its slot.
fn first_damaged(run: &[&Move], data: &[u8]) -> Option<u64> {
    let intact = |(at, data): &(&&Move, &[u8])| check(at.position, data, &at.slot) == Condition::Intact;
    let mut quanta = run.iter().zip(data.chunks_exact(data.len() / run.len()));
    quanta.find(|quantum| !intact(quantum)).map(|(at, _)| at.position)
}

/// Writes ciphertexts to their places, adjacent ones together.
fn write_data(unit: &Unit, layout: &Layout, len: usize, extents: Vec<Extent>) -> Result<(), StoreError> {
    let mut rest = extents.into_iter().peekable();
    unit.run(
        || {
            let Some(first) = rest.next() else { return Ok(None) };
            let mut joined = vec![first];
            let mut bytes = joined[0].data.len();
            let mut end = joined[0].first + (bytes / len) as u64;
            while let Some(next) = rest.next_if(|next| next.first == end && bytes + next.data.len() <= MAX_PIECE_BYTES)
            {
                (bytes, end) = (bytes + next.data.len(), end + (next.data.len() / len) as u64);
                joined.push(next);
            }
            let offset = layout.data(joined[0].first);
            let from = if joined.len() == 1 { joined.remove(0).data } else { join(unit, &joined, bytes)? };
            Ok(Some(((), Op::Write { offset, from, fua: false })))
        },
        |(), outcome| outcome.result,
    )
}

/// The ciphertexts of extents in one buffer.
fn join(unit: &Unit, extents: &[Extent], bytes: usize) -> Result<Buffer, StoreError> {
    let mut all = unit.take(bytes)?;
    let mut to = &mut all[..];
    for extent in extents {
        let (now, later) = to.split_at_mut(extent.data.len());
        now.copy_from_slice(&extent.data);
        to = later;
    }
    Ok(all)
}

/// Zeroes the ciphertexts of quanta that were unmapped.
fn write_holes(unit: &Unit, layout: &Layout, len: usize, moves: &[Move]) -> Result<(), StoreError> {
    let holes: Vec<u64> = moves.iter().filter(|at| at.data_offset.is_none()).map(|at| at.position).collect();
    let mut runs = holes.chunk_by(|a, b| a + 1 == *b);
    unit.run(
        || {
            let Some(run) = runs.next() else { return Ok(None) };
            let (offset, len) = (layout.data(run[0]), (run.len() * len) as u64);
            Ok(Some(((), Op::WriteZeroes { offset, len, may_unmap: true, fua: false })))
        },
        |(), outcome| outcome.result,
    )
}

/// Writes slots to their places. A block of them is read first unless all of it changes.
fn write_slots(unit: &Unit, layout: &Layout, moves: &[Move]) -> Result<(), StoreError> {
    let block_len = block_len(layout);
    let block = |at: &Move| layout.slot_block(at.position);
    let together =
        |a: &Move, b: &Move| block(b) - block(a) <= block_len && block(a) / SLOT_RUN_BYTES == block(b) / SLOT_RUN_BYTES;
    let place = |run: &[Move]| -> Range<u64> { block(&run[0])..block(&run[run.len() - 1]) + block_len };
    let len = |run: &[Move]| (place(run).end - place(run).start) as usize;
    let (whole, parts): (Vec<&[Move]>, Vec<_>) =
        moves.chunk_by(together).partition(|run| run.len() * SLOT_LEN == len(run));
    let change = |run: &[Move], mut blocks: Buffer| {
        let offset = place(run).start;
        for at in run {
            let within = (layout.slot(at.position) - offset) as usize;
            blocks[within..within + SLOT_LEN].copy_from_slice(&at.slot);
        }
        Op::Write { offset, from: blocks, fua: false }
    };
    let mut changed = Vec::with_capacity(whole.len() + parts.len());
    for run in whole {
        changed.push(change(run, unit.take(len(run))?));
    }
    let mut reads = parts.iter().enumerate();
    unit.run(
        || -> Result<_, StoreError> {
            let Some((number, run)) = reads.next() else { return Ok(None) };
            let into = unit.take(len(run))?;
            Ok(Some((number, Op::Read { offset: place(run).start, into })))
        },
        |number, outcome| {
            changed.push(change(parts[number], filled(outcome)?));
            Ok(())
        },
    )?;
    let mut changed = changed.into_iter();
    unit.run(|| Ok(changed.next().map(|op| ((), op))), |(), outcome| outcome.result)
}
