//! The writer of a list of keys.

use super::TextError;
use super::pairs::{check_key, check_value};

/// Builds a list of `key=value` pairs, as [`pairs`](super::pairs) reads it.
///
/// ```
/// use lunette_pdu::text::TextWriter;
///
/// let mut list = TextWriter::new();
/// list.push("TargetName", "iqn.2001-04.com.example:disk")?;
/// list.push("TargetAddress", "192.0.2.7:3260,1")?;
/// assert_eq!(
///     list.as_bytes(),
///     b"TargetName=iqn.2001-04.com.example:disk\0TargetAddress=192.0.2.7:3260,1\0"
/// );
/// # Ok::<_, lunette_pdu::text::TextError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TextWriter {
    text: Vec<u8>,
}

impl TextWriter {
    /// An empty list.
    pub const fn new() -> Self {
        Self { text: Vec::new() }
    }

    /// Appends a pair.
    ///
    /// # Errors
    ///
    /// [`TextError`] when a reader would refuse the key or the value; the list stays as it was.
    pub fn push(&mut self, key: &str, value: &str) -> Result<(), TextError> {
        let offset = self.text.len();
        check_key(key, offset)?;
        check_value(value, offset)?;
        for part in [key, "=", value, "\0"] {
            self.text.extend_from_slice(part.as_bytes());
        }
        Ok(())
    }

    /// The bytes of the list so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// The bytes of the list.
    pub fn into_bytes(self) -> Vec<u8> {
        self.text
    }

    /// Bytes in the list so far.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether there is no pair yet.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}
