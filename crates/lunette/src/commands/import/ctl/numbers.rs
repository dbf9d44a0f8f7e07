//! Numbers of `ctl.conf`: those of FreeBSD's expand_number(3).

use crate::size::exact;

/// A number: decimal, octal behind 0 or hexadecimal behind 0x, with one of the letters b, k, m, g, t, p, e.
pub(super) fn expand(text: &str) -> Option<u64> {
    let (radix, digits) = match (text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")), text.strip_prefix('0')) {
        (Some(digits), _) => (16, digits),
        (None, Some(digits)) if digits.starts_with(|c: char| c.is_ascii_digit()) => (8, digits),
        _ => (10, text),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (digits, unit) = digits.split_at(end);
    let shift = match unit.chars().next().map(|unit| unit.to_ascii_lowercase()) {
        None | Some('b') => 0,
        Some(unit) => 10 * (1 + "kmgtpe".find(unit)?),
    };
    u64::from_str_radix(digits, radix).ok()?.checked_mul(1 << shift)
}

/// A size as ours says it: `4G`, where ctld takes `4GB` too.
pub(super) fn our_size(size: &str) -> Option<String> {
    expand(size).map(exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_expand_number() {
        for (text, expected) in [
            ("0", Some(0)),
            ("10", Some(10)),
            ("010", Some(8)),
            ("0x10", Some(16)),
            ("4k", Some(4096)),
            ("4KB", Some(4096)),
            ("512b", Some(512)),
            ("1E", Some(1 << 60)),
            ("16E", None),
            ("", None),
            ("k", None),
            ("-1", None),
            ("1x", None),
        ] {
            assert_eq!(expand(text), expected, "{text}");
        }
        for (text, expected) in [("4GB", "4G"), ("1536m", "1536M"), ("1000", "1000"), ("0x100000", "1M")] {
            assert_eq!(our_size(text).as_deref(), Some(expected), "{text}");
        }
    }
}
