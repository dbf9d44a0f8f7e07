//! Read-only bytes that stay in the memory of their store.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::Pool;

/// The most runs in one loan: 4 MiB in chunks of 64 KiB, wherever the range begins.
pub const MAX_LOAN_RUNS: usize = 65;

/// A range of a piece of memory that does not change while this reference is held.
#[derive(Clone)]
pub struct Run {
    /// The whole piece of memory.
    pub memory: Arc<dyn AsRef<[u8]> + Send + Sync>,
    /// The lent bytes, counted from the start of the piece.
    pub range: Range<usize>,
}

/// Read-only bytes that a store has lent instead of copying them ([`Buffer::lend`](crate::Buffer::lend)): a list of
/// runs, held until the last handle is dropped. A clone costs a reference count.
#[derive(Clone)]
pub struct Loan {
    ledger: Ledger,
    range: Range<usize>,
}

impl Loan {
    /// A loan of all bytes of the ledger.
    pub(crate) fn new(ledger: Ledger) -> Self {
        let len = ledger.len();
        Self { ledger, range: 0..len }
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// A view of `range` of this view.
    ///
    /// # Panics
    ///
    /// When `range` lies outside the view.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "slice {range:?} of {} bytes", self.len());
        let start = self.range.start + range.start;
        Self { ledger: self.ledger.clone(), range: start..start + range.len() }
    }

    /// The bytes as they lie in memory, in order; no run is empty.
    pub fn runs(&self) -> impl Iterator<Item = &[u8]> {
        let all = if self.range.is_empty() { &[] } else { self.ledger.runs() };
        let from = all.partition_point(|run| run.end() <= self.range.start);
        let after = all.partition_point(|run| run.start < self.range.end);
        all[from..after].iter().map(|run| run.part(&self.range))
    }

    /// The bytes from `at` to the end of their run; none at the end.
    pub fn run_at(&self, at: usize) -> &[u8] {
        let range = self.range.start.saturating_add(at)..self.range.end;
        if range.is_empty() {
            return &[];
        }
        let all = self.ledger.runs();
        let index = all.partition_point(|run| run.end() <= range.start);
        all.get(index).map_or(&[], |run| run.part(&range))
    }

    /// Bytes of the pool that the loan counts for, however few of them it shows.
    pub fn pooled_bytes(&self) -> usize {
        self.ledger.0.as_ref().map_or(0, |entries| entries.counted_bytes)
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loan({} bytes)", self.len())
    }
}

/// A reference to the list of what is lent. The last one returns the list to its pool.
#[derive(Clone)]
pub(crate) struct Ledger(Option<Arc<Entries>>);

/// The list of what is lent. Lists are reused, so that a loan costs no allocation.
#[derive(Default)]
pub(crate) struct Entries {
    runs: Vec<Placed>,
    /// Bytes that count against the budget of `pool`.
    counted_bytes: usize,
    pool: Option<Pool>,
}

struct Placed {
    /// The position of its first byte among all lent bytes.
    start: usize,
    run: Run,
}

impl Placed {
    fn end(&self) -> usize {
        self.start + self.run.range.len()
    }

    /// The whole piece of memory.
    fn bytes(&self) -> &[u8] {
        (*self.run.memory).as_ref()
    }

    /// The bytes of this run that lie within `range` of all lent bytes.
    fn part(&self, range: &Range<usize>) -> &[u8] {
        let from = range.start.saturating_sub(self.start);
        let end = range.end.min(self.end()) - self.start;
        &self.bytes()[self.run.range.clone()][from..end]
    }
}

impl Ledger {
    /// A ledger of `runs`, which takes over the `counted_bytes` that the caller has counted, and counts what the runs
    /// keep beyond them. `None` when there are too many runs, or when that would use up more than half of the budget;
    /// then the caller still counts its bytes.
    pub(crate) fn new(pool: &Pool, counted_bytes: usize, runs: impl Iterator<Item = Run>) -> Option<Self> {
        let mut entries = pool.idle_entries().unwrap_or_default();
        let list = Arc::get_mut(&mut entries).expect("an idle list has one owner");
        list.pool = Some(pool.clone());
        let mut start = 0;
        let runs = runs.filter(|run| !run.range.is_empty());
        list.runs.extend(runs.take(MAX_LOAN_RUNS + 1).map(|run| {
            let placed = Placed { start, run };
            start = placed.end();
            placed
        }));
        // Whole pieces count: when a store replaces a lent piece to write to it, only this loan keeps the old one.
        let kept_bytes: usize = list.runs.iter().map(|placed| placed.bytes().len()).sum();
        let more = kept_bytes.saturating_sub(counted_bytes);
        let fits = list.runs.len() <= MAX_LOAN_RUNS && (more == 0 || pool.count_bytes(more, pool.budget_bytes() / 2));
        if fits {
            list.counted_bytes = counted_bytes + more;
        }
        let ledger = Self(Some(entries));
        fits.then_some(ledger)
    }

    /// How many bytes are lent.
    pub(crate) fn len(&self) -> usize {
        self.runs().last().map_or(0, Placed::end)
    }

    fn runs(&self) -> &[Placed] {
        self.0.as_ref().map_or(&[], |entries| &entries.runs)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let Some(mut entries) = self.0.take() else { return };
        if let Some(pool) = Arc::get_mut(&mut entries).and_then(Entries::end) {
            pool.keep_entries(entries);
        }
    }
}

impl Entries {
    /// Drops what was lent and uncounts its bytes. Returns the pool that keeps the empty list.
    fn end(&mut self) -> Option<Pool> {
        self.runs.clear();
        let pool = self.pool.take()?;
        pool.uncount_bytes(std::mem::take(&mut self.counted_bytes));
        Some(pool)
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        // There is a pool only when two handles were dropped at the same moment and neither saw itself as the last.
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, PAGE_LEN};

