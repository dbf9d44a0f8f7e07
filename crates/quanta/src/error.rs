//! Why bytes were refused.

/// A quantum that cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("quantum {position}: {reason}")]
pub struct OpenError {
    /// The position of the quantum.
    pub position: u64,
    /// The check that failed.
    pub reason: Reason,
}

/// The check that a quantum failed. They are made in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The CRC is not that of the bytes at this position.
    #[error("damaged, or not the one that was written here (wrong CRC); repair it from parity, a copy or a backup")]
    Damaged,
    /// The quantum is all zeroes, in a volume where each was sealed.
    #[error("erased: this volume has no quanta that were never written; restore it from a copy or a backup")]
    Hole,
    /// No key of the quantum's epoch is known.
    #[error("sealed with the key of epoch {0}, which is not at hand; fetch the keys of the volume again")]
    UnknownEpoch(u32),
    /// The tag does not fit: bytes, slot, position, volume or key are not those with which it was sealed.
    #[error("not authentic (wrong tag): altered, moved or taken from another volume, or the key is not the volume's")]
    NotAuthentic,
    /// The quantum is authentic, and older than its reader knows it to have been, or erased since. Only a reader with
    /// an anchor can tell.
    #[error("older than the anchor has seen it, or erased since (rolled back); restore it from a copy or a backup")]
    RolledBack,
}

/// A header that cannot be read or trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The block does not begin as a header does.
    #[error("there is no header of a volume of quanta here; format the disk, or check which disk it is")]
    NoHeader,
    /// The header is of another version of the format.
    #[error("the header has format version {0}, and this program knows version 1; use a newer one")]
    FormatVersion(u16),
    /// The CRC does not fit.
    #[error("the header is damaged (wrong CRC); the other copy may be whole")]
    Damaged,
    /// A field has a value that no writer gives it.
    #[error(
        "the field {field} of the header is {value}, which is not possible; the header was not written by a program that knows the format"
    )]
    Field {
        /// The field.
        field: &'static str,
        /// The value of the field.
        value: u64,
    },
    /// No key of the header's epoch is known.
    #[error("the header is sealed with the key of epoch {0}, which is not at hand; fetch the keys of the volume again")]
    UnknownEpoch(u32),
    /// The tag does not fit.
    #[error("the header is not authentic (wrong tag): it was altered, or the key is not the volume's")]
    NotAuthentic,
}
