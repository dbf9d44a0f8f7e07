//! Items and their values.

use std::fmt;

use zeroize::Zeroizing;

use super::Tag;

/// A tagged value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The meaning of the value.
    pub tag: Tag,
    /// The value.
    pub value: Value,
}

/// A value of one of the ten types of TTLV.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Items in an order that has a meaning.
    Structure(Vec<Item>),
    /// A 32-bit number, or a mask.
    Integer(i32),
    /// A 64-bit number.
    LongInteger(i64),
    /// A number in two's complement, of a multiple of eight bytes.
    BigInteger(Vec<u8>),
    /// An entry of the standard's list of values for the tag.
    Enumeration(u32),
    /// True or false.
    Boolean(bool),
    /// Text without a final zero.
    TextString(String),
    /// Bytes. They may be a key: they are overwritten when they are dropped, and `Debug` shows their number only.
    ByteString(Zeroizing<Vec<u8>>),
    /// Seconds since 1970.
    DateTime(i64),
    /// An interval in seconds.
    Interval(u32),
}

impl Item {
    /// An item.
    pub fn new(tag: Tag, value: Value) -> Self {
        Self { tag, value }
    }

    /// A structure.
    pub fn structure(tag: Tag, items: Vec<Self>) -> Self {
        Self::new(tag, Value::Structure(items))
    }

    /// An item with a text string.
    pub fn text(tag: Tag, text: impl Into<String>) -> Self {
        Self::new(tag, Value::TextString(text.into()))
    }

    /// A value that the standard lists.
    pub fn enumeration(tag: Tag, value: u32) -> Self {
        Self::new(tag, Value::Enumeration(value))
    }

    /// A number.
    pub fn integer(tag: Tag, value: i32) -> Self {
        Self::new(tag, Value::Integer(value))
    }

    /// An item with a byte string.
    pub fn bytes(tag: Tag, bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(tag, Value::ByteString(Zeroizing::new(bytes.into())))
    }
}

impl Value {
    /// The number of the type on the wire.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Structure(_) => 1,
            Self::Integer(_) => 2,
            Self::LongInteger(_) => 3,
            Self::BigInteger(_) => 4,
            Self::Enumeration(_) => 5,
            Self::Boolean(_) => 6,
            Self::TextString(_) => 7,
            Self::ByteString(_) => 8,
            Self::DateTime(_) => 9,
            Self::Interval(_) => 10,
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Structure(items) => f.debug_list().entries(items).finish(),
            Self::Integer(value) => write!(f, "{value}"),
            Self::LongInteger(value) => write!(f, "{value}"),
            Self::BigInteger(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::ByteString(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Enumeration(value) => write!(f, "{value:#x}"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::TextString(text) => write!(f, "{text:?}"),
            Self::DateTime(seconds) => write!(f, "@{seconds}"),
            Self::Interval(seconds) => write!(f, "{seconds} s"),
        }
    }
}