    fn memory(fill: u8, len: usize) -> Arc<Vec<u8>> {
        Arc::new((0..len).map(|at| fill.wrapping_add(at as u8)).collect())
    }

    fn lend(mut buffer: Buffer, runs: &[(&Arc<Vec<u8>>, Range<usize>)]) -> Result<Loan, Buffer> {
        buffer.allow_loan();
        buffer.lend(runs.iter().map(|(memory, range)| Run { memory: (*memory).clone(), range: range.clone() }))
    }

    #[test]
    fn any_part_of_a_loan_has_the_bytes_of_its_runs() {
        let pool = Pool::new(1 << 20);
        let (a, b) = (memory(1, 10), memory(101, 10));
        let expected = [&a[3..10], &b[0..10], &a[5..6]].concat();
        let loan = lend(pool.reserve(18).unwrap(), &[(&a, 3..10), (&b, 0..10), (&a, 5..6)]).unwrap();
        for from in 0..=18 {
            for to in from..=18 {
                let part = loan.slice(0..to).slice(from..to);
                assert!(part.runs().all(|run| !run.is_empty()));
                assert_eq!(part.runs().flatten().copied().collect::<Vec<_>>(), expected[from..to]);
                assert_eq!((part.len(), part.is_empty()), (to - from, from == to));
            }
        }
        assert_eq!(loan.slice(1..18).runs().map(<[u8]>::len).collect::<Vec<_>>(), [6, 10, 1]);
    }

    #[test]
    fn what_a_loan_keeps_counts_until_its_last_handle_is_dropped() {
        let pool = Pool::new(16 * PAGE_LEN);
        let held = memory(0, 2 * PAGE_LEN);
        let loan = lend(pool.reserve(PAGE_LEN).unwrap(), &[(&held, 7..PAGE_LEN + 7)]).unwrap();
        let part = loan.slice(0..1);
        assert_eq!((pool.used_bytes(), part.pooled_bytes()), (2 * PAGE_LEN, 2 * PAGE_LEN));
        drop(loan);
        assert_eq!((pool.used_bytes(), Arc::strong_count(&held)), (2 * PAGE_LEN, 2));
        drop(part);
        assert_eq!((pool.used_bytes(), Arc::strong_count(&held)), (0, 1));
    }

    #[test]
    fn a_loan_that_keeps_more_than_was_counted_needs_room_in_the_budget() {
        let pool = Pool::new(4 * PAGE_LEN);
        let held = memory(0, 2 * PAGE_LEN);
        let _other = pool.take(1).unwrap();
        let buffer = lend(pool.reserve(PAGE_LEN).unwrap(), &[(&held, 0..PAGE_LEN)]).unwrap_err();
        assert_eq!((pool.used_bytes(), Arc::strong_count(&held)), (2 * PAGE_LEN, 1));
        let own = memory(0, PAGE_LEN);
        let loan = lend(buffer, &[(&own, 0..PAGE_LEN)]).expect("the buffer has counted these bytes");
        assert_eq!(pool.used_bytes(), 2 * PAGE_LEN);
        drop(loan);
        assert_eq!(pool.used_bytes(), PAGE_LEN);
    }

    #[test]
    fn only_a_buffer_that_allows_a_loan_is_traded_for_one() {
        let pool = Pool::new(1 << 20);
        let held = memory(1, 10);
        let run = || std::iter::once(Run { memory: held.clone(), range: 0..10 });
        let mut refused = pool.reserve(10).unwrap().lend(run()).unwrap_err();
        refused.copy_from_slice(&held);
        refused.allow_loan();
        let filled = refused.lend(run()).expect_err("the buffer has its own memory by now");
        assert_eq!(filled[..], held[..]);
        drop(filled);
        assert_eq!((pool.used_bytes(), Arc::strong_count(&held)), (0, 1));
    }

    #[test]
    fn a_shortened_buffer_is_lent_as_many_bytes_as_it_has() {
        let pool = Pool::new(1 << 20);
        let held = memory(1, 100);
        let mut buffer = pool.reserve(2 * PAGE_LEN).unwrap();
        buffer.truncate(60);
        let loan = lend(buffer, &[(&held, 10..70)]).unwrap();
        assert_eq!((loan.len(), loan.pooled_bytes()), (60, 2 * PAGE_LEN));
        drop(loan);
        assert_eq!((pool.used_bytes(), Arc::strong_count(&held)), (0, 1));
    }

    #[test]
    fn runs_without_bytes_are_left_out() {
        let pool = Pool::new(1 << 20);
        let a = memory(1, 10);
        let runs = [(&a, 0..0), (&a, 0..5), (&a, 3..3), (&a, 5..10), (&a, 10..10)];
        let loan = lend(pool.reserve(10).unwrap(), &runs).unwrap();
        assert_eq!(loan.runs().collect::<Vec<_>>(), [&a[0..5], &a[5..10]]);
        assert_eq!(loan.slice(5..10).runs().count(), 1);
    }

    #[test]
    fn buffers_with_memory_and_too_many_runs_are_refused() {
        let pool = Pool::new(1 << 20);
        let byte = memory(0, 1);
        assert!(lend(pool.take(1).unwrap(), &[(&byte, 0..1)]).is_err());
        for (runs, fit) in [(MAX_LOAN_RUNS, true), (MAX_LOAN_RUNS + 1, false)] {
            assert_eq!(lend(pool.reserve(runs).unwrap(), &vec![(&byte, 0..1); runs]).is_ok(), fit);
        }
        assert_eq!((pool.used_bytes(), Arc::strong_count(&byte)), (0, 1));
    }
}
