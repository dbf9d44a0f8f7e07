//! Sizes as people write them: `512`, `64M`, `10G`, `1Gi`, `1GiB`. All units are binary.

use std::fmt;
use std::str::FromStr;

use indicatif::BinaryBytes;
use serde::{Deserialize, Deserializer};

use crate::text;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// The greatest size: offsets in files have 63 bits, and 8191P is the last that people would write.
const MAX_BYTES: u64 = i64::MAX as u64;

/// The error for a text that is not a size.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotASize(String);

impl fmt::Display for NotASize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a size; write a number and K, M, G, T or P (binary units, below 8192P), such as 64M or 10G",
            self.0
        )
    }
}

impl std::error::Error for NotASize {}

impl FromStr for Size {
    type Err = NotASize;

    /// Parses a number with an optional binary unit; a bare number is bytes.
    fn from_str(text: &str) -> Result<Self, NotASize> {
        let bad = || NotASize(text.into());
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
            "" => 0,
            "K" | "KI" | "KIB" => 10,
            "M" | "MI" | "MIB" => 20,
            "G" | "GI" | "GIB" => 30,
            "T" | "TI" | "TIB" => 40,
            "P" | "PI" | "PIB" => 50,
            _ => return Err(bad()),
        };
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad());
        }
        let number: u64 = digits.parse().map_err(|_| bad())?;
        number.checked_mul(1 << shift).filter(|bytes| *bytes <= MAX_BYTES).map(Self).ok_or_else(bad)
    }
}

/// A size that [`Size`] reads: in the largest unit that leaves nothing over.
pub(crate) fn exact(bytes: u64) -> String {
    let units = [(50, "P"), (40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// Bytes for people: in the largest unit, and as they are.
pub(crate) fn shown(bytes: u64) -> String {
    if bytes < 1 << 10 { format!("{bytes} bytes") } else { format!("{} ({bytes} bytes)", BinaryBytes(bytes)) }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        text::read(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("64M", 64 << 20),
            ("10g", 10 << 30),
            ("1TiB", 1 << 40),
            ("3k", 3072),
            ("1Gi", 1 << 30),
            ("2mi", 2 << 20),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn exact_sizes_are_read_back() {
        for (bytes, expected) in [
            (0, "0"),
            (512, "512"),
            (1000, "1000"),
            (1536 << 10, "1536K"),
            (10 << 30, "10G"),
            ((10 << 30) + 512, "10737418752"),
            (3 << 50, "3P"),
            (i64::MAX as u64, "9223372036854775807"),
        ] {
            assert_eq!(exact(bytes), expected);
            assert_eq!(expected.parse(), Ok(Size(bytes)));
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_and_in_bytes() {
        assert_eq!(shown(0), "0 bytes");
        assert_eq!(shown(1023), "1023 bytes");
        assert_eq!(shown(64 << 20), "64.00 MiB (67108864 bytes)");
        assert_eq!(shown(1_500_000_000_000), "1.36 TiB (1500000000000 bytes)");
    }

    #[test]
    fn everything_else_is_refused() {
        for text in
            ["", "M", "-1", "+4M", "1.5G", "10 G", "10X", "99999999999999999999", "8192P", "1GG", "1GB", "1iB", "1I"]
        {
            assert_eq!(text.parse::<Size>(), Err(NotASize(text.into())));
        }
    }
}
