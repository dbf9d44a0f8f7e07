//! Ranges of bytes on the medium.

/// A run of bytes that lies within the medium, in whole blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Offset of the first byte.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

impl Extent {
    /// Whether the two extents have a byte in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        // Both end within a store, so neither sum overflows.
        self.offset < other.offset + other.len && other.offset < self.offset + self.len
    }

    /// The smallest extent that contains both.
    pub(crate) fn hull(self, other: Self) -> Self {
        let offset = self.offset.min(other.offset);
        Self { offset, len: (self.offset + self.len).max(other.offset + other.len) - offset }
    }
}
