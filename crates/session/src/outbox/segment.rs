//! Where the bytes lie that are to be sent.

use std::ops::Range;

use lunette_buffer::{FileSlice, Loan, SharedBuffer};

/// The data segment of a PDU that waits to be sent.
#[derive(Clone)]
pub(crate) enum Segment {
    Empty,
    /// Text, sense data, an echo: short and made for this PDU.
    Owned(Box<[u8]>),
    /// A piece of a pooled buffer.
    Shared(SharedBuffer),
    /// Bytes in a store's memory; in the queue, a run of them.
    Loan(Loan),
    /// A piece of a file, where there are no digests and no markers.
    File(FileSlice),
}

/// Something to send.
#[derive(Debug, Clone, Copy)]
pub enum Piece<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// Bytes of a file.
    File {
        /// Where they are.
        slice: &'a FileSlice,
        /// So many of them, from the first on, have been sent.
        sent: usize,
    },
}

impl Piece<'_> {
    /// How many bytes, sent or not.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File { slice, .. } => slice.len(),
        }
    }

    /// What is left when the first `sent` bytes, not all, have been sent of a whole one.
    pub(super) fn after(self, sent: usize) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(&bytes[sent..]),
            Self::File { slice, .. } => Self::File { slice, sent },
        }
    }
}

impl Segment {
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Owned(bytes.into_boxed_slice()) }
    }

    /// Bytes `range` of it. Those of a pooled buffer and of a store are not copied.
    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        match self {
            Self::Empty => Self::Empty,
            Self::Owned(bytes) => Self::Owned(bytes[range].into()),
            Self::Shared(bytes) => Self::Shared(bytes.slice(range)),
            Self::Loan(loan) => Self::Loan(loan.slice(range)),
            Self::File(file) => Self::File(file.slice(range)),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::File(file) => file.len(),
            Self::Loan(loan) => loan.len(),
            _ => self.bytes().len(),
        }
    }

    /// Empty for what is in a file; the first run of a loan.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Empty | Self::File(_) => &[],
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
            Self::Loan(loan) => loan.runs().next().unwrap_or_default(),
        }
    }

    /// Its first run and what comes behind, when it lies in several places.
    pub(super) fn split_run(&self) -> Option<(Self, Self)> {
        let Self::Loan(loan) = self else { return None };
        let at = self.bytes().len();
        (at < loan.len()).then(|| (self.slice(0..at), self.slice(at..loan.len())))
    }

    pub(crate) fn owned_len(&self) -> usize {
        if let Self::Owned(bytes) = self { bytes.len() } else { 0 }
    }
}
