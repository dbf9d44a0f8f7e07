//! The fields of a structure, taken one by one.

#![expect(clippy::needless_pass_by_value, reason = "readers of items are interchangeable, and some take the value out")]

use zeroize::Zeroizing;

use super::limits::MAX_TEXT_BYTES;
use super::{Refusal, ResultReason};
use crate::ttlv::{Item, Tag, Value};

/// The fields that were not taken yet.
pub(super) struct Fields {
    within: Tag,
    items: Vec<Item>,
}

/// Fields of the wrong type, and those that are missing or not supported.
type Outcome<T> = Result<T, Refusal>;

impl Fields {
    /// The fields of a structure.
    pub(super) fn of(item: Item) -> Outcome<Self> {
        match item.value {
            Value::Structure(items) => Ok(Self { within: item.tag, items }),
            _ => Err(invalid(item.tag, "is no structure")),
        }
    }

    /// The first field with a tag.
    pub(super) fn take(&mut self, tag: Tag) -> Option<Item> {
        let at = self.items.iter().position(|item| item.tag == tag)?;
        Some(self.items.remove(at))
    }

    /// All fields with a tag, at most `limit`.
    pub(super) fn take_all(&mut self, tag: Tag, limit: usize) -> Outcome<Vec<Item>> {
        let (taken, rest) = std::mem::take(&mut self.items).into_iter().partition(|item| item.tag == tag);
        self.items = rest;
        let taken: Vec<Item> = taken;
        if taken.len() > limit {
            return Err(invalid(tag, &format!("stands there {} times; {limit} are allowed", taken.len())));
        }
        Ok(taken)
    }

    pub(super) fn need(&mut self, tag: Tag) -> Outcome<Item> {
        let within = self.within;
        self.take(tag).ok_or_else(|| Refusal::new(ResultReason::MissingData, format!("{within:?} lacks {tag:?}")))
    }

    pub(super) fn text(&mut self, tag: Tag) -> Outcome<Option<String>> {
        self.take(tag).map(text).transpose()
    }

    pub(super) fn integer(&mut self, tag: Tag) -> Outcome<Option<i32>> {
        self.take(tag).map(integer).transpose()
    }

    pub(super) fn number(&mut self, tag: Tag) -> Outcome<Option<u32>> {
        self.take(tag).map(number).transpose()
    }

    pub(super) fn boolean(&mut self, tag: Tag) -> Outcome<Option<bool>> {
        let Some(item) = self.take(tag) else { return Ok(None) };
        match item.value {
            Value::Boolean(value) => Ok(Some(value)),
            _ => Err(invalid(tag, "is no boolean")),
        }
    }

    pub(super) fn bytes(&mut self, tag: Tag) -> Outcome<Option<Zeroizing<Vec<u8>>>> {
        let Some(item) = self.take(tag) else { return Ok(None) };
        match item.value {
            Value::ByteString(bytes) => Ok(Some(bytes)),
            _ => Err(invalid(tag, "is no byte string")),
        }
    }

    pub(super) fn date(&mut self, tag: Tag) -> Outcome<Option<i64>> {
        self.take(tag).map(date).transpose()
    }

    /// Refuses what was not taken.
    pub(super) fn end(self) -> Outcome<()> {
        let Self { within, items } = self;
        let Some(item) = items.first() else { return Ok(()) };
        let message = format!("{:?} in {within:?} is not supported", item.tag);
        Err(Refusal::new(ResultReason::FeatureNotSupported, message))
    }
}

pub(super) fn text(item: Item) -> Outcome<String> {
    match item.value {
        Value::TextString(text) if text.len() <= MAX_TEXT_BYTES => Ok(text),
        Value::TextString(_) => Err(invalid(item.tag, &format!("is longer than {MAX_TEXT_BYTES} bytes"))),
        _ => Err(invalid(item.tag, "is no text string")),
    }
}

pub(super) fn integer(item: Item) -> Outcome<i32> {
    match item.value {
        Value::Integer(value) => Ok(value),
        _ => Err(invalid(item.tag, "is no integer")),
    }
}

/// The number of a listed value.
pub(super) fn number(item: Item) -> Outcome<u32> {
    match item.value {
        Value::Enumeration(value) => Ok(value),
        _ => Err(invalid(item.tag, "is no enumeration")),
    }
}

pub(super) fn date(item: Item) -> Outcome<i64> {
    match item.value {
        Value::DateTime(value) => Ok(value),
        _ => Err(invalid(item.tag, "is no date")),
    }
}

/// A listed value that must be known.
pub(super) fn known<T>(tag: Tag, number: u32, from_number: fn(u32) -> Option<T>) -> Outcome<T> {
    from_number(number).ok_or_else(|| invalid(tag, &format!("{number:#x} is not supported")))
}

pub(super) fn invalid(tag: Tag, what: &str) -> Refusal {
    Refusal::new(ResultReason::InvalidField, format!("{tag:?} {what}"))
}
