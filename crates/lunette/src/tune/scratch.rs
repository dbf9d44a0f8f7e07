//! The range of the disk that may be overwritten.

use std::ops::Range;
use std::str::FromStr;

use lunette_initiator::Facts;

use crate::failure::Failure;
use crate::size::Size;

/// Bytes of a disk, from the first to the one behind the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scratch(Range<u64>);

impl FromStr for Scratch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range =
            text.split_once("..").and_then(|(from, to)| Some(from.parse::<Size>().ok()?.0..to.parse::<Size>().ok()?.0));
        let range = range.filter(|range| !range.is_empty());
        range.map(Self).ok_or_else(|| format!("{text:?} is not a range; write FROM..TO in bytes, such as 1G..2G"))
    }
}

impl Scratch {
    /// The range, which lies within a disk that can be written.
    pub(super) fn check(&self, facts: &Facts) -> Result<Range<u64>, Failure> {
        let Range { start, end } = self.0;
        let (len, block_len) = (facts.len_bytes(), u64::from(facts.block_len()));
        match () {
            () if facts.read_only => Err(Failure::disk("--write: the disk is read only")),
            () if end > len => Err(Failure::Usage(format!("--write {start}..{end}: the disk ends at {len}"))),
            () if !start.is_multiple_of(block_len) || !end.is_multiple_of(block_len) => {
                Err(Failure::Usage(format!("--write {start}..{end}: the disk has blocks of {block_len} bytes")))
            }
            () if end - start < MIN_LEN => {
                Err(Failure::Usage(format!("--write {start}..{end}: that is less than {MIN_LEN} bytes")))
            }
            () => Ok(self.0.clone()),
        }
    }
}

/// Room for some requests, wherever their boundaries lie.
const MIN_LEN: u64 = 1 << 20;

/// The whole requests of `len` bytes in `range`: the number of the first, counted from the beginning of the disk, and how many.
pub(super) fn requests_in(range: &Range<u64>, len: u64) -> (u64, u64) {
    let first = range.start.div_ceil(len);
    (first, (range.end / len).saturating_sub(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_sizes_with_two_dots() {
        assert_eq!("1M..2G".parse(), Ok(Scratch(1 << 20..2 << 30)));
        for text in ["", "1M", "2M..1M", "1M..1M", "..1M", "1M..", "1M...2M", "a..b"] {
            assert!(text.parse::<Scratch>().is_err(), "{text}");
        }
    }

    #[test]
    fn requests_stay_within_the_range() {
        for (range, len, expected) in
            [(0..10, 5, (0, 2)), (1..10, 5, (1, 1)), (1..9, 5, (1, 0)), (6..9, 5, (2, 0)), (5..21, 5, (1, 3))]
        {
            let (first, count) = requests_in(&range, len);
            assert_eq!((first, count), expected, "{range:?}");
            assert!(count == 0 || (first * len >= range.start && (first + count) * len <= range.end));
        }
    }
}
