//! Which bytes of a transfer are there: a scoreboard of ranges, for data that may come in any order.

use std::ops::Range;

use crate::limits::MAX_EXTENTS;

/// Why a range cannot be added or taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExtentsError {
    #[error("some of the bytes are there already")]
    Overlap,
    #[error("the bytes lie in more than {MAX_EXTENTS} pieces")]
    TooMany,
}

/// Where there is one gap there will be others.
const FEW_RANGES: usize = 32;

/// A set of bytes as sorted ranges that neither overlap nor touch.
///
/// What comes in order is one range that grows. It lives inside, so nothing is allocated before a gap appears.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extents {
    /// The lowest range; empty when the set is.
    first: Range<u32>,
    /// The others, none of them empty.
    rest: Vec<Range<u32>>,
}

impl Extents {
    /// The bytes before `end`.
    pub(crate) fn up_to(end: u32) -> Self {
        Self { first: 0..end, rest: Vec::new() }
    }

    /// Adds bytes, none of which may be in the set. An error changes nothing.
    #[inline]
    pub(crate) fn insert(&mut self, range: Range<u32>) -> Result<(), ExtentsError> {
        if self.rest.is_empty() && range.start == self.first.end && range.start <= range.end {
            self.first.end = range.end;
            return Ok(());
        }
        self.insert_anywhere(range)
    }

    fn insert_anywhere(&mut self, range: Range<u32>) -> Result<(), ExtentsError> {
        if range.start < self.first.start || self.first.is_empty() || range.is_empty() {
            return self.insert_lowest(range);
        }
        let at = self.rest.partition_point(|other| other.start <= range.start);
        let (lower, upper) = self.rest.split_at_mut(at);
        let before = lower.last_mut().unwrap_or(&mut self.first);
        let next = upper.first_mut();
        if range.start < before.end || next.as_ref().is_some_and(|next| next.start < range.end) {
            return Err(ExtentsError::Overlap);
        }
        match next.filter(|next| next.start == range.end) {
            Some(next) if before.end == range.start => {
                before.end = next.end;
                self.rest.remove(at);
            }
            Some(next) => next.start = range.start,
            None if before.end == range.start => before.end = range.end,
            None => return self.put(at, range),
        }
        Ok(())
    }

    /// Adds what lies before all others, if it is not empty.
    fn insert_lowest(&mut self, range: Range<u32>) -> Result<(), ExtentsError> {
        if range.is_empty() {
            return Ok(());
        }
        if self.first.is_empty() {
            self.first = range;
        } else if self.first.start < range.end {
            return Err(ExtentsError::Overlap);
        } else if self.first.start == range.end {
            self.first.start = range.start;
        } else {
            // A range at the very beginning is one more at most, and may always be asked for.
            if range.start > 0 {
                self.check_room()?;
            }
            self.rest.insert(0, std::mem::replace(&mut self.first, range));
        }
        Ok(())
    }

    /// Takes bytes out that may be in the set. An error changes nothing.
    pub(crate) fn remove(&mut self, range: &Range<u32>) -> Result<(), ExtentsError> {
        let splits = self.ranges().any(|old| old.start < range.start && range.end < old.end);
        if splits && self.rest.len() + 1 >= MAX_EXTENTS {
            return Err(ExtentsError::TooMany);
        }
        if range.is_empty() {
            return Ok(());
        }
        let left = |old: &Range<u32>| [old.start..old.end.min(range.start), old.start.max(range.end)..old.end];
        let mut kept = self.ranges().flat_map(left).filter(|part| !part.is_empty());
        let first = kept.next().unwrap_or_default();
        let rest = kept.collect();
        (self.first, self.rest) = (first, rest);
        Ok(())
    }

