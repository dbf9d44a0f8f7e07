//! The deadlines of many machines that one driver serves.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Time;

/// A heap of deadlines that may be early: a machine whose deadline has moved on is looked at once too often, and then
/// watched for its new one. So nothing in the heap is moved while data flows.
///
/// The driver keeps `watched_for` beside each machine, the machine's earliest entry, and forgets it when
/// [`pop_due`](Self::pop_due) returns that entry. Other entries of the machine are out of date.
#[derive(Debug)]
pub struct Timetable<K>(BinaryHeap<Reverse<(Time, K)>>);

impl<K: Ord> Default for Timetable<K> {
    fn default() -> Self {
        Self(BinaryHeap::new())
    }
}

impl<K: Ord> Timetable<K> {
    /// Makes sure that the machine `key` is called at `at` or before.
    pub fn watch(&mut self, key: K, at: Time, watched_for: &mut Option<Time>) {
        if watched_for.is_none_or(|watched| at < watched) {
            *watched_for = Some(at);
            self.0.push(Reverse((at, key)));
        }
    }

    /// The earliest entry.
    pub fn next(&self) -> Option<Time> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the earliest entry out, if it is due.
    pub fn pop_due(&mut self, now: Time) -> Option<(Time, K)> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse(due)| due)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops the entries of machines that are gone, which may lie far in the future.
    pub fn retain(&mut self, mut is_there: impl FnMut(&K) -> bool) {
        self.0.retain(|Reverse((_, key))| is_there(key));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::new(Duration::from_secs(seconds))
    }

    #[test]
    fn a_deadline_that_moves_on_takes_no_second_entry_until_the_first_is_due() {
        let mut timetable = Timetable::default();
        let (mut a, mut b) = (None, None);
        timetable.watch('a', at(3), &mut a);
        timetable.watch('b', at(4), &mut b);
        timetable.watch('a', at(9), &mut a);
        assert_eq!((timetable.len(), a), (2, Some(at(3))));
        timetable.watch('b', at(1), &mut b);
        assert_eq!((timetable.next(), timetable.pop_due(at(0))), (Some(at(1)), None));
        let due: Vec<_> = std::iter::from_fn(|| timetable.pop_due(at(3))).collect();
        assert_eq!((due, timetable.next()), (vec![(at(1), 'b'), (at(3), 'a')], Some(at(4))));
    }

    #[test]
    fn entries_of_machines_that_are_gone_can_be_dropped() {
        let mut timetable = Timetable::default();
        for key in ['a', 'b'] {
            timetable.watch(key, at(1), &mut None);
        }
        timetable.retain(|key| *key == 'b');
        assert_eq!((timetable.len(), timetable.pop_due(at(1))), (1, Some((at(1), 'b'))));
    }
}
