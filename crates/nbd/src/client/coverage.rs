//! The account of the bytes of a read that have arrived. Pure.

use arrayvec::ArrayVec;

use super::limits::MAX_RUNS;

/// The parts of a read that chunks have brought so far, in any order.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// Begin and end of each run, in order, with gaps between them.
    runs: ArrayVec<(u32, u32), MAX_RUNS>,
}

impl Coverage {
    /// Adds `len` bytes from `at`. False when they are none, when one of them is there already, or when there would be
    /// more gaps than are kept.
    #[must_use]
    pub(crate) fn add(&mut self, at: u32, len: u32) -> bool {
        let Some(end) = at.checked_add(len).filter(|_| len > 0) else { return false };
        let next = self.runs.iter().position(|(begin, _)| *begin >= at).unwrap_or(self.runs.len());
        let touches_next = match self.runs.get(next) {
            Some((begin, _)) if *begin < end => return false,
            Some((begin, _)) => *begin == end,
            None => false,
        };
        let before = next.checked_sub(1);
        let touches_before = match before.and_then(|before| self.runs.get(before)) {
            Some((_, last)) if *last > at => return false,
            Some((_, last)) => *last == at,
            None => false,
        };
        match (before, touches_before, touches_next) {
            (Some(before), true, true) => {
                self.runs[before].1 = self.runs[next].1;
                self.runs.remove(next);
            }
            (Some(before), true, false) => self.runs[before].1 = end,
            (_, _, true) => self.runs[next].0 = at,
            _ => return self.runs.try_insert(next, (at, end)).is_ok(),
        }
        true
    }

    /// Whether the bytes from 0 to `len` are all there.
    pub(crate) fn is_whole(&self, len: u32) -> bool {
        self.runs.as_slice() == [(0, len)]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn runs_grow_together() {
        let mut coverage = Coverage::default();
        assert!(coverage.add(0, 10) && coverage.add(20, 10));
        assert!(!coverage.is_whole(30));
        assert!(coverage.add(10, 10), "the gap between them");
        assert!(coverage.is_whole(30) && !coverage.is_whole(29) && !coverage.is_whole(31));
    }

    #[test]
    fn gaps_are_bounded() {
        let mut coverage = Coverage::default();
        assert!((0..MAX_RUNS as u32).all(|run| coverage.add(run * 2, 1)));
        assert!(!coverage.add(1000, 1));
        assert!(coverage.add(1, 1), "a gap less");
        assert!(coverage.add(1000, 1));
    }

    proptest! {
        #[test]
        fn each_byte_is_taken_once(pieces: Vec<(u8, u8)>) {
            let (mut coverage, mut there) = (Coverage::default(), [false; 512]);
            for (at, len) in pieces {
                let range = usize::from(at)..usize::from(at) + usize::from(len);
                let is_new = len > 0 && !there[range.clone()].contains(&true);
                let added = coverage.add(at.into(), len.into());
                prop_assert!(is_new || !added);
                if added {
                    there[range].fill(true);
                }
                let whole = there.iter().position(|byte| !byte).unwrap_or(512);
                let is_run = whole > 0 && !there[whole..].contains(&true);
                prop_assert_eq!(coverage.is_whole(whole as u32), is_run);
            }
        }

        #[test]
        fn any_numbers_are_taken_without_a_panic(pieces: Vec<(u32, u32)>) {
            let mut coverage = Coverage::default();
            for (at, len) in pieces {
                let _ = coverage.add(at, len);
            }
        }
    }
}
