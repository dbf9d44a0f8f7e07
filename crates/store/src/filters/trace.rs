//! A filter that records requests and their results.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Capabilities, Completion, FileIo, Geometry, Op, OpKind, Space, Store};

/// Number of requests that a [`Trace`] remembers; the oldest are dropped first.
pub const MAX_RECORDS: usize = 1 << 16;

/// The record of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The kind of the request.
    pub kind: OpKind,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Whether the request was to end on stable storage.
    pub fua: bool,
    /// The result of the request, with failures as text; `None` while it is in progress.
    pub ended: Option<Result<(), String>>,
}

/// Records requests in the order of submission, and logs their completion at level `TRACE`.
pub struct Trace {
    inner: Arc<dyn Store>,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    records: VecDeque<Record>,
    /// Number of the oldest record that is kept.
    first: u64,
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// Appends a record and returns its number.
    fn push(&mut self, record: Record) -> u64 {
        if self.records.len() == MAX_RECORDS {
            self.records.pop_front();
            self.first += 1;
        }
        self.records.push_back(record);
        self.first + self.records.len() as u64 - 1
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Record> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.records.get_mut(place)
    }
}

impl Trace {
    /// A filter that records the requests to `inner`.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, log: Arc::default() }
    }

    /// The records since the start or the last [`take`](Self::take), in order of submission.
    pub fn records(&self) -> Vec<Record> {
        lock(&self.log).records.iter().cloned().collect()
    }

    /// Takes the [`records`](Self::records) out of the filter.
    pub fn take(&self) -> Vec<Record> {
        let mut log = lock(&self.log);
        log.first += log.records.len() as u64;
        log.records.drain(..).collect()
    }
}

impl Store for Trace {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn space(&self) -> std::io::Result<Option<Space>> {
        self.inner.space()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let (offset, len) = op.range();
        let record = Record { kind: op.kind(), offset, len, fua: op.fua(), ended: None };
        let number = lock(&self.log).push(record);
        let log = Arc::clone(&self.log);
        let ended = move |outcome: crate::Outcome| {
            if let Some(record) = lock(&log).get_mut(number) {
                record.ended = Some(outcome.result.as_ref().copied().map_err(ToString::to_string));
                tracing::trace!(?record, "request ended");
            }
            done.complete(outcome);
        };
        self.inner.submit(op, io, Completion::call(ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryStore, execute};

    #[test]
    fn requests_are_recorded_with_their_ends() {
        let trace = Trace::new(Arc::new(MemoryStore::new(4096).unwrap()));
        assert!(execute(&trace, Op::WriteZeroes { offset: 512, len: 1024, may_unmap: true, fua: true }).result.is_ok());
        assert!(execute(&trace, Op::Unmap { offset: 4096, len: 1 }).result.is_err());
        let records = trace.take();
        let first = Record { kind: OpKind::WriteZeroes, offset: 512, len: 1024, fua: true, ended: Some(Ok(())) };
        assert_eq!(records[0], first);
        assert!(records[1].ended.as_ref().unwrap().as_ref().is_err_and(|words| words.contains("outside")));
        assert!(trace.records().is_empty());
    }

    #[test]
    fn old_records_make_room() {
        let mut log = Log::default();
        let record = Record { kind: OpKind::Flush, offset: 0, len: 0, fua: false, ended: None };
        for number in 0..=MAX_RECORDS as u64 {
            assert_eq!(log.push(record.clone()), number);
        }
        assert_eq!(log.records.len(), MAX_RECORDS);
        assert!(log.get_mut(0).is_none());
        assert!(log.get_mut(1).is_some());
    }
}
