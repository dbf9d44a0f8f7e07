//! The queue: which request or which run of chunks a thread sees to next. It has no threads and no I/O.
//!
//! A thread claims the chunks that it sees to. So a chunk is read from the source once, and no copy of it overwrites
//! what a request has written meanwhile.

use std::collections::VecDeque;
use std::ops::Range;

use lunette_store::{Completion, Op};

use crate::limits::{CHUNK_BYTES, MAX_RUN_BYTES, MAX_UNMAPPED_CHUNKS};
use crate::map::Map;

/// A request that needs more than the target.
#[derive(Debug)]
pub(crate) struct Demand {
    pub(crate) op: Op,
    pub(crate) done: Completion,
    /// The chunks that it touches.
    pub(crate) chunks: Range<u64>,
}

/// The next work of a thread, with the chunks that are claimed for it.
#[derive(Debug)]
pub(crate) enum Work {
    Answer(Demand),
    Copy(Range<u64>),
    /// Letting the medium of the map know of what was copied.
    Map,
}

/// The requests that wait, and the chunks that threads see to.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Demand>,
    claimed: Vec<Range<u64>>,
    copying: usize,
    is_mapping: bool,
    /// The chunk behind the last run. A run that was not copied is tried again when all behind it was.
    next: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, demand: Demand) {
        self.waiting.push_back(demand);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next work: the first request whose chunks are free, else a run of chunks, if fewer than `most_copies` are
    /// being copied.
    pub(crate) fn take(&mut self, map: &Map, most_copies: usize) -> Option<Work> {
        let free = self.waiting.iter().position(|demand| self.is_free(&demand.chunks));
        if let Some(demand) = free.and_then(|index| self.waiting.remove(index)) {
            self.claimed.push(demand.chunks.clone());
            return Some(Work::Answer(demand));
        }
        if most_copies == 0 {
            return None;
        }
        if !self.is_mapping && is_due(map) {
            self.is_mapping = true;
            return Some(Work::Map);
        }
        if self.copying >= most_copies {
            return None;
        }
        let run = self.absent_run(map)?;
        self.copying += 1;
        self.next = run.end;
        self.claimed.push(run.clone());
        Some(Work::Copy(run))
    }

    /// The next run of chunks that are neither local nor claimed.
    fn absent_run(&self, map: &Map) -> Option<Range<u64>> {
        self.absent_from(map, self.next).or_else(|| self.absent_from(map, 0))
    }

    fn absent_from(&self, map: &Map, mut from: u64) -> Option<Range<u64>> {
        while let Some(run) = map.absent(&(from..map.chunks()), MAX_RUN_BYTES / CHUNK_BYTES) {
            let Some(claimed) = self.claimed.iter().find(|claimed| claimed.contains(&run.start)) else {
                let end = self.claimed.iter().map(|claimed| claimed.start).filter(|start| *start > run.start).min();
                return Some(run.start..run.end.min(end.unwrap_or(run.end)));
            };
            from = claimed.end;
        }
        None
    }

    /// Frees the chunks of a run that was copied, or not.
    pub(crate) fn copied(&mut self, run: &Range<u64>) {
        self.copying -= 1;
        self.release(run);
    }

    /// The medium knows of what was copied, or has failed.
    pub(crate) fn mapped(&mut self) {
        self.is_mapping = false;
    }

    /// Frees the chunks of a request that was answered.
    pub(crate) fn release(&mut self, chunks: &Range<u64>) {
        if let Some(index) = self.claimed.iter().position(|claimed| claimed == chunks) {
            self.claimed.swap_remove(index);
        }
    }

    fn is_free(&self, chunks: &Range<u64>) -> bool {
        !self.claimed.iter().any(|claimed| claimed.start < chunks.end && chunks.start < claimed.end)
    }
}

/// Whether much was copied that the medium of the map does not know of, or all.
fn is_due(map: &Map) -> bool {
    let unmapped = map.unmapped_chunks();
    unmapped >= MAX_UNMAPPED_CHUNKS || unmapped > 0 && map.local_chunks() == map.chunks()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lunette_store::MemoryStore;

    use super::*;
    use crate::limits::MAX_BACKGROUND;

    fn map(chunks: u64) -> Map {
        Map::read(Arc::new(MemoryStore::new(4096).unwrap()), chunks * CHUNK_BYTES).unwrap()
    }

    fn demand(chunks: Range<u64>) -> Demand {
        Demand { op: Op::Flush, done: Completion::call(drop), chunks }
    }

    fn answered(work: Option<Work>) -> Range<u64> {
        let Some(Work::Answer(demand)) = work else { panic!("{work:?}") };
        demand.chunks
    }

    fn copied(work: Option<Work>) -> Range<u64> {
        let Some(Work::Copy(run)) = work else { panic!("{work:?}") };
        run
    }

    #[test]
    fn requests_come_first_and_wait_for_chunks_that_are_claimed() {
        let (map, mut queue) = (map(20), Queue::default());
        assert_eq!(copied(queue.take(&map, MAX_BACKGROUND)), 0..4);
        for chunks in [3..5, 8..9, 8..10] {
            queue.push(demand(chunks));
        }
        assert_eq!(answered(queue.take(&map, MAX_BACKGROUND)), 8..9);
        assert_eq!(copied(queue.take(&map, MAX_BACKGROUND)), 4..8);
        assert_eq!(copied(queue.take(&map, MAX_BACKGROUND)), 9..13);
        queue.copied(&(0..4));
        queue.copied(&(4..8));
        assert_eq!(answered(queue.take(&map, 0)), 3..5);
        assert!(queue.take(&map, 0).is_none());
        queue.release(&(8..9));
        queue.copied(&(9..13));
        assert_eq!(answered(queue.take(&map, 0)), 8..10);
        assert!(queue.is_empty());
    }

    #[test]
    fn chunks_that_were_not_copied_are_copied_later() {
        let (map, mut queue) = (map(6), Queue::default());
        let run = copied(queue.take(&map, MAX_BACKGROUND));
        assert_eq!(copied(queue.take(&map, MAX_BACKGROUND)), 4..6);
        assert!(queue.take(&map, MAX_BACKGROUND).is_none());
        queue.copied(&run);
        assert_eq!(copied(queue.take(&map, MAX_BACKGROUND)), run);
        map.set_local(0..6, 0);
        queue.copied(&run);
        queue.copied(&(4..6));
        assert!(matches!(queue.take(&map, MAX_BACKGROUND), Some(Work::Map)));
        assert!(queue.take(&map, MAX_BACKGROUND).is_none());
        queue.mapped();
        assert!(matches!(queue.take(&map, MAX_BACKGROUND), Some(Work::Map)), "the medium has failed");
    }

    #[test]
    fn some_threads_are_left_for_requests() {
        let (map, mut queue) = (map(1000), Queue::default());
        for run in 0..MAX_BACKGROUND as u64 {
            assert_eq!(copied(queue.take(&map, MAX_BACKGROUND)), 4 * run..4 * run + 4);
        }
        assert!(queue.take(&map, MAX_BACKGROUND).is_none());
        queue.copied(&(0..4));
        assert!(queue.take(&map, 1).is_none(), "while requests come, fewer are copied");
        queue.push(demand(999..1000));
        assert_eq!(answered(queue.take(&map, MAX_BACKGROUND)), 999..1000);
    }
}
