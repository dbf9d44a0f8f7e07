//! A filter that holds changes back from pieces of a disk that something else must see to first.
//!
//! A snapshot of a file whose blocks are scattered takes the system seconds. With a gate it is taken piece by piece,
//! and a change waits for the pieces that it touches alone. The moment in which the gate is closed is the instant of
//! the snapshot: a change that was acknowledged before is in it, and one that was submitted after is not.

mod turns;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lunette_buffer::FileSlice;

use crate::{Capabilities, Completion, CopySource, FileIo, Geometry, InlineIo, Op, OpKind, Space, Store};

use turns::Place;
pub use turns::Turns;

/// Bytes of a piece, of a disk that has no more than [`MAX_PIECES`] of them.
const PIECE_BYTES: u64 = 128 << 10;

/// Pieces of a disk. Those of a longer disk are longer.
const MAX_PIECES: u64 = 1 << 20;

/// Bytes that are seen to at once, of a disk that has no longer pieces.
const MAX_RUN_BYTES: u64 = 16 << 20;

/// A run that took less is followed by a longer one.
const QUICK: Duration = Duration::from_micros(500);

/// A run that took more is followed by a shorter one. A turn is over when its runs took as much.
const SLOW: Duration = Duration::from_millis(2);

/// Threads that submit what was held back: those of a flush within a change must not keep others waiting.
const SUBMITTERS: usize = 4;

/// A store whose changes pass a gate. Reads and flushes do not.
pub struct Gated {
    inner: Arc<dyn Store>,
    gate: Arc<WriteGate>,
}

impl Gated {
    /// `inner` behind a gate, which all stores of the same disk have in common.
    pub fn new(inner: Arc<dyn Store>, gate: Arc<WriteGate>) -> Self {
        Self { inner, gate }
    }
}

/// Lets changes of a disk pass, or holds them back from some of its pieces.
#[derive(Default)]
pub struct WriteGate {
    /// Whether there is a round. Changes look at it without the lock.
    is_closed: AtomicBool,
    state: Mutex<State>,
    /// Told of changes that are held back or free, of the gate's turn, and of the end of a round.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    round: Option<Round>,
    /// The number of rounds that were begun.
    rounds: u64,
    /// Changes that need not wait any more.
    free: VecDeque<Held>,
    /// The longest time from which a change was held back to its end, in the last round.
    longest_wait: Duration,
}

/// A change that is held back.
struct Held {
    store: Arc<dyn Store>,
    op: Op,
    done: Completion,
    pieces: Range<usize>,
}

impl Held {
    fn submit(self) {
        self.store.submit(self.op, &InlineIo, self.done);
    }
}

/// The pieces of a disk that have to be seen to.
struct Round {
    len_bytes: u64,
    piece_bytes: u64,
    /// Whether each piece is left.
    left: Vec<bool>,
    /// The piece behind the last run.
    next: usize,
    held: VecDeque<Held>,
}

impl Round {
    fn new(len_bytes: u64) -> Self {
        let piece_bytes = PIECE_BYTES.max(len_bytes.div_ceil(MAX_PIECES).next_power_of_two());
        let pieces = len_bytes.div_ceil(piece_bytes);
        Self { len_bytes, piece_bytes, left: vec![true; pieces as usize], next: 0, held: VecDeque::new() }
    }

    /// The pieces that a range of bytes touches.
    fn touched(&self, offset: u64, len: u64) -> Range<usize> {
        let end = offset.saturating_add(len).min(self.len_bytes).div_ceil(self.piece_bytes);
        (offset / self.piece_bytes).min(end) as usize..end as usize
    }

    /// The first of these pieces that is left.
    fn first_left(&self, pieces: Range<usize>) -> Option<usize> {
        let start = pieces.start;
        self.left[pieces].iter().position(|is_left| *is_left).map(|index| start + index)
    }

