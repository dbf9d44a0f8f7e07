//! Bytes that stay where they are, in the memory of somebody else.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::Pool;

/// The most runs that a loan has: 4 MiB of chunks of 64 KiB, wherever they begin.
pub const MAX_LOAN_RUNS: usize = 65;

/// Bytes of a piece of memory that does not change as long as it is held.
#[derive(Clone)]
pub struct Run {
    /// The whole piece.
    pub memory: Arc<dyn AsRef<[u8]> + Send + Sync>,
    /// The bytes of it that are meant.
    pub range: Range<usize>,
}

/// Read-only bytes that a store has lent instead of copying them ([`Buffer::lend`](crate::Buffer::lend)): a list of runs, held
/// until the last handle goes. A clone costs a reference count.
#[derive(Clone)]
pub struct Loan {
    ledger: Ledger,
    range: Range<usize>,
}

impl Loan {
    /// All bytes of the ledger.
    pub(crate) fn new(ledger: Ledger) -> Self {
        let len = ledger.len();
        Self { ledger, range: 0..len }
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The same bytes, narrowed to `range` of this view.
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

    /// Bytes of the pool that it keeps, however few of them it shows.
    pub fn pooled_bytes(&self) -> usize {
        self.ledger.0.as_ref().map_or(0, |entries| entries.counted_bytes)
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loan({} bytes)", self.len())
    }
}

/// A reference on the list of what is lent. The last one brings the list home; none is there when nothing was lent.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Option<Arc<Entries>>);

/// The list, which is used again: a loan costs no allocation.
#[derive(Default)]
pub(crate) struct Entries {
    runs: Vec<Placed>,
    /// Bytes that count against the budget, and of which pool.
    counted_bytes: usize,
    pool: Option<Pool>,
}

struct Placed {
    /// Where its first byte stands among all that are lent.
    start: usize,
    run: Run,
}

impl Placed {
    fn end(&self) -> usize {
        self.start + self.run.range.len()
    }

    /// The whole piece.
    fn bytes(&self) -> &[u8] {
        (*self.run.memory).as_ref()
    }

    /// Those of its bytes that `range` of all that are lent shows.
    fn part(&self, range: &Range<usize>) -> &[u8] {
        let from = range.start.saturating_sub(self.start);
        let end = range.end.min(self.end()) - self.start;
        &self.bytes()[self.run.range.clone()][from..end]
    }
}

impl Ledger {
    /// Holds `runs`, and counts against the budget what they keep beyond `counted_bytes`, which the caller has counted. `None`
    /// when they are too many, or when buffers need the rest of the budget more.
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
        // Whole pieces: when a store writes to one that is lent, the piece as it was lives on here alone.
        let kept_bytes: usize = list.runs.iter().map(|placed| placed.bytes().len()).sum();
        let more = kept_bytes.saturating_sub(counted_bytes);
        let fits = list.runs.len() <= MAX_LOAN_RUNS && (more == 0 || pool.count_bytes(more, pool.budget_bytes() / 2));
        if fits {
            list.counted_bytes = more;
        }
        let ledger = Self(Some(entries));
        fits.then_some(ledger)
    }

    /// Takes over what the caller has counted.
    pub(crate) fn count_also(&mut self, bytes: usize) {
        if let Some(entries) = self.0.as_mut().and_then(Arc::get_mut) {
            entries.counted_bytes += bytes;
        }
    }

    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    #[inline(never)]
    fn end(&mut self) {
        let Some(mut entries) = self.0.take() else { return };
        if let Some(pool) = Arc::get_mut(&mut entries).and_then(Entries::end) {
            pool.keep_entries(entries);
        }
    }

    /// Bytes that are lent.
    pub(crate) fn len(&self) -> usize {
        self.runs().last().map_or(0, Placed::end)
    }

    fn runs(&self) -> &[Placed] {
        self.0.as_ref().map_or(&[], |entries| &entries.runs)
    }
}

impl Drop for Ledger {
    // Nearly every buffer has an empty one.
    #[inline]
    fn drop(&mut self) {
        if self.0.is_some() {
            self.end();
        }
    }
}

