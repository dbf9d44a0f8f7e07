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

/// The requests of one length that lie within a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Requests {
    /// The number of the first, counted from the beginning of the disk.
    pub(super) first: u64,
    pub(super) count: u64,
}

/// Requests of a length do not fit a range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Misfit {
    #[error("requests of {len} bytes are not whole blocks of {block_len}")]
    PartOfABlock { len: u64, block_len: u64 },
    #[error("no request of {len} bytes has room in the bytes {} to {}", .range.start, .range.end)]
    NoRoom { len: u64, range: Range<u64> },
}

impl Requests {
    /// The whole requests of `len` bytes in `range` of a disk with blocks of `block_len`.
    ///
    /// A load computes the LBA of a request from its number and the blocks of one request, so a length that is not
    /// whole blocks would move requests out of the range.
    pub(super) fn within(range: &Range<u64>, len: u64, block_len: u64) -> Result<Self, Misfit> {
        if len == 0 || !len.is_multiple_of(block_len) {
            return Err(Misfit::PartOfABlock { len, block_len });
        }
        let first = range.start.div_ceil(len);
        let requests = Self { first, count: (range.end / len).saturating_sub(first) };
        // The same once more in blocks, as the device is told.
        let blocks = len / block_len;
        let (from, to) = (first.checked_mul(blocks), (first + requests.count).checked_mul(blocks));
        let bytes = from.zip(to).and_then(|(from, to)| Some(from.checked_mul(block_len)?..to.checked_mul(block_len)?));
        let is_inside = bytes.is_some_and(|bytes| bytes.start >= range.start && bytes.end <= range.end);
        if requests.count > 0 && is_inside { Ok(requests) } else { Err(Misfit::NoRoom { len, range: range.clone() }) }
    }
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
        for (range, len, expected) in [
            (0..10, 5, Some((0, 2))),
            (1..10, 5, Some((1, 1))),
            (1..9, 5, None),
            (6..9, 5, None),
            (5..21, 5, Some((1, 3))),
        ] {
            let found = Requests::within(&range, len, 5);
            assert_eq!(found.as_ref().ok().map(|found| (found.first, found.count)), expected, "{range:?}");
            assert_eq!(found.err(), expected.is_none().then_some(Misfit::NoRoom { len, range }));
        }
    }

    #[test]
    fn requests_that_are_no_whole_blocks_are_refused() {
        // 64 KiB are 15 blocks of 4160 bytes and a part of one: the first request behind 1 GiB would begin before it.
        let range = 1 << 30..2 << 30;
        for (len, block_len) in [(64 << 10, 4160), (66 << 10, 4096), (0, 512), (256, 512)] {
            assert_eq!(Requests::within(&range, len, block_len), Err(Misfit::PartOfABlock { len, block_len }));
        }
        assert!(Requests::within(&range, 15 * 4160, 4160).is_ok());
    }
}