    /// From now on the set has those bytes of `within` that `other` has. An error changes nothing.
    pub(crate) fn copy_within(&mut self, within: &Range<u32>, other: &Self) -> Result<(), ExtentsError> {
        let before = self.ranges().map(|range| range.start..range.end.min(within.start));
        let inside = other.ranges().map(|range| range.start.max(within.start)..range.end.min(within.end));
        let after = self.ranges().map(|range| range.start.max(within.end)..range.end);
        let mut all: Vec<Range<u32>> = Vec::new();
        for range in before.chain(inside).chain(after).filter(|range| !range.is_empty()) {
            match all.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => all.push(range),
            }
        }
        if all.len() > MAX_EXTENTS {
            return Err(ExtentsError::TooMany);
        }
        let mut all = all.into_iter();
        (self.first, self.rest) = (all.next().unwrap_or_default(), all.collect());
        Ok(())
    }

    /// The bytes of `within` that are not in the set, as ranges in order.
    pub(crate) fn missing(&self, within: Range<u32>) -> impl Iterator<Item = Range<u32>> {
        // The gaps are what lies between the ends of neighbours.
        let starts = self.ranges().map(|range| range.start).chain([u32::MAX]);
        let ends = [0].into_iter().chain(self.ranges().map(|range| range.end));
        ends.zip(starts).map(move |(from, to)| from.max(within.start)..to.min(within.end)).filter(|gap| !gap.is_empty())
    }

    /// How many bytes are in the set.
    #[inline]
    pub(crate) fn len_bytes(&self) -> u32 {
        let first = self.first.end - self.first.start;
        self.rest.iter().fold(first, |sum, range| sum + (range.end - range.start))
    }

    /// How many bytes from the very first on are in the set without a gap.
    pub(crate) fn front(&self) -> u32 {
        if self.first.start == 0 { self.first.end } else { 0 }
    }

    /// The ranges of the set, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &Range<u32>> {
        [&self.first].into_iter().filter(|first| !first.is_empty()).chain(&self.rest)
    }

    fn put(&mut self, at: usize, range: Range<u32>) -> Result<(), ExtentsError> {
        self.check_room()?;
        if self.rest.capacity() == 0 {
            self.rest.reserve(FEW_RANGES);
        }
        self.rest.insert(at, range);
        Ok(())
    }

    fn check_room(&self) -> Result<(), ExtentsError> {
        if self.rest.len() + 1 >= MAX_EXTENTS { Err(ExtentsError::TooMany) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(ranges: &[Range<u32>]) -> Extents {
        let mut set = Extents::default();
        for range in ranges {
            set.insert(range.clone()).unwrap();
        }
        set
    }

    fn gaps(set: &Extents, within: Range<u32>) -> Vec<(u32, u32)> {
        set.missing(within).map(|gap| (gap.start, gap.end)).collect()
    }

    #[test]
    fn what_comes_in_order_is_one_range_inside() {
        for start in [0, 1000] {
            let set =
                set(&[start..start + 10, start + 10..start + 11, start + 11..start + 11, start + 11..start + 500]);
            assert_eq!((set.first, set.rest.capacity()), (start..start + 500, 0));
        }
        assert_eq!(Extents::up_to(0), Extents::default());
        assert_eq!(set(&[0..7, 7..9]), Extents::up_to(9));
    }

    #[test]
    fn neighbours_join_whatever_comes_first() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let ranges = order.map(|n: u32| 50 + n * 10..60 + n * 10);
            let joined = set(&ranges);
            assert_eq!((joined.first, joined.rest.len()), (50..80, 0), "{order:?}");
        }
    }

    #[test]
    fn a_byte_cannot_be_added_twice() {
        let before = set(&[10..20, 30..40, 50..60]);
        for range in [10..20, 9..11, 19..21, 0..100, 30..31, 39..50, 25..31, 59..70, 12..13, 20..51] {
            let mut after = before.clone();
            assert_eq!(after.insert(range.clone()), Err(ExtentsError::Overlap), "{range:?}");
            assert_eq!(after, before);
        }
    }

    #[test]
    fn gaps_are_what_is_missing_inside() {
        let set = set(&[10..20, 30..40]);
        assert_eq!(gaps(&set, 0..50), [(0, 10), (20, 30), (40, 50)]);
        assert_eq!(gaps(&set, 12..35), [(20, 30)]);
        assert_eq!(gaps(&set, 10..20), []);
        assert_eq!(gaps(&set, 45..u32::MAX), [(45, u32::MAX)]);
        assert_eq!(gaps(&Extents::default(), 3..5), [(3, 5)]);
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let mut set = Extents::default();
        for n in 0..MAX_EXTENTS as u32 {
            set.insert(n * 4..n * 4 + 3).unwrap();
        }
        let full = set.clone();
        let end = MAX_EXTENTS as u32 * 4;
        assert_eq!(set.insert(end..end + 1), Err(ExtentsError::TooMany));
        assert_eq!(set.remove(&(1..2)), Err(ExtentsError::TooMany));
        assert_eq!(set, full);
        set.insert(3..4).unwrap();
        set.remove(&(0..2)).unwrap();
        let full = set.rest.len() + 2;
        set.insert(4 * full as u32..4 * full as u32 + 1).unwrap();
        set.insert(0..1).unwrap();
        assert_eq!(gaps(&set, 0..10), [(1, 2), (7, 8)]);
    }

    proptest! {
        #[test]
        fn bytes_of_a_part_are_copied(
            of in prop::collection::btree_set(0_u32..60, 0..60),
            other in prop::collection::btree_set(0_u32..60, 0..60),
            start in 0_u32..60,
            len in 0_u32..60,
        ) {
            let set_of = |bytes: &BTreeSet<u32>| set(&bytes.iter().map(|byte| *byte..byte + 1).collect::<Vec<_>>());
            let within = start..start + len;
            let mut copied = set_of(&of);
            copied.copy_within(&within, &set_of(&other)).unwrap();
            let source = |byte: &u32| if within.contains(byte) { &other } else { &of };
            let expected = (0..60).filter(|byte| source(byte).contains(byte)).collect();
            prop_assert_eq!(copied, set_of(&expected));
        }

        #[test]
        fn a_set_of_ranges_is_a_set_of_bytes(steps in prop::collection::vec((any::<bool>(), 0_u32..60, 0_u32..12), 0..60)) {
            let (mut extents, mut bytes) = (Extents::default(), BTreeSet::new());
            for (insert, start, len) in steps {
                let range = start..start + len;
                if !insert {
                    extents.remove(&range).unwrap();
                    bytes.retain(|byte| !range.contains(byte));
                } else if range.clone().any(|byte| bytes.contains(&byte)) {
                    prop_assert_eq!(extents.insert(range), Err(ExtentsError::Overlap));
                } else {
                    extents.insert(range.clone()).unwrap();
                    bytes.extend(range);
                }
                let missing: Vec<u32> = extents.missing(0..80).flatten().collect();
                prop_assert_eq!(missing, (0..80).filter(|byte| !bytes.contains(byte)).collect::<Vec<_>>());
                prop_assert_eq!(extents.len_bytes() as usize, bytes.len());
                prop_assert_eq!(extents.front(), (0..80).find(|byte| !bytes.contains(byte)).unwrap_or(80));
                let ranges: Vec<_> = extents.ranges().cloned().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", ranges);
                prop_assert!(ranges.iter().all(|range| !range.is_empty()));
            }
        }
    }
}
