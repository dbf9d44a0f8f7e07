//! Sizes as people write them: `512`, `64M`, `10G`.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Size(pub(crate) u64);

/// The error for a text that is not a size.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotASize(String);

impl fmt::Display for NotASize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a size; write a number and K, M, G, T or P, such as 64M or 10G", self.0)
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
            "K" | "KIB" => 10,
            "M" | "MIB" => 20,
            "G" | "GIB" => 30,
            "T" | "TIB" => 40,
            "P" | "PIB" => 50,
            _ => return Err(bad()),
        };
        let number: u64 = digits.parse().map_err(|_| bad())?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(bad)
    }
}

impl TryFrom<String> for Size {
    type Error = NotASize;

    fn try_from(text: String) -> Result<Self, NotASize> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in
            [("0", 0), ("512", 512), ("64M", 64 << 20), ("10g", 10 << 30), ("1TiB", 1 << 40), ("3k", 3072)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in ["", "M", "-1", "1.5G", "10 G", "10X", "99999999999999999999", "16384P", "1GG"] {
            assert_eq!(text.parse::<Size>(), Err(NotASize(text.into())));
        }
    }
}
