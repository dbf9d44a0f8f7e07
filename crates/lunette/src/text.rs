//! Values that are written as texts.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Deserializer, Error, Visitor};
use sha2::{Digest, Sha256};

/// Reads a text as the value that it means. A mistake is one of the text itself, so it has the place of the text: a
/// conversion of a text that was read has that of the list or table around it.
pub(crate) fn read<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(from: D) -> Result<T, D::Error> {
    from.deserialize_str(Text(PhantomData))
}

/// A digest of a text: 16 hexadecimal digits, always the same for one text, and others for another.
pub(crate) fn digest16(text: &str) -> String {
    let digest = Sha256::digest(text);
    let first = u64::from_be_bytes(std::array::from_fn(|index| digest[index]));
    format!("{first:016x}")
}

/// The beginning of a text of any length, for messages.
pub(crate) fn start(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_SHOWN_BYTES)]
}

/// Bytes of a text of a client that are repeated in a message.
const MAX_SHOWN_BYTES: usize = 100;

struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}