impl Entries {
    /// Lets go of what was lent.
    fn end(&mut self) -> Option<Pool> {
        self.runs.clear();
        let pool = self.pool.take()?;
        pool.uncount_bytes(std::mem::take(&mut self.counted_bytes));
        Some(pool)
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        // With a pool only when two handles were dropped at the same moment and neither saw itself as the last.
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

    fn lend(buffer: &mut Buffer, runs: &[(&Arc<Vec<u8>>, Range<usize>)]) -> bool {
        buffer.lend(runs.iter().map(|(memory, range)| Run { memory: (*memory).clone(), range: range.clone() }))
    }

    #[test]
    fn any_part_of_a_loan_has_the_bytes_of_its_runs() {
        let pool = Pool::new(1 << 20);
        let (a, b) = (memory(1, 10), memory(101, 10));
        let expected = [&a[3..10], &b[0..10], &a[5..6]].concat();
        let mut buffer = pool.reserve(18).unwrap();
        assert!(lend(&mut buffer, &[(&a, 3..10), (&b, 0..10), (&a, 5..6)]));
        let loan = buffer.into_loan().unwrap();
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
    fn what_it_keeps_counts_until_the_last_handle_goes() {
        let pool = Pool::new(16 * PAGE_LEN);
        let held = memory(0, 2 * PAGE_LEN);
        let mut buffer = pool.reserve(PAGE_LEN).unwrap();
        assert!(lend(&mut buffer, &[(&held, 7..PAGE_LEN + 7)]));
        let loan = buffer.into_loan().unwrap();
        let part = loan.slice(0..1);
        assert_eq!((pool.used_bytes(), part.pooled_bytes()), (2 * PAGE_LEN, 2 * PAGE_LEN));
        drop(loan);
        assert_eq!((pool.used_bytes(), Arc::strong_count(&held)), (2 * PAGE_LEN, 2));
        drop(part);
        assert_eq!((pool.used_bytes(), Arc::strong_count(&held)), (0, 1));
    }

    #[test]
    fn more_than_the_buffer_has_counted_is_kept_only_while_there_is_room() {
        let pool = Pool::new(4 * PAGE_LEN);
        let held = memory(0, 2 * PAGE_LEN);
        let _other = pool.take(1).unwrap();
        let mut buffer = pool.reserve(PAGE_LEN).unwrap();
        assert!(!lend(&mut buffer, &[(&held, 0..PAGE_LEN)]));
        assert_eq!((pool.used_bytes(), Arc::strong_count(&held)), (2 * PAGE_LEN, 1));
        let own = memory(0, PAGE_LEN);
        assert!(lend(&mut buffer, &[(&own, 0..PAGE_LEN)]), "it has counted that");
        assert_eq!(pool.used_bytes(), 2 * PAGE_LEN);
    }

    #[test]
    fn whoever_looks_at_a_lent_buffer_has_a_copy() {
        let pool = Pool::new(1 << 20);
        let (a, b) = (memory(1, 100), memory(2, 100));
        let lent = || {
            let mut buffer = pool.reserve(200).unwrap();
            assert!(lend(&mut buffer, &[(&a, 0..100), (&b, 0..100)]));
            buffer
        };
        let expected = [&a[..], &b[..]].concat();
        let looked_at = lent();
        assert_eq!(looked_at[..], expected);
        let mut written_to = looked_at.into_loan().unwrap_err();
        written_to[0] = 9;
        assert_eq!((a[0], &written_to[1..]), (1, &expected[1..]));
        assert_eq!(lent().share()[..], expected);
        let mut cut = lent();
        cut.truncate(150);
        assert_eq!(cut.into_loan().unwrap().len(), 150);
        let mut grown = lent();
        grown.truncate(1);
        assert!(grown.resize(200));
        assert_eq!(grown[..], expected);
        drop((written_to, grown));
        assert_eq!((pool.used_bytes(), Arc::strong_count(&a)), (0, 1));
    }

    #[test]
    fn runs_without_bytes_are_left_out() {
        let pool = Pool::new(1 << 20);
        let a = memory(1, 10);
        let mut buffer = pool.reserve(10).unwrap();
        assert!(lend(&mut buffer, &[(&a, 0..0), (&a, 0..5), (&a, 3..3), (&a, 5..10), (&a, 10..10)]));
        let loan = buffer.into_loan().unwrap();
        assert_eq!(loan.runs().collect::<Vec<_>>(), [&a[0..5], &a[5..10]]);
        assert_eq!(loan.slice(5..10).runs().count(), 1);
    }

    #[test]
    fn a_buffer_that_has_grown_beyond_what_was_lent_is_none() {
        let pool = Pool::new(1 << 20);
        let a = memory(1, 10);
        let mut buffer = pool.reserve(10).unwrap();
        assert!(lend(&mut buffer, &[(&a, 0..10)]));
        assert!(buffer.resize(11));
        assert_eq!(buffer.into_loan().unwrap_err()[..10], a[..]);
    }

    #[test]
    fn a_buffer_that_is_written_to_lets_go_of_what_was_lent() {
        let pool = Pool::new(1 << 20);
        let held = memory(1, 2 * PAGE_LEN);
        let mut buffer = pool.reserve(PAGE_LEN).unwrap();
        assert!(lend(&mut buffer, &[(&held, 0..PAGE_LEN)]));
        buffer[0] = 9;
        assert_eq!((pool.used_bytes(), Arc::strong_count(&held)), (PAGE_LEN, 1));
        assert_eq!((buffer[0], &buffer[1..]), (9, &held[1..PAGE_LEN]));
    }

    #[test]
    fn buffers_with_memory_and_too_many_runs_are_refused() {
        let pool = Pool::new(1 << 20);
        let byte = memory(0, 1);
        assert!(!lend(&mut pool.take(1).unwrap(), &[(&byte, 0..1)]));
        for (runs, fit) in [(MAX_LOAN_RUNS, true), (MAX_LOAN_RUNS + 1, false)] {
            assert_eq!(lend(&mut pool.reserve(runs).unwrap(), &vec![(&byte, 0..1); runs]), fit);
        }
        assert_eq!((pool.used_bytes(), Arc::strong_count(&byte)), (0, 1));
    }
}
