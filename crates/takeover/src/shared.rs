//! The work of the threads: requests that need the source, and the copy in the background.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lunette_buffer::{Buffer, Pool};
use lunette_store::{Op, Outcome, Store, StoreError, execute};

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
    /// The disk as it is elsewhere, until the target has all of it.
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
    trouble: Option<Trouble>,
}

/// A failure of the copy in the background.
struct Trouble {
    why: String,
    /// When the copy goes on.
    retry: Instant,
    /// The chunk that could not be copied; `None` when the map could not be written.
    chunk: Option<u64>,
}

impl State {
    /// How many threads may copy now, and for how long that holds.
    fn most_copies(&self) -> (usize, Duration) {
        let now = Instant::now();
        let retry = self.trouble.as_ref().map(|trouble| trouble.retry.saturating_duration_since(now));
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
    pub(crate) fn new(
        target: Arc<dyn Store>,
        source: Option<Arc<dyn Store>>,
        source_bytes: u64,
        map: Map,
        pool: Pool,
    ) -> Self {
        let source = Mutex::new(source.filter(|_| !map.is_whole()));
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
        self.lock().trouble.as_ref().map(|trouble| trouble.why.clone())
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
        self.remove_thread();
    }

    /// Counts a thread that has ended, or did not begin. The last one closes the source, which no request needs then.
    pub(crate) fn remove_thread(&self) {
        let mut state = self.lock();
        state.threads -= 1;
        if state.threads == 0 {
            drop(self.source.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
        drop(state);
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
                self.end_background(copied, Some(&run), |queue| queue.copied(&run));
            }
            Work::Map => self.end_background(self.map.write_all(&*self.target), None, Queue::mapped),
        }
    }

    /// Ends a piece of work in the background. A trouble is over when what has failed succeeds.
    fn end_background(&self, result: Result<(), StoreError>, run: Option<&Range<u64>>, end: impl FnOnce(&mut Queue)) {
        let mut state = self.lock();
        let is_over = |trouble: &Trouble| match (trouble.chunk, run) {
            (Some(chunk), _) => self.map.is_local(&(chunk..chunk + 1)),
            (None, None) => true,
            (None, Some(_)) => false,
        };
        match result {
            Err(error) => {
                let chunk = run.map(|run| self.map.absent(run, 1).map_or(run.start, |absent| absent.start));
                state.trouble = Some(Trouble { why: error.to_string(), retry: Instant::now() + RETRY, chunk });
            }
            Ok(()) if state.trouble.as_ref().is_some_and(is_over) => state.trouble = None,
            Ok(()) => {}
        }
        end(&mut state.queue);
        drop(state);
        self.changed.notify_all();
    }

    /// Answers a request. It holds its chunks until they are local, or it has failed.
    fn answer(&self, Demand { op, done, chunks }: Demand) {
        let release = || {
            self.lock().queue.release(&chunks);
            self.changed.notify_all();
        };
        let outcome = match op {
            Op::Read { offset, into } => self.read(offset, into, &chunks),
            op => self.change(op, &chunks),
        };
        release();
        done.complete(outcome);
    }

    /// Reads what is local from the target, and what cannot be copied from the source: a target that is full or fails
    /// keeps no read from its bytes.
    fn read(&self, offset: u64, mut into: Buffer, chunks: &Range<u64>) -> Outcome {
        if self.copy(chunks.clone()).is_ok() {
            return execute(&*self.target, Op::Read { offset, into });
        }
        let mut at = 0;
        while at < into.len() {
            let piece = match self.read_piece(offset + at as u64, into.len() - at) {
                Ok(piece) => piece,
                Err(error) => return Outcome::new(Err(error.elsewhere()), Some(into)),
            };
            into[at..at + piece.len()].copy_from_slice(&piece);
            at += piece.len();
        }
        Outcome::new(Ok(()), Some(into))
    }

    /// Reads bytes of one chunk, at most this many.
    fn read_piece(&self, offset: u64, most: usize) -> Result<Buffer, StoreError> {
        let chunk = offset / CHUNK_BYTES;
        let is_local = offset >= self.source_bytes || self.map.is_local(&(chunk..chunk + 1));
        let end = if offset < self.source_bytes { self.source_bytes } else { u64::MAX };
        let left = ((chunk + 1) * CHUNK_BYTES).min(end) - offset;
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(most);
        let into = self.pool.take(len).ok_or_else(no_memory)?;
        let store = if is_local { Arc::clone(&self.target) } else { self.source()? };
        let read = execute(&*store, Op::Read { offset, into });
        read.result?;
        read.buffer.ok_or_else(no_memory)
    }

    /// Executes a request that changes the disk. When it has succeeded, a crash takes none of its chunks back.
    fn change(&self, op: Op, chunks: &Range<u64>) -> Outcome {
        let (offset, len) = op.range();
        let covered = self.covered(offset, len);
        let ends = [chunks.start..covered.start.min(chunks.end), covered.end.max(chunks.start)..chunks.end];
        if let Err(error) = ends.into_iter().try_for_each(|end| self.copy(end)) {
            return Outcome::of(op, Err(error.elsewhere()));
        }
        let failed_flushes = self.map.failed_flushes();
        let mut outcome = execute(&*self.target, op);
        if outcome.result.is_ok() {
            self.map.set_local(covered, failed_flushes);
            outcome.result = self.map.write_for(&*self.target, chunks);
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
            let failed_flushes = self.map.failed_flushes();
            execute(&*self.target, op).result?;
            self.map.set_local(run, failed_flushes);
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
