//! Items as bytes.

use super::{HEADER_LEN, Item, Value};

/// The bytes of an item. They may hold keys: the caller overwrites them.
pub fn encode(item: &Item) -> Vec<u8> {
    // With all of its capacity from the start, the vector never moves and leaves no copy behind.
    let mut bytes = Vec::with_capacity(encoded_len(item));
    write(item, &mut bytes);
    bytes
}

/// The number of bytes that an item takes.
pub fn encoded_len(item: &Item) -> usize {
    HEADER_LEN + value_len(&item.value).next_multiple_of(8)
}

/// The length of a value as its header has it: without padding.
fn value_len(value: &Value) -> usize {
    match value {
        Value::Structure(items) => items.iter().map(encoded_len).sum(),
        Value::Integer(_) | Value::Enumeration(_) | Value::Interval(_) => 4,
        Value::LongInteger(_) | Value::Boolean(_) | Value::DateTime(_) => 8,
        Value::BigInteger(bytes) => bytes.len(),
        Value::ByteString(bytes) => bytes.len(),
        Value::TextString(text) => text.len(),
    }
}

fn write(item: &Item, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&item.tag.0.to_be_bytes()[1..]);
    bytes.push(item.value.kind());
    let len = u32::try_from(value_len(&item.value)).expect("messages are shorter than 4 GiB");
    bytes.extend_from_slice(&len.to_be_bytes());
    match &item.value {
        Value::Structure(items) => items.iter().for_each(|item| write(item, bytes)),
        Value::Integer(value) => bytes.extend_from_slice(&value.to_be_bytes()),
        Value::Enumeration(value) | Value::Interval(value) => bytes.extend_from_slice(&value.to_be_bytes()),
        Value::LongInteger(value) | Value::DateTime(value) => bytes.extend_from_slice(&value.to_be_bytes()),
        Value::Boolean(value) => bytes.extend_from_slice(&u64::from(*value).to_be_bytes()),
        Value::BigInteger(value) => bytes.extend_from_slice(value),
        Value::ByteString(value) => bytes.extend_from_slice(value),
        Value::TextString(text) => bytes.extend_from_slice(text.as_bytes()),
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}
