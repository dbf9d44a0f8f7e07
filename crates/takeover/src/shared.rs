//! The work of the threads: requests that need the source, and the copy in the background.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lunette_buffer::Pool;
use lunette_store::{InlineIo, Op, OpKind, Outcome, Store, StoreError, execute};

use crate::limits::{CHUNK_BYTES, MAX_BACKGROUND, MAX_RUN_BYTES};
use crate::map::{Map, no_memory};
use crate::queue::{Demand, Queue, Work};

/// The time after which a copy that has failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// The time after a request in which one thread alone copies, so that the next request finds the source idle.
const CALM: Duration = Duration::from_millis(200);

/// A disk that is taken over, as threads share it.
pub(crate) struct Shared {
    pub(crate) target: Arc<dyn Store>,
    /// Until the target has all of it.
    source: Mutex<Option<Arc<dyn Store>>>,
    /// Bytes of the source.
    pub(crate) source_bytes: u64,
    pub(crate) map: Map,
    pub(crate) pool: Pool,
    state: Mutex<State>,
    changed: Condvar,
}

/// The fate of a request.
pub(crate) enum Pushed {
    Queued,
    /// The target can execute the request, which comes back.
    IsWhole(Demand),
    /// The source is closed, and the request comes back.
    IsStopped(Demand),
}

/// The error of a request that needs a source that is closed.
pub(crate) fn closed() -> StoreError {
    StoreError::Gone(std::io::ErrorKind::NotConnected.into())
}

#[derive(Default)]
struct State {
    queue: Queue,
    is_closed: bool,
    /// The threads that work.
    threads: usize,
    /// When the last request came that needed the source.
    last_demand: Option<Instant>,
    /// Why the last copy in the background failed, and when it is tried again.
    trouble: Option<(String, Instant)>,
}

impl State {
    /// How many threads may copy now, and for how long that holds.
    fn most_copies(&self) -> (usize, Duration) {
        let now = Instant::now();
        let retry = self.trouble.as_ref().map(|(_, retry)| retry.saturating_duration_since(now));
        let calm = self.last_demand.map(|last| (last + CALM).saturating_duration_since(now));
        match (retry, calm) {
            _ if self.is_closed => (0, RETRY),
            (Some(wait), _) if !wait.is_zero() => (0, wait),
            (_, Some(wait)) if !wait.is_zero() => (1, wait),
            _ => (MAX_BACKGROUND, RETRY),
        }
    }
}

impl Shared {
    pub(crate) fn new(target: Arc<dyn Store>, source: Arc<dyn Store>, source_bytes: u64, map: Map, pool: Pool) -> Self {
        let source = Mutex::new(Some(source).filter(|_| !map.is_whole()));
        Self { target, source, source_bytes, map, pool, state: Mutex::default(), changed: Condvar::new() }
    }

    /// The chunks that this range of bytes touches. What lies beyond the source has none.
    pub(crate) fn touched(&self, offset: u64, len: u64) -> Range<u64> {
        let end = offset.saturating_add(len).min(self.source_bytes).div_ceil(CHUNK_BYTES);
        (offset / CHUNK_BYTES).min(end)..end
    }

    /// The chunks of which this range of bytes has all that come from the source.
    fn covered(&self, offset: u64, len: u64) -> Range<u64> {
        let touched = self.touched(offset, len);
        let end = offset.saturating_add(len);
        let last = if end >= self.source_bytes { touched.end } else { end / CHUNK_BYTES };
        offset.div_ceil(CHUNK_BYTES).min(last)..last
    }

    /// Queues a request, unless the threads may have ended.
    pub(crate) fn push(&self, demand: Demand) -> Pushed {
        let mut state = self.lock();
        if self.map.is_whole() {
            return Pushed::IsWhole(demand);
        }
        if state.is_closed {
            return Pushed::IsStopped(demand);
        }
        state.queue.push(demand);
        state.last_demand = Some(Instant::now());
        drop(state);
        self.changed.notify_all();
        Pushed::Queued
    }

    /// Lets the threads end when all requests are answered, and waits for that, at most for this time. Whether they
    /// have ended.
    pub(crate) fn stop(&self, most: Duration) -> bool {
        self.close();
        let ended = self.changed.wait_timeout_while(self.lock(), most, |state| state.threads > 0);
        ended.unwrap_or_else(PoisonError::into_inner).0.threads == 0
    }

