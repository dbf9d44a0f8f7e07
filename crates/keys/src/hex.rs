//! Lower-case hexadecimal digits, as the key file and the stores spell bytes.

use std::fmt::Write;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes as digits.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all text");
        text
    })
}

/// Digits as bytes. Upper-case digits are refused, so that bytes have one spelling.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// A fixed number of bytes that serde reads and writes as digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hex<const N: usize>(pub(crate) [u8; N]);

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(&self.0))
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = decode(&text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| D::Error::custom(format!("this takes {} lower-case hexadecimal digits", 2 * N)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_one_spelling() {
        assert_eq!(encode(&[0, 0x7f, 0xab]), "007fab");
        assert_eq!(decode("007fab"), Some(vec![0, 0x7f, 0xab]));
        for text in ["0", "0g", "AB", "a\u{fc}", " 1"] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_number_of_digits_is_fixed() {
        assert_eq!(serde_json::from_str::<Hex<2>>("\"01ff\"").unwrap(), Hex([1, 0xff]));
        for text in ["\"01\"", "\"01ff00\"", "\"\"", "7"] {
            assert!(serde_json::from_str::<Hex<2>>(text).is_err(), "{text}");
        }
    }
}
