//! The reader of a list of keys.

use super::{MAX_KEY_LEN, MAX_VALUE_LEN};

/// A reason why bytes are not a list of `key=value` pairs, or a pair cannot become part of one.
///
/// Offsets count from the start of the list to the start of the pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The list ends inside a pair.
    #[error("pair at byte {offset} has no NUL at its end")]
    Unterminated {
        /// The start of the pair.
        offset: usize,
    },
    /// Two NULs follow each other before the end of the list.
    #[error("empty pair at byte {offset}")]
    EmptyPair {
        /// The position where a pair was expected.
        offset: usize,
    },
    /// A pair has no `=`.
    #[error("pair at byte {offset} has no \"=\"")]
    NoEquals {
        /// The start of the pair.
        offset: usize,
    },
    /// A key is empty or too long.
    #[error("key at byte {offset} has {len} bytes, 1 to {MAX_KEY_LEN} are allowed")]
    KeyLength {
        /// The start of the pair.
        offset: usize,
        /// The length of the key in bytes.
        len: usize,
    },
    /// A key has a character that keys may not have.
    #[error("key at byte {offset} contains {character:?}")]
    KeyCharacter {
        /// The start of the pair.
        offset: usize,
        /// The first such character.
        character: char,
    },
    /// A value is too long.
    #[error("value of the key at byte {offset} has {len} bytes, at most {MAX_VALUE_LEN} are allowed")]
    ValueLength {
        /// The start of the pair.
        offset: usize,
        /// The length of the value in bytes.
        len: usize,
    },
    /// A value has a control character.
    #[error("value of the key at byte {offset} contains {character:?}")]
    ValueCharacter {
        /// The start of the pair.
        offset: usize,
        /// The first such character.
        character: char,
    },
    /// A pair is not UTF-8.
    #[error("pair at byte {offset} is not UTF-8")]
    NotUtf8 {
        /// The start of the pair.
        offset: usize,
    },
    /// The PDUs of one list together are longer than the receiver allows.
    #[error("text grew to {len} bytes, at most {max} are allowed")]
    TooLong {
        /// The length including the refused segment.
        len: usize,
        /// The receiver's limit.
        max: usize,
    },
}

/// Reads a complete list of keys: each pair is `key=value` with a NUL at its end.
///
/// The list may be empty. More NULs may follow the last pair, because some peers count the pad of the data segment as
/// text; everywhere else RFC 7143, 6.1 is applied to the letter. A key has 1 to [`MAX_KEY_LEN`] letters, digits and
/// `.-+@_`, and `#` as its second byte after `X`. A value has up to [`MAX_VALUE_LEN`] bytes of UTF-8. Control
/// characters are refused in values: no key has a use for them, and values end up in logs and terminals.
///
/// ```
/// use lunette_pdu::text::pairs;
///
/// let list = b"SessionType=Discovery\0HeaderDigest=CRC32C,None\0";
/// let pairs = pairs(list).collect::<Result<Vec<_>, _>>().unwrap();
/// assert_eq!(pairs, [("SessionType", "Discovery"), ("HeaderDigest", "CRC32C,None")]);
/// ```
pub const fn pairs(text: &[u8]) -> Pairs<'_> {
    Pairs { rest: text, offset: 0 }
}

/// The pairs of a list, in order. Ends after the first error. See [`pairs`].
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Pairs<'a> {
    /// Cuts the next pair off. The caller checked that there are bytes left.
    fn parse(&mut self) -> Result<Option<(&'a str, &'a str)>, TextError> {
        let offset = self.offset;
        let end = self.rest.iter().position(|&byte| byte == 0);
        let end = end.ok_or(TextError::Unterminated { offset })?;
        if end == 0 {
            let only_nuls = self.rest.iter().all(|&byte| byte == 0);
            return if only_nuls { Ok(None) } else { Err(TextError::EmptyPair { offset }) };
        }
        let (pair, rest) = self.rest.split_at(end);
        let pair = str::from_utf8(pair).map_err(|_| TextError::NotUtf8 { offset })?;
        let (key, value) = pair.split_once('=').ok_or(TextError::NoEquals { offset })?;
        check_key(key, offset)?;
        check_value(value, offset)?;
        self.rest = &rest[1..];
        self.offset += end + 1;
        Ok(Some((key, value)))
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<(&'a str, &'a str), TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let pair = self.parse();
        if !matches!(pair, Ok(Some(_))) {
            self.rest = &[];
        }
        pair.transpose()
    }
}

impl core::iter::FusedIterator for Pairs<'_> {}

/// Checks a key whose pair starts at `offset`.
pub(super) fn check_key(key: &str, offset: usize) -> Result<(), TextError> {
    let len = key.len();
    if len == 0 || len > MAX_KEY_LEN {
        return Err(TextError::KeyLength { offset, len });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || ".-+@_".contains(c);
    // Keys registered for public use are written X#name (RFC 7143, 6.3).
    let name = key.strip_prefix("X#").unwrap_or(key);
    match name.chars().find(|&c| !allowed(c)) {
        Some(character) => Err(TextError::KeyCharacter { offset, character }),
        None => Ok(()),
    }
}

/// Checks a value whose pair starts at `offset`.
pub(super) fn check_value(value: &str, offset: usize) -> Result<(), TextError> {
    let len = value.len();
    if len > MAX_VALUE_LEN {
        return Err(TextError::ValueLength { offset, len });
    }
    match value.chars().find(|c| c.is_control()) {
        Some(character) => Err(TextError::ValueCharacter { offset, character }),
        None => Ok(()),
    }
}