    /// Lets the threads end when all requests are answered.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        self.lock().trouble.as_ref().map(|(why, _)| why.clone())
    }

    /// Waits until all is copied or the copy is stopped, at most for this time.
    pub(crate) fn wait(&self, most: Duration) {
        let goes_on = |state: &mut State| !self.map.is_whole() && !state.is_closed;
        drop(self.changed.wait_timeout_while(self.lock(), most, goes_on));
    }

    /// Counts a thread, before it begins.
    pub(crate) fn add_thread(&self) {
        self.lock().threads += 1;
    }

    /// The work of a thread.
    pub(crate) fn work(&self) {
        while let Some(work) = self.next() {
            self.see_to(work);
        }
        // No request needs it any more.
        drop(self.source.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.remove_thread();
    }

    /// Counts a thread that has ended, or did not begin.
    pub(crate) fn remove_thread(&self) {
        self.lock().threads -= 1;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            let (most_copies, wait) = state.most_copies();
            if let Some(work) = state.queue.take(&self.map, most_copies) {
                return Some(work);
            }
            if (state.is_closed || self.map.is_whole()) && state.queue.is_empty() {
                return None;
            }
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Does one piece of work that is there, in tests without threads.
    #[cfg(test)]
    pub(crate) fn step(&self, most_copies: usize) -> bool {
        let work = self.lock().queue.take(&self.map, most_copies);
        work.map(|work| self.see_to(work)).is_some()
    }

    fn see_to(&self, work: Work) {
        match work {
            Work::Answer(demand) => self.answer(demand),
            Work::Copy(run) => {
                let copied = self.copy(run.clone());
                self.end_background(copied, |queue| queue.copied(&run));
            }
            Work::Map => {
                let mapped = self.map.write(&*self.target, &(0..self.map.chunks()));
                self.end_background(mapped, Queue::mapped);
            }
        }
    }

    fn end_background(&self, result: Result<(), StoreError>, end: impl FnOnce(&mut Queue)) {
        let mut state = self.lock();
        state.trouble = result.err().map(|error| (error.to_string(), Instant::now() + RETRY));
        end(&mut state.queue);
        drop(state);
        self.changed.notify_all();
    }

    /// Answers a request. It holds its chunks until they are local, or it has failed.
    fn answer(&self, Demand { op, done, chunks }: Demand) {
        let release = || {
            self.lock().queue.answered(&chunks);
            self.changed.notify_all();
        };
        if op.kind() == OpKind::Read {
            let copied = self.copy(chunks.clone());
            release();
            return match copied {
                Ok(()) => self.target.submit(op, &InlineIo, done),
                Err(error) => done.complete(Outcome::of(op, Err(error.elsewhere()))),
            };
        }
        let outcome = self.change(op, &chunks);
        release();
        done.complete(outcome);
    }

    /// Executes a request that changes the disk. When it has succeeded, a crash takes none of its chunks back.
    fn change(&self, op: Op, chunks: &Range<u64>) -> Outcome {
        let (offset, len) = op.range();
        let covered = self.covered(offset, len);
        let ends = [chunks.start..covered.start.min(chunks.end), covered.end.max(chunks.start)..chunks.end];
        if let Err(error) = ends.into_iter().try_for_each(|end| self.copy(end)) {
            return Outcome::of(op, Err(error.elsewhere()));
        }
        let mut outcome = execute(&*self.target, op);
        if outcome.result.is_ok() {
            self.map.set_local(covered);
            outcome.result = self.map.write(&*self.target, chunks);
        }
        outcome
    }

    /// Copies those of these chunks that are not local.
    fn copy(&self, chunks: Range<u64>) -> Result<(), StoreError> {
        while let Some(run) = self.map.absent(&chunks, MAX_RUN_BYTES / CHUNK_BYTES) {
            let offset = run.start * CHUNK_BYTES;
            let len = (run.end * CHUNK_BYTES).min(self.source_bytes) - offset;
            let into = self.pool.take(usize::try_from(len).unwrap_or(usize::MAX)).ok_or_else(no_memory)?;
            let read = execute(&*self.source()?, Op::Read { offset, into });
            read.result?;
            let from = read.buffer.ok_or_else(no_memory)?;
            // What is sparse stays so.
            let op = if from.iter().all(|byte| *byte == 0) {
                Op::WriteZeroes { offset, len, may_unmap: true, fua: false }
            } else {
                Op::Write { offset, from, fua: false }
            };
            execute(&*self.target, op).result?;
            self.map.set_local(run);
        }
        Ok(())
    }

    fn source(&self) -> Result<Arc<dyn Store>, StoreError> {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        source.clone().ok_or_else(closed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
