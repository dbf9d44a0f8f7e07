//! The list of slices that one vectored send takes.

use std::io::IoSlice;
use std::ops::ControlFlow;

use arrayvec::ArrayVec;
use lunette_buffer::{FileSlice, PayloadRef};

/// The longest list that one send takes. A PDU needs three slices at most.
pub const MAX_GATHER_SLICES: usize = 256;

/// The most bytes that one send takes.
pub const MAX_GATHER_BYTES: usize = 1 << 20;

/// Collects slices that leave together in one system call.
#[derive(Debug)]
pub struct Gather<'a> {
    slices: ArrayVec<IoSlice<'a>, MAX_GATHER_SLICES>,
    bytes: usize,
    /// Comes behind the slices.
    file: Option<FileSlice>,
}

impl<'a> Gather<'a> {
    /// An empty list. The reactor brings its own; others are for tests of handlers.
    pub fn new() -> Self {
        Self { slices: ArrayVec::new(), bytes: 0, file: None }
    }

    /// Takes everything out.
    pub(crate) fn clear(&mut self) {
        self.slices.clear();
        (self.bytes, self.file) = (0, None);
    }

    /// Appends `bytes`, as far as they fit. `false` when the list is full now; what did not fit is asked for again by
    /// the next [`gather`](crate::Handler::gather).
    #[inline]
    pub fn push(&mut self, bytes: &'a [u8]) -> bool {
        let fitting = &bytes[..bytes.len().min(MAX_GATHER_BYTES - self.bytes)];
        if !fitting.is_empty() && self.file.is_none() && self.slices.try_push(IoSlice::new(fitting)).is_ok() {
            self.bytes += fitting.len();
        }
        !self.is_full()
    }

    /// Appends bytes of a file, as far as they fit; `false` as with [`push`](Self::push): nothing fits behind them.
    pub fn push_file(&mut self, slice: &FileSlice) -> bool {
        let fitting = slice.slice(0..MAX_GATHER_BYTES - self.bytes);
        if !self.is_full() && !fitting.is_empty() {
            self.bytes += fitting.len();
            self.file = Some(fitting);
        }
        !self.is_full()
    }

    /// Appends `pieces` until the list is full.
    #[inline]
    pub fn fill(&mut self, pieces: impl IntoIterator<Item = PayloadRef<'a>>) {
        // The iterator's own loop: nested iterators turn into nested loops.
        let _ = pieces.into_iter().try_for_each(|piece| {
            let room = match piece {
                PayloadRef::Bytes(bytes) => self.push(bytes),
                PayloadRef::File { slice, sent } => self.push_file(&slice.slice(sent..slice.len())),
            };
            if room { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    }

    /// No further byte fits.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.slices.is_full() || self.bytes == MAX_GATHER_BYTES || self.file.is_some()
    }

    /// Nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty() && self.file.is_none()
    }

    /// Sum of the lengths of the slices and of what lies in a file.
    pub fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// The file part behind the slices.
    pub fn file(&self) -> Option<&FileSlice> {
        self.file.as_ref()
    }

    /// The slices, in order; none is empty.
    pub fn slices(&self) -> &[IoSlice<'a>] {
        &self.slices
    }
}

impl Default for Gather<'_> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn takes_no_more_slices_than_the_limit() {
        let mut list = Gather::new();
        for i in 1..MAX_GATHER_SLICES {
            assert!(list.push(b"x"), "slice {i}");
        }
        assert!(!list.push(b"x"));
        assert!(!list.push(b"x"));
        assert_eq!((list.slices().len(), list.len_bytes()), (MAX_GATHER_SLICES, MAX_GATHER_SLICES));
    }

    #[test]
    fn takes_the_head_of_a_slice_that_does_not_fit() {
        let long = vec![0; MAX_GATHER_BYTES];
        let mut list = Gather::new();
        assert!(list.push(b"header"));
        assert!(!list.push(&long));
        assert_eq!(list.len_bytes(), MAX_GATHER_BYTES);
        assert_eq!(list.slices()[1].len(), MAX_GATHER_BYTES - 6);
    }

    #[test]
    fn nothing_fits_behind_a_file() {
        let file = FileSlice::new(File::open("/dev/null").unwrap().into(), 0, 2 * MAX_GATHER_BYTES);
        let mut list = Gather::new();
        assert!(list.push(b"header"));
        assert!(!list.push_file(&file));
        assert!(list.is_full() && !list.push(b"x"));
        assert_eq!((list.len_bytes(), list.slices().len()), (MAX_GATHER_BYTES, 1));
        assert_eq!(list.file().map(FileSlice::len), Some(MAX_GATHER_BYTES - 6));
    }

    #[test]
    fn leaves_out_empty_slices() {
        let mut list = Gather::new();
        assert!(list.push(b""));
        assert!(list.is_empty());
    }
}
