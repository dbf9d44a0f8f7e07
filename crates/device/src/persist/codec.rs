//! The encoding of saved values: big-endian numbers, and byte strings after their length.

/// Reads big-endian numbers and texts from a saved value.
pub(crate) struct ValueReader<'a>(pub(crate) &'a [u8]);

impl<'a> ValueReader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// A byte string after its two-byte length.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = u16::from_be_bytes(self.take()?);
        self.slice(usize::from(len))
    }

    /// The next `len` bytes.
    pub(crate) fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

/// Appends a byte string for [`ValueReader::bytes`]. It is cut at 65,535 bytes, which is more than any saved value has.
pub(crate) fn put_bytes(value: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
    value.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    value.extend_from_slice(bytes);
}
