//! Bytes as items.

use zeroize::Zeroizing;

use super::limits::{MAX_DEPTH, MAX_ITEMS, MAX_MESSAGE_BYTES};
use super::{HEADER_LEN, Item, Tag, Value};

/// Why bytes are no item. Offsets count from the first byte of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TtlvError {
    /// An item is longer than what it lies in.
    #[error("the item at byte {0} is cut off")]
    Truncated(usize),
    /// Bytes follow the item.
    #[error("bytes follow the message at byte {0}")]
    Trailing(usize),
    /// The message exceeds the limit.
    #[error("a message of {0} bytes is too long; {MAX_MESSAGE_BYTES} are allowed")]
    TooLong(usize),
    /// Structures are nested too deep.
    #[error("the structure at byte {0} is nested too deep")]
    TooDeep(usize),
    /// The message has too many items.
    #[error("the message has more than {MAX_ITEMS} items")]
    TooMany,
    /// The type is none of TTLV's.
    #[error("the item at byte {0} has an unknown type")]
    UnknownType(usize),
    /// The length does not fit the type.
    #[error("the item at byte {0} has a length that its type does not allow")]
    WrongLength(usize),
    /// A boolean that is neither 0 nor 1, text that is no UTF-8, padding that is not zero.
    #[error("the item at byte {0} has a value that its type does not allow")]
    WrongValue(usize),
}

/// The length of a message with its header, by its first eight bytes.
///
/// # Errors
///
/// When the message would be longer than the limit.
pub fn message_len(header: &[u8; HEADER_LEN]) -> Result<usize, TtlvError> {
    let [.., a, b, c, d] = *header;
    let len = (u32::from_be_bytes([a, b, c, d]) as usize).saturating_add(HEADER_LEN);
    if len > MAX_MESSAGE_BYTES { Err(TtlvError::TooLong(len)) } else { Ok(len) }
}

/// Reads a single item, which takes all of the bytes.
///
/// # Errors
///
/// When the bytes are not exactly one item, or exceed a limit.
pub fn decode(bytes: &[u8]) -> Result<Item, TtlvError> {
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(TtlvError::TooLong(bytes.len()));
    }
    let mut decoder = Decoder { bytes, at: 0, items: 0 };
    let item = decoder.item(bytes.len(), 0)?;
    if decoder.at == bytes.len() { Ok(item) } else { Err(TtlvError::Trailing(decoder.at)) }
}

struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    items: usize,
}

impl<'a> Decoder<'a> {
    /// Reads the item at the current place, which ends at `end` or before.
    fn item(&mut self, end: usize, depth: usize) -> Result<Item, TtlvError> {
        let start = self.at;
        self.items += 1;
        if self.items > MAX_ITEMS {
            return Err(TtlvError::TooMany);
        }
        let header = self.take(HEADER_LEN, start, end)?;
        let tag = Tag(u32::from_be_bytes([0, header[0], header[1], header[2]]));
        let len = u32::from_be_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let padded = len.checked_next_multiple_of(8).ok_or(TtlvError::Truncated(start))?;
        if padded > end - self.at {
            return Err(TtlvError::Truncated(start));
        }
        if header[3] == 1 {
            return Ok(Item { tag, value: self.structure(start, len, depth)? });
        }
        let bytes = self.take(len, start, end)?;
        let padding = self.take(padded - len, start, end)?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(TtlvError::WrongValue(start));
        }
        Ok(Item { tag, value: value(header[3], bytes, start)? })
    }

    fn structure(&mut self, start: usize, len: usize, depth: usize) -> Result<Value, TtlvError> {
        if depth >= MAX_DEPTH {
            return Err(TtlvError::TooDeep(start));
        }
        if !len.is_multiple_of(8) {
            return Err(TtlvError::WrongLength(start));
        }
        let end = self.at + len;
        let mut items = Vec::new();
        while self.at < end {
            items.push(self.item(end, depth + 1)?);
        }
        Ok(Value::Structure(items))
    }

    fn take(&mut self, len: usize, start: usize, end: usize) -> Result<&'a [u8], TtlvError> {
        if len > end - self.at {
            return Err(TtlvError::Truncated(start));
        }
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }
}

fn value(kind: u8, bytes: &[u8], start: usize) -> Result<Value, TtlvError> {
    let four = || bytes.try_into().map_err(|_| TtlvError::WrongLength(start));
    let eight = || bytes.try_into().map_err(|_| TtlvError::WrongLength(start));
    Ok(match kind {
        2 => Value::Integer(i32::from_be_bytes(four()?)),
        3 => Value::LongInteger(i64::from_be_bytes(eight()?)),
        4 if !bytes.is_empty() && bytes.len().is_multiple_of(8) => Value::BigInteger(bytes.to_vec()),
        4 => return Err(TtlvError::WrongLength(start)),
        5 => Value::Enumeration(u32::from_be_bytes(four()?)),
        6 => match u64::from_be_bytes(eight()?) {
            0 => Value::Boolean(false),
            1 => Value::Boolean(true),
            _ => return Err(TtlvError::WrongValue(start)),
        },
        7 => match std::str::from_utf8(bytes) {
            Ok(text) => Value::TextString(text.into()),
            Err(_) => return Err(TtlvError::WrongValue(start)),
        },
        8 => Value::ByteString(Zeroizing::new(bytes.to_vec())),
        9 => Value::DateTime(i64::from_be_bytes(eight()?)),
        10 => Value::Interval(u32::from_be_bytes(four()?)),
        _ => return Err(TtlvError::UnknownType(start)),
    })
}
