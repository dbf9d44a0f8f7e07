//! The kinds of values that keys have (RFC 7143, 6.1).

use core::fmt::Write as _;
use core::ops::RangeInclusive;

/// A reason why a value is not of its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The value is neither a decimal nor a hexadecimal number.
    #[error("not a number")]
    NotANumber,
    /// The number is 2^64 or more.
    #[error("number does not fit 64 bits")]
    NumberTooLarge,
    /// The value is not two numbers with a tilde between, the second no less than the first.
    #[error("not a range of the form low~high")]
    NotARange,
    /// The value is neither `Yes` nor `No`.
    #[error("neither Yes nor No")]
    NotABoolean,
    /// The value is neither a hexadecimal (`0x`) nor a base64 (`0b`) constant.
    #[error("not a binary value: 0x and hexadecimal digits, or 0b and base64")]
    NotBinary,
    /// The binary value has more bytes than its key allows.
    #[error("binary value has {len} bytes, at most {max} are allowed")]
    BinaryTooLong {
        /// The length of the value in bytes.
        len: usize,
        /// The limit that the caller gave.
        max: usize,
    },
}

/// Reads a number: decimal without leading zeros, or hexadecimal after `0x` or `0X`.
///
/// # Errors
///
/// [`ValueError::NotANumber`], or [`ValueError::NumberTooLarge`] for 2^64 and above.
///
/// ```
/// use lunette_pdu::text::parse_number;
/// assert_eq!(parse_number("262144"), Ok(262_144));
/// assert_eq!(parse_number("0x4000"), Ok(16_384));
/// ```
pub fn parse_number(value: &str) -> Result<u64, ValueError> {
    let (digits, radix) = match strip_prefix(value, b'x') {
        Some(digits) => (digits, 16),
        None if value.len() > 1 && value.starts_with('0') => return Err(ValueError::NotANumber),
        None => (value, 10),
    };
    // `from_str_radix` also accepts a sign, which the RFC does not allow.
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(ValueError::NotANumber);
    }
    u64::from_str_radix(digits, radix).map_err(|_| ValueError::NumberTooLarge)
}

/// Reads a range: two numbers with a tilde between, the second no less than the first.
///
/// # Errors
///
/// [`ValueError::NotARange`], or the error of [`parse_number`] for either number.
pub fn parse_range(value: &str) -> Result<RangeInclusive<u64>, ValueError> {
    let (low, high) = value.split_once('~').ok_or(ValueError::NotARange)?;
    let range = parse_number(low)?..=parse_number(high)?;
    if range.is_empty() { Err(ValueError::NotARange) } else { Ok(range) }
}

/// Writes a range, as [`parse_range`] reads it.
pub fn format_range(range: &RangeInclusive<u64>) -> String {
    format!("{}~{}", range.start(), range.end())
}

/// Reads `Yes` or `No`, case-sensitively.
///
/// # Errors
///
/// [`ValueError::NotABoolean`] for anything else.
pub fn parse_boolean(value: &str) -> Result<bool, ValueError> {
    match value {
        "Yes" => Ok(true),
        "No" => Ok(false),
        _ => Err(ValueError::NotABoolean),
    }
}

/// Writes `Yes` or `No`.
pub const fn format_boolean(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

/// The items of a list, which commas separate. An empty value has no items.
///
/// ```
/// use lunette_pdu::text::parse_list;
/// assert!(parse_list("CRC32C,None").eq(["CRC32C", "None"]));
/// ```
pub fn parse_list(value: &str) -> impl Iterator<Item = &str> + Clone {
    value.split(',').filter(move |_| !value.is_empty())
}

/// Reads a binary value of up to `max_len` bytes: hexadecimal after `0x` or `0X`, base64 after `0b` or
/// `0B`.
///
/// With an odd number of hexadecimal digits, a leading zero is implied: a number of n digits has (n + 1) / 2 bytes. The
/// padding at the end of base64 may be missing; by the RFC's count a constant of n characters has n * 3 / 4 bytes.
///
/// # Errors
///
/// [`ValueError::NotBinary`], or [`ValueError::BinaryTooLong`]; neither case allocates.
///
/// ```
/// use lunette_pdu::text::parse_binary;
/// assert_eq!(parse_binary("0xabc", 16), Ok(vec![0x0a, 0xbc]));
/// assert_eq!(parse_binary("0bq80=", 16), Ok(vec![0xab, 0xcd]));
/// ```
pub fn parse_binary(value: &str, max_len: usize) -> Result<Vec<u8>, ValueError> {
    let check_len = |len| if len > max_len { Err(ValueError::BinaryTooLong { len, max: max_len }) } else { Ok(()) };
    if let Some(digits) = strip_prefix(value, b'x') {
        check_len(digits.len().div_ceil(2))?;
        return decode_hex(digits.as_bytes()).ok_or(ValueError::NotBinary);
    }
    let symbols = strip_prefix(value, b'b').ok_or(ValueError::NotBinary)?;
    let symbols = strip_base64_padding(symbols).ok_or(ValueError::NotBinary)?;
    check_len(symbols.len() * 3 / 4)?;
    decode_base64(symbols.as_bytes()).ok_or(ValueError::NotBinary)
}

/// Writes bytes in hexadecimal, two digits each, after `0x`: the form that every peer reads.
///
/// An empty value has no form: its `0x` is refused by [`parse_binary`].
pub fn format_binary(bytes: &[u8]) -> String {
    let mut value = String::with_capacity(2 + 2 * bytes.len());
    value.push_str("0x");
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(value, "{byte:02x}");
    }
    value
}

/// Removes a leading `0` and the letter, in either case.
fn strip_prefix(value: &str, letter: u8) -> Option<&str> {
    match value.as_bytes() {
        [b'0', found, ..] if found.eq_ignore_ascii_case(&letter) => value.get(2..),
        _ => None,
    }
}

/// Decodes one or more digits; an odd first digit is the lower half of the first byte.
fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    if digits.is_empty() {
        return None;
    }
    let (odd, pairs) = digits.split_at(digits.len() % 2);
    odd.iter()
        .map(|&digit| hex_digit(digit))
        .chain(pairs.chunks_exact(2).map(|pair| Some(hex_digit(pair[0])? << 4 | hex_digit(pair[1])?)))
        .collect()
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|nibble| nibble as u8)
}

/// Removes trailing `=`, if they complete the last group of four.
fn strip_base64_padding(symbols: &str) -> Option<&str> {
    let stripped = symbols.trim_end_matches('=');
    let padding = symbols.len() - stripped.len();
    (padding == 0 || (padding <= 2 && symbols.len().is_multiple_of(4))).then_some(stripped)
}

/// Decodes one or more symbols without padding. Bits after the last whole byte must be zero.
fn decode_base64(symbols: &[u8]) -> Option<Vec<u8>> {
    if symbols.is_empty() || symbols.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(symbols.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for &symbol in symbols {
        bits = bits << 6 | u32::from(base64_symbol(symbol)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (bits == 0).then_some(bytes)
}

const fn base64_symbol(symbol: u8) -> Option<u8> {
    Some(match symbol {
        b'A'..=b'Z' => symbol - b'A',
        b'a'..=b'z' => symbol - b'a' + 26,
        b'0'..=b'9' => symbol - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}