    /// The pieces that are seen to next: those of the change that has waited longest, else those that follow the last
    /// ones; `most` at most.
    fn next_run(&self, most: usize) -> Option<Range<usize>> {
        let all = self.left.len();
        let (first, end) = match self.held.front() {
            Some(held) => (self.first_left(held.pieces.clone())?, held.pieces.end),
            None => (self.first_left(self.next..all).or_else(|| self.first_left(0..all))?, all),
        };
        let run = self.left[first..end].iter().take(most).take_while(|is_left| **is_left).count();
        Some(first..first + run)
    }

    fn bytes(&self, run: &Range<usize>) -> Range<u64> {
        let end = (run.end as u64 * self.piece_bytes).min(self.len_bytes);
        run.start as u64 * self.piece_bytes..end
    }

    /// Gives the changes that wait for no other pieces.
    fn seen(&mut self, run: Range<usize>) -> VecDeque<Held> {
        self.left[run.clone()].fill(false);
        self.next = run.end;
        let left = &self.left;
        let is_waiting = |held: &Held| left[held.pieces.clone()].contains(&true);
        let (waiting, free): (VecDeque<Held>, VecDeque<Held>) = self.held.drain(..).partition(is_waiting);
        self.held = waiting;
        free
    }

    fn most_pieces(&self) -> usize {
        (MAX_RUN_BYTES / self.piece_bytes).max(1) as usize
    }
}

/// The pieces of the run that follows one that took this time.
fn next_most(most: usize, took: Duration, limit: usize) -> usize {
    if took > SLOW {
        (most / 2).max(1)
    } else if took < QUICK {
        (most * 2).min(limit)
    } else {
        most
    }
}

impl WriteGate {
    /// Closes the gate of a disk of this length: changes wait until their pieces are seen to. `None` when it is closed.
    pub fn close(self: &Arc<Self>, len_bytes: u64) -> Option<ClosedGate> {
        let round = Round::new(len_bytes);
        let mut state = self.lock();
        if state.round.is_some() {
            return None;
        }
        state.round = Some(round);
        state.rounds += 1;
        state.longest_wait = Duration::ZERO;
        self.is_closed.store(true, Ordering::Release);
        Some(ClosedGate(Arc::clone(self)))
    }

    /// Whether the gate holds a change of these bytes back.
    fn holds(&self, offset: u64, len: u64) -> bool {
        if !self.is_closed.load(Ordering::Acquire) {
            return false;
        }
        let state = self.lock();
        state.round.as_ref().is_some_and(|round| round.first_left(round.touched(offset, len)).is_some())
    }

    /// Holds a change back, or gives it back to be made.
    fn hold(self: &Arc<Self>, store: &Arc<dyn Store>, op: Op, done: Completion) -> Option<(Op, Completion)> {
        if !self.is_closed.load(Ordering::Acquire) {
            return Some((op, done));
        }
        let mut state = self.lock();
        let Some(round) = &mut state.round else { return Some((op, done)) };
        let (offset, len) = op.range();
        let pieces = round.touched(offset, len);
        if round.first_left(pieces.clone()).is_none() {
            return Some((op, done));
        }
        let (gate, since) = (Arc::clone(self), Instant::now());
        let done = Completion::call(move |outcome| {
            let mut state = gate.lock();
            state.longest_wait = state.longest_wait.max(since.elapsed());
            drop(state);
            done.complete(outcome);
        });
        round.held.push_back(Held { store: Arc::clone(store), op, done, pieces });
        drop(state);
        self.changed.notify_all();
        None
    }

