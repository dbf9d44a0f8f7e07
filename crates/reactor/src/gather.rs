//! The list of slices that one vectored send takes.

use std::io::IoSlice;

use arrayvec::ArrayVec;
use lunette_buffer::{FileSlice, Loan, SharedBuffer};

/// The longest list that one send takes. A PDU needs three slices at most.
pub const MAX_GATHER_SLICES: usize = 256;

/// The most bytes that one send takes.
pub const MAX_GATHER_BYTES: usize = 1 << 20;

/// Who has the bytes of a slice; clones of it keep them.
#[derive(Debug, Clone, Copy)]
pub enum Owner<'a> {
    /// A pooled buffer.
    Buffer(&'a SharedBuffer),
    /// Memory that a store has lent.
    Loan(&'a Loan),
}

/// Collects slices that leave together in one system call.
#[derive(Debug)]
pub struct Gather<'a> {
    slices: ArrayVec<IoSlice<'a>, MAX_GATHER_SLICES>,
    /// Who has the bytes of the slice in the same place, when that is known.
    owners: ArrayVec<Option<Owner<'a>>, MAX_GATHER_SLICES>,
    bytes: usize,
    /// Sum of the lengths of the slices that have an owner.
    shared_bytes: usize,
    /// Comes behind the slices.
    file: Option<FileSlice>,
}

impl<'a> Gather<'a> {
    /// An empty list. The reactor brings its own; others are for tests of handlers.
    pub fn new() -> Self {
        Self { slices: ArrayVec::new(), owners: ArrayVec::new(), bytes: 0, shared_bytes: 0, file: None }
    }

    /// Takes everything out.
    pub(crate) fn clear(&mut self) {
        self.slices.clear();
        self.owners.clear();
        (self.bytes, self.shared_bytes, self.file) = (0, 0, None);
    }

    /// Appends `bytes`, as far as they fit. `false` when the list is full now; what did not fit is asked for again by the
    /// next [`gather`](crate::Handler::gather).
    pub fn push(&mut self, bytes: &'a [u8]) -> bool {
        self.append(bytes, None);
        !self.is_full()
    }

    /// Appends the bytes of `buffer` from `start` on, as far as they fit; `false` as with [`push`](Self::push). Who sends them
    /// may clone the buffer, and so keep the bytes longer than they are borrowed.
    ///
    /// # Panics
    ///
    /// When `start` lies behind the end of the buffer.
    pub fn push_shared(&mut self, buffer: &'a SharedBuffer, start: usize) -> bool {
        self.shared_bytes += self.append(&buffer[start..], Some(Owner::Buffer(buffer)));
        !self.is_full()
    }

    /// The same for memory that a store has lent.
    pub fn push_loan(&mut self, loan: &'a Loan, mut start: usize) -> bool {
        for run in loan.runs() {
            let skipped = start.min(run.len());
            start -= skipped;
            self.shared_bytes += self.append(&run[skipped..], Some(Owner::Loan(loan)));
        }
        !self.is_full()
    }

    /// Appends what fits, and gives its length.
    #[inline]
    fn append(&mut self, bytes: &'a [u8], owner: Option<Owner<'a>>) -> usize {
        let fitting = &bytes[..bytes.len().min(MAX_GATHER_BYTES - self.bytes)];
        if fitting.is_empty() || self.file.is_some() || self.slices.try_push(IoSlice::new(fitting)).is_err() {
            return 0;
        }
        self.owners.push(owner);
        self.bytes += fitting.len();
        fitting.len()
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

    /// No further byte fits.
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

    /// How many of these bytes have an owner: see [`parts`](Self::parts).
    pub fn shared_bytes(&self) -> usize {
        self.shared_bytes
    }

    /// What lies in a file, behind the slices.
    pub fn file(&self) -> Option<&FileSlice> {
        self.file.as_ref()
    }

    /// The slices, in order; none is empty.
    pub fn slices(&self) -> &[IoSlice<'a>] {
        &self.slices
    }

    /// The same, each with what its bytes belong to, if it came by [`push_shared`](Self::push_shared) or
    /// [`push_loan`](Self::push_loan).
    pub fn parts(&self) -> impl Iterator<Item = (&IoSlice<'a>, Option<Owner<'a>>)> {
        self.slices.iter().zip(self.owners.iter().copied())
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

    use lunette_buffer::Pool;

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
    fn tells_which_slices_have_an_owner() {
        let pool = Pool::new(8 << 20);
        let long = pool.take(MAX_GATHER_BYTES).unwrap().share();
        let mut list = Gather::new();
        assert!(list.push(b"header"));
        assert!(list.push_shared(&long, MAX_GATHER_BYTES));
        assert!(list.push_shared(&long, MAX_GATHER_BYTES - 10));
        assert!(list.push(b"tail"));
        assert!(!list.push_shared(&long, 1));
        let parts: Vec<_> = list.parts().map(|(slice, owner)| (slice.len(), owner.is_some())).collect();
        assert_eq!(parts, [(6, false), (10, true), (4, false), (MAX_GATHER_BYTES - 20, true)]);
        assert_eq!((list.len_bytes(), list.shared_bytes()), (MAX_GATHER_BYTES, MAX_GATHER_BYTES - 10));
        let kept = list
            .parts()
            .find_map(|(_, owner)| if let Some(Owner::Buffer(buffer)) = owner { Some(buffer.clone()) } else { None });
        let kept = kept.unwrap();
        drop(list);
        drop(long);
        assert_eq!(kept.len(), MAX_GATHER_BYTES, "it outlives who has lent it");
    }

    #[test]
    fn leaves_out_empty_slices() {
        let mut list = Gather::new();
        assert!(list.push(b""));
        assert!(list.is_empty());
    }
}
