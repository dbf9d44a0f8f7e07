//! The list of changes between two states of a volume, which has a bounded length.

use std::ops::Range;

use crate::limits::MAX_CHANGES;
use crate::pool::Change;

/// Collects changes in the order of their offsets. Neighbours become one. When there are too many, those with short
/// gaps between them become one too: what lies in a gap may have changed then, which costs its reader time alone.
#[derive(Debug)]
pub(crate) struct Changes {
    list: Vec<Change>,
    /// The gap in bytes that is no longer kept.
    gap_bytes: u64,
    most: usize,
}

impl Changes {
    pub(crate) fn new() -> Self {
        Self { list: Vec::new(), gap_bytes: 0, most: MAX_CHANGES }
    }

    /// Adds a range behind those that are there.
    pub(crate) fn push(&mut self, range: Range<u64>, is_zero: bool) {
        if range.is_empty() {
            return;
        }
        self.join(Change { range, is_zero });
        while self.list.len() > self.most {
            self.gap_bytes = (self.gap_bytes * 2).max(4096);
            for change in std::mem::take(&mut self.list) {
                self.join(change);
            }
        }
    }

    pub(crate) fn into_list(self) -> Vec<Change> {
        self.list
    }

    fn join(&mut self, change: Change) {
        if let Some(last) = self.list.last_mut() {
            let gap_bytes = change.range.start - last.range.end;
            let is_alike = gap_bytes == 0 && last.is_zero == change.is_zero;
            if is_alike || (self.gap_bytes > 0 && gap_bytes <= self.gap_bytes) {
                last.range.end = change.range.end;
                last.is_zero &= is_alike;
                return;
            }
        }
        self.list.push(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(most: usize, ranges: &[(u64, u64, bool)]) -> Vec<(u64, u64, bool)> {
        let mut changes = Changes { most, ..Changes::new() };
        for (start, end, is_zero) in ranges {
            changes.push(*start..*end, *is_zero);
        }
        changes.into_list().into_iter().map(|change| (change.range.start, change.range.end, change.is_zero)).collect()
    }

    #[test]
    fn neighbours_that_are_alike_become_one() {
        let ranges = [(0, 8, false), (8, 16, false), (16, 24, true), (24, 24, false), (24, 32, true), (40, 48, true)];
        assert_eq!(collected(9, &ranges), [(0, 16, false), (16, 32, true), (40, 48, true)]);
    }

    #[test]
    fn too_many_become_fewer_that_cover_them_and_are_not_called_zeroes() {
        let ranges: Vec<_> =
            (0..1000).map(|number| (number * 10_000, number * 10_000 + 512, number % 2 == 0)).collect();
        let few = collected(10, &ranges);
        assert!(few.len() <= 10);
        for (start, end, is_zero) in ranges {
            let holder = few.iter().find(|held| held.0 <= start && end <= held.1).unwrap();
            assert!(is_zero || !holder.2);
        }
        assert!(few.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }

    #[test]
    fn a_gap_that_is_no_longer_kept_is_not_called_zeroes() {
        assert_eq!(collected(1, &[(0, 512, true), (1024, 1536, true)]), [(0, 1536, false)]);
    }
}