    /// Opens the gate. What waits is free.
    fn open(&self) {
        let mut state = self.lock();
        if let Some(round) = state.round.take() {
            state.free.extend(round.held);
        }
        self.is_closed.store(false, Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    /// Hears that it is the gate's turn.
    fn has_turn(&self) {
        // With the lock, no thread is between its look for the turn and its wait.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Submits the changes that are free now.
    fn submit_free(&self) {
        while let Some(held) = { self.lock().free.pop_front() } {
            held.submit();
        }
    }

    /// Submits changes of the present round as soon as they are free, until it ends.
    fn submit_until_open(&self) {
        let mut state = self.lock();
        let rounds = state.rounds;
        loop {
            if let Some(held) = state.free.pop_front() {
                drop(state);
                held.submit();
                state = self.lock();
            } else if state.round.is_none() || state.rounds != rounds {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A gate that is closed. Dropped, it is open, and what waits goes on.
#[must_use = "the gate is closed as long as it is kept"]
pub struct ClosedGate(Arc<WriteGate>);

impl ClosedGate {
    /// Sees to all pieces, and opens the gate: to those first that changes wait for, to the others when it is the
    /// gate's turn. A change that is submitted meanwhile reaches no piece before it was seen to. Gives the longest time
    /// from which a change was held back to its end.
    ///
    /// # Errors
    ///
    /// The error that `see_to` gave. The gate is open then.
    pub fn see_to_all<E>(
        self,
        turns: &Turns,
        mut see_to: impl FnMut(Range<u64>) -> Result<(), E>,
    ) -> Result<Duration, E> {
        let gate = Arc::clone(&self.0);
        let seen = thread::scope(|scope| {
            // The gate is open when the closure ends, however it does: the threads end then.
            let _closed = self;
            let submitters = (0..SUBMITTERS).map(|_| {
                let submitter = thread::Builder::new().name("lunette-gate".into());
                submitter.spawn_scoped(scope, || gate.submit_until_open()).is_ok()
            });
            let has_submitter = submitters.fold(false, |has_one, is_one| has_one | is_one);
            gate.see_to_left(&turns.enter(&gate), &mut see_to, has_submitter)
        });
        seen.map(|()| gate.lock().longest_wait)
    }
}

impl Drop for ClosedGate {
    fn drop(&mut self) {
        self.0.open();
        self.0.submit_free();
    }
}

impl WriteGate {
    fn see_to_left<E>(
        &self,
        place: &Place<'_>,
        see_to: &mut impl FnMut(Range<u64>) -> Result<(), E>,
        has_submitter: bool,
    ) -> Result<(), E> {
        let (mut most, mut turn) = (1, Duration::ZERO);
        loop {
            let (run, bytes, limit) = {
                let is_idle = |state: &mut State| {
                    let is_calm = |round: &Round| round.held.is_empty() && round.next_run(1).is_some();
                    state.round.as_ref().is_some_and(is_calm) && !place.is_first()
                };
                let state = self.changed.wait_while(self.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
                let Some(round) = &state.round else { return Ok(()) };
                let Some(run) = round.next_run(most) else { return Ok(()) };
                let bytes = round.bytes(&run);
                (run, bytes, round.most_pieces())
            };
            let began = Instant::now();
            see_to(bytes)?;
            let took = began.elapsed();
            most = next_most(most, took, limit);
            self.seen(run);
            turn += took;
            if turn >= SLOW {
                place.pass();
                turn = Duration::ZERO;
            }
            if !has_submitter {
                self.submit_free();
            }
        }
    }

    fn seen(&self, run: Range<usize>) {
        let mut state = self.lock();
        let free = state.round.as_mut().map(|round| round.seen(run)).unwrap_or_default();
        state.free.extend(free);
        drop(state);
        self.changed.notify_all();
    }
}

impl Store for Gated {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn space(&self) -> std::io::Result<Option<Space>> {
        self.inner.space()
    }

    fn copy_source(&self) -> Option<CopySource> {
        self.inner.copy_source()
    }

    fn can_copy_from(&self, source: &CopySource) -> bool {
        self.inner.can_copy_from(source)
    }

    fn file_slice(&self, offset: u64, len: usize) -> Option<FileSlice> {
        self.inner.file_slice(offset, len)
    }

    fn needs_file_io(&self) -> bool {
        self.inner.needs_file_io()
    }

    fn answers_at_once(&self, kind: OpKind) -> bool {
        self.inner.answers_at_once(kind)
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool {
        self.inner.read_at_once(offset, into)
    }

    fn write_at_once(&self, offset: u64, from: &[u8], fua: bool) -> bool {
        !self.gate.holds(offset, from.len() as u64) && self.inner.write_at_once(offset, from, fua)
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let passes = match op.kind() {
            OpKind::Read | OpKind::Allocation | OpKind::Flush => Some((op, done)),
            OpKind::Write | OpKind::WriteZeroes | OpKind::Unmap | OpKind::Copy => self.gate.hold(&self.inner, op, done),
        };
        if let Some((op, done)) = passes {
            self.inner.submit(op, io, done);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::mpsc::channel;

    use proptest::prelude::*;

    use super::*;
    use crate::{MemoryStore, execute};

    const PIECE: usize = PIECE_BYTES as usize;

    fn gated(pieces: usize) -> (Arc<MemoryStore>, Arc<WriteGate>, Gated) {
        let memory = Arc::new(MemoryStore::new((pieces * PIECE) as u64).unwrap());
        let gate = Arc::<WriteGate>::default();
        (Arc::clone(&memory), Arc::clone(&gate), Gated::new(memory, gate))
    }

    fn zeroes(offset: u64, len: u64) -> Op {
        Op::WriteZeroes { offset, len, may_unmap: false, fua: false }
    }

    fn byte(store: &MemoryStore, offset: u64) -> u8 {
        let mut byte = [0];
        store.read(offset, &mut byte).unwrap();
        byte[0]
    }

    #[test]
    fn a_change_waits_for_its_pieces_alone() {
        let (memory, gate, store) = gated(4);
        memory.write(0, &vec![1; 4 * PIECE]).unwrap();
        let closed = gate.close(4 * PIECE_BYTES).unwrap();
        assert!(gate.close(1).is_none(), "it is closed");
        let (tell, told) = channel();
        let submit = |number: u64, offset: u64, len: u64| {
            let tell = tell.clone();
            store.submit(zeroes(offset, len), &InlineIo, Completion::call(move |_| tell.send(number).unwrap()));
        };
        submit(0, 2 * PIECE_BYTES, 512);
        submit(1, PIECE_BYTES, PIECE_BYTES);
        submit(2, PIECE_BYTES, 2 * PIECE_BYTES);
        assert!(told.try_recv().is_err());
        assert!(!store.write_at_once(0, &[2; 512], false));
        assert!(execute(&store, Op::Flush).result.is_ok());

        let mut runs = Vec::new();
        let seen = closed.see_to_all(&Turns::default(), |bytes| {
            runs.push(bytes.start / PIECE_BYTES);
            // Whatever waits for this piece has not been made.
            assert_eq!(byte(&memory, bytes.start), 1);
            if runs.len() == 3 {
                // All that waited for the first two is made without waiting for more.
                let mut ended: Vec<u64> = (0..3).map(|_| told.recv().unwrap()).collect();
                ended.sort_unstable();
                assert_eq!(ended, [0, 1, 2]);
                assert!(store.write_at_once(PIECE_BYTES, &[3; 512], false), "the piece was seen to");
                assert!(!store.write_at_once(bytes.start, &[3; 512], false));
            }
            Ok::<(), Infallible>(())
        });
        assert!(seen.is_ok_and(|longest_wait| longest_wait > Duration::ZERO));
        assert_eq!(runs[..2], [2, 1], "{runs:?}");
        assert!(store.write_at_once(0, &[3; 512], false), "the gate is open");
        assert!(gate.close(1).is_some());
    }

    #[test]
    fn what_waits_goes_on_when_the_pieces_cannot_be_seen_to() {
        for is_tried in [false, true] {
            let (memory, gate, store) = gated(2);
            memory.write(0, &[1; 512]).unwrap();
            let closed = gate.close(2 * PIECE_BYTES).unwrap();
            let (tell, told) = channel();
            store.submit(zeroes(0, 512), &InlineIo, Completion::call(move |outcome| tell.send(outcome).unwrap()));
            assert_eq!(byte(&memory, 0), 1);
            if is_tried {
                assert_eq!(closed.see_to_all(&Turns::default(), |_| Err("full")), Err("full"));
            } else {
                drop(closed);
            }
            assert!(told.recv().unwrap().result.is_ok());
            assert_eq!(byte(&memory, 0), 0);
            assert!(gate.close(1).is_some());
        }
    }

    #[test]
    fn a_gate_that_is_closed_again_at_once_loses_no_change() {
        let (_, gate, store) = gated(2);
        let closed = gate.close(2 * PIECE_BYTES).unwrap();
        let (tell, told) = channel();
        let done = Completion::call(move |outcome| tell.send(outcome.result.is_ok()).unwrap());
        store.submit(zeroes(0, 512), &InlineIo, done);
        gate.open();
        // Between the opening and the submission of what was held back.
        let again = gate.close(2 * PIECE_BYTES).unwrap();
        gate.submit_free();
        assert_eq!(told.recv(), Ok(true));
        drop((again, closed));
    }

    #[test]
    fn changes_outside_the_pieces_pass() {
        let (_, gate, store) = gated(2);
        let _closed = gate.close(PIECE_BYTES).unwrap();
        assert!(store.write_at_once(PIECE_BYTES, &[1; 512], false));
        assert!(execute(&store, zeroes(u64::MAX, 2)).result.is_err());
        assert!(execute(&store, zeroes(0, 0)).result.is_ok());
    }

    #[test]
    fn long_disks_have_long_pieces() {
        for (len_bytes, piece_bytes) in [(512, PIECE_BYTES), (1 << 40, 1 << 20), (u64::MAX >> 1, 1 << 43)] {
            let round = Round::new(len_bytes);
            assert_eq!(round.piece_bytes, piece_bytes);
            let pieces = round.left.len();
            assert!(pieces as u64 <= MAX_PIECES && round.most_pieces() >= 1);
            assert_eq!(round.bytes(&(0..pieces)), 0..len_bytes);
        }
    }

    #[test]
    fn runs_are_as_long_as_they_are_quick() {
        let (quick, slow) = (Duration::ZERO, SLOW * 2);
        assert_eq!(next_most(1, quick, 64), 2);
        assert_eq!(next_most(48, quick, 64), 64);
        assert_eq!(next_most(8, QUICK * 2, 64), 8);
        assert_eq!((next_most(8, slow, 64), next_most(1, slow, 64)), (4, 1));
    }

    proptest! {
        /// A copy of the pieces, made while several threads write, is the content of the instant.
        #[test]
        fn a_copy_is_of_the_instant(writes in prop::collection::vec((0..8 * PIECE_BYTES / 512, 1..5000u64), 1..200)) {
            let (memory, gate, store) = gated(8);
            memory.write(0, &vec![1; 8 * PIECE]).unwrap();
            let copy = MemoryStore::new(8 * PIECE_BYTES).unwrap();
            let closed = gate.close(8 * PIECE_BYTES).unwrap();
            thread::scope(|scope| {
                for part in writes.chunks(writes.len().div_ceil(3)) {
                    let store = &store;
                    scope.spawn(move || {
                        for (block, blocks) in part {
                            let offset = block * 512;
                            let len = (blocks * 512).min(8 * PIECE_BYTES - offset);
                            assert!(execute(store, zeroes(offset, len)).result.is_ok());
                        }
                    });
                }
                let mut piece = vec![0; 8 * PIECE];
                let seen = closed.see_to_all(&Turns::default(), |bytes| {
                    let piece = &mut piece[..(bytes.end - bytes.start) as usize];
                    memory.read(bytes.start, piece).and_then(|()| copy.write(bytes.start, piece))
                });
                assert!(seen.is_ok());
            });
            let mut content = vec![0; 8 * PIECE];
            copy.read(0, &mut content).unwrap();
            prop_assert!(content.iter().all(|byte| *byte == 1));
            for (block, _) in writes {
                prop_assert_eq!(byte(&memory, block * 512), 0);
            }
        }
    }
}
