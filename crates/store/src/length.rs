//! The rule for lengths of disks, wherever a length comes in.
//!
//! A disk consists of one or more whole blocks. A length that a person asks for must be such a length
//! ([`check_asked_len`]). A length that is found below a disk (of a file, a device or an image) is never refused for
//! its last, partial block: the disk has the [whole blocks](whole_blocks), at the start as well as later, and the bytes
//! behind them are not served.

/// The bytes of the whole blocks that fit into `len_bytes`.
pub fn whole_blocks(len_bytes: u64, block_bytes: u32) -> u64 {
    let block_bytes = u64::from(block_bytes.max(1));
    len_bytes / block_bytes * block_bytes
}

/// Checks a length that a person asks for.
///
/// # Errors
///
/// [`LengthError`] names the nearest lengths that are right.
pub fn check_asked_len(len_bytes: u64, block_bytes: u32) -> Result<(), LengthError> {
    let is_whole = len_bytes > 0 && whole_blocks(len_bytes, block_bytes) == len_bytes;
    if is_whole { Ok(()) } else { Err(LengthError { len_bytes, block_bytes }) }
}

/// A length that is not one or more whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len_bytes} bytes are not one or more whole blocks of {block_bytes} bytes; use {}", self.nearest())]
pub struct LengthError {
    /// The length in bytes.
    pub len_bytes: u64,
    /// The length of a block in bytes.
    pub block_bytes: u32,
}

impl LengthError {
    /// The nearest right lengths, for the message.
    fn nearest(&self) -> String {
        let (block_bytes, below) = (u64::from(self.block_bytes), whole_blocks(self.len_bytes, self.block_bytes));
        match (below, below.checked_add(block_bytes)) {
            (0, _) => block_bytes.to_string(),
            (below, Some(above)) => format!("{below} or {above}"),
            (below, None) => below.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asked_lengths_are_whole_blocks() {
        for (len, block, right) in [(512, 512, true), (4096, 4096, true), (4608, 4096, false), (0, 512, false)] {
            assert_eq!(check_asked_len(len, block).is_ok(), right, "{len} of {block}");
        }
        assert!(check_asked_len(7, 1).is_ok(), "bytes are whole");
    }

    #[test]
    fn the_nearest_right_lengths_are_named() {
        let said = |len, block| check_asked_len(len, block).unwrap_err().to_string();
        assert!(said(1_500_000, 512).ends_with("use 1499648 or 1500160"), "{}", said(1_500_000, 512));
        assert!(said(100, 512).ends_with("use 512"));
        assert!(said(u64::MAX, 512).ends_with(&format!("use {}", u64::MAX - 511)));
    }

    #[test]
    fn found_lengths_are_rounded_down() {
        assert_eq!([0, 511, 512, 1_500_000].map(|len| whole_blocks(len, 512)), [0, 0, 512, 1_499_648]);
        assert_eq!(whole_blocks(7, 0), 7);
    }
}
