//! Bytes on their way between two reactors.

use std::ops::Range;

use lunette_buffer::{FileSlice, Loan, SharedBuffer};

use super::{BLOCK_BYTES, MAX_SPARES, MIN_SHARED_BYTES};
use crate::{Gather, Owner};

/// What one receive has brought.
pub(crate) struct Block {
    bytes: Box<[u8]>,
    len: usize,
    /// The carrier waits for it.
    pub(super) is_awaited: bool,
}

impl Default for Block {
    fn default() -> Self {
        Self { bytes: vec![0; BLOCK_BYTES].into_boxed_slice(), len: 0, is_awaited: false }
    }
}

impl Block {
    /// Where a receive puts its bytes.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The first `len` bytes of the room were received.
    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len.min(BLOCK_BYTES);
    }

    /// What was received.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What one [`Gather`] had to send, without the borrows: headers and short data are copied, longer data is held by other handles
/// on its buffers, and on what stores have lent.
#[derive(Default)]
pub(crate) struct Parcel {
    copied: Vec<u8>,
    pieces: Vec<Piece>,
    len: usize,
}

enum Piece {
    /// These of the copied bytes.
    Copied(Range<usize>),
    Shared(SharedBuffer),
    Lent(Loan),
    File(FileSlice),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Copied(range) => range.len(),
            Self::Shared(buffer) => buffer.len(),
            Self::Lent(loan) => loan.len(),
            Self::File(slice) => slice.len(),
        }
    }
}

impl Parcel {
    /// Takes in what a handler has gathered.
    pub(super) fn fill(&mut self, list: &Gather<'_>) {
        for (slice, owner) in list.parts() {
            match owner.filter(|_| slice.len() >= MIN_SHARED_BYTES) {
                Some(Owner::Buffer(buffer)) => {
                    let start = slice.as_ptr().addr() - buffer.as_ptr().addr();
                    self.pieces.push(Piece::Shared(buffer.slice(start..start + slice.len())));
                }
                Some(Owner::Loan(loan)) => {
                    let start = place_in(loan, slice);
                    self.pieces.push(Piece::Lent(loan.slice(start..start + slice.len())));
                }
                None => self.copy(slice),
            }
        }
        self.pieces.extend(list.file().cloned().map(Piece::File));
        self.len = list.len_bytes();
    }

    fn copy(&mut self, bytes: &[u8]) {
        let start = self.copied.len();
        self.copied.extend_from_slice(bytes);
        let end = self.copied.len();
        match self.pieces.last_mut() {
            // Nothing else came in between.
            Some(Piece::Copied(last)) => last.end = end,
            _ => self.pieces.push(Piece::Copied(start..end)),
        }
    }

    /// Bytes to send, also when they have left.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Lets go of the bytes.
    pub(super) fn empty(&mut self) {
        self.copied.clear();
        self.pieces.clear();
    }

    /// Appends what is behind the first `skip` bytes to `list`; `false` when that is full.
    pub(super) fn gather<'a>(&'a self, mut skip: usize, list: &mut Gather<'a>) -> bool {
        for piece in &self.pieces {
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            let start = std::mem::take(&mut skip);
            let more = match piece {
                Piece::Copied(range) => list.push(&self.copied[range.start + start..range.end]),
                Piece::Shared(buffer) => list.push_shared(buffer, start),
                Piece::Lent(loan) => list.push_loan(loan, start),
                Piece::File(slice) => list.push_file(&slice.slice(start..slice.len())),
            };
            if !more {
                return false;
            }
        }
        true
    }
}

/// Where `slice`, a part of one of its runs, stands in `loan`.
fn place_in(loan: &Loan, slice: &[u8]) -> usize {
    let mut before = 0;
    for run in loan.runs() {
        let (run_range, range) = (run.as_ptr_range(), slice.as_ptr_range());
        if run_range.start <= range.start && range.end <= run_range.end {
            return before + (range.start.addr() - run_range.start.addr());
        }
        before += run.len();
    }
    unreachable!("a slice of a loan lies in one of its runs")
}

/// Empty ones, to be used again.
pub(crate) struct Spares<T>(Vec<T>);

impl<T> Default for Spares<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default> Spares<T> {
    pub(super) fn take(&mut self) -> T {
        self.0.pop().unwrap_or_default()
    }

    pub(super) fn keep(&mut self, spare: T) {
        if self.0.len() < MAX_SPARES {
            self.0.push(spare);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use lunette_buffer::{Pool, Run};

    use super::*;

    #[test]
    fn a_parcel_says_the_same_as_the_list_from_any_byte_on() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.take(3 * MIN_SHARED_BYTES).unwrap();
        buffer.iter_mut().zip((0..=u8::MAX).cycle()).for_each(|(byte, value)| *byte = value);
        let buffer = buffer.share();
        let short = buffer.slice(7..7 + MIN_SHARED_BYTES - 1);
        let mut list = Gather::new();
        list.push(b"header");
        list.push_shared(&buffer, MIN_SHARED_BYTES);
        list.push(b"digest");
        list.push_shared(&short, 0);
        let mut parcel = Parcel::default();
        parcel.fill(&list);
        let wanted: Vec<u8> = list.slices().iter().flat_map(|slice| slice.to_vec()).collect();
        assert_eq!((parcel.len(), parcel.pieces.len()), (wanted.len(), 3));
        for skip in 0..=wanted.len() {
            let mut rest = Gather::new();
            assert!(parcel.gather(skip, &mut rest));
            let rest: Vec<u8> = rest.slices().iter().flat_map(|slice| slice.to_vec()).collect();
            assert_eq!(rest, wanted[skip..], "from {skip}");
        }
        drop(list);
        drop((buffer, short));
        assert!(pool.used_bytes() > 0);
        parcel.empty();
        assert_eq!(pool.used_bytes(), 0);
    }

    /// `len` bytes in two runs, and the pool that counts them.
    fn lent(len: usize) -> (Pool, Loan, [Arc<Vec<u8>>; 2]) {
        let pool = Pool::new(1 << 20);
        let memory =
            [1_u8, 2].map(|fill| Arc::new((0..len).map(|at| (at as u8).wrapping_mul(fill)).collect::<Vec<u8>>()));
        let mut buffer = pool.reserve(len).unwrap();
        let runs = [(0, 100..len / 2), (1, 0..len / 2 + 100)];
        assert!(buffer.lend(runs.map(|(at, range)| Run { memory: memory[at].clone(), range }).into_iter()));
        (pool, buffer.into_loan().unwrap(), memory)
    }

    #[test]
    fn what_a_store_has_lent_is_not_copied() {
        let (pool, loan, memory) = lent(4 * MIN_SHARED_BYTES);
        let wanted: Vec<u8> = loan.runs().flatten().copied().collect();
        let mut list = Gather::new();
        assert!(list.push_loan(&loan, 3));
        let mut parcel = Parcel::default();
        parcel.fill(&list);
        assert!(parcel.copied.is_empty());
        drop(list);
        drop(loan);
        for skip in 0..=wanted.len() - 3 {
            let mut rest = Gather::new();
            assert!(parcel.gather(skip, &mut rest));
            let sent = rest.slices().iter().flat_map(|slice| slice.iter());
            assert!(sent.copied().eq(wanted[3 + skip..].iter().copied()), "from {skip}");
        }
        assert_eq!(memory.each_ref().map(Arc::strong_count), [2, 2]);
        parcel.empty();
        assert_eq!((pool.used_bytes(), memory.each_ref().map(Arc::strong_count)), (0, [1, 1]));
    }

    #[test]
    fn a_file_comes_last_and_is_cut_where_sending_stopped() {
        let file = FileSlice::new(File::open("/dev/null").unwrap().into(), 100, 1000);
        let mut list = Gather::new();
        list.push(b"header");
        list.push_file(&file);
        let mut parcel = Parcel::default();
        parcel.fill(&list);
        assert_eq!(parcel.len(), 1006);
        let mut rest = Gather::new();
        assert!(!parcel.gather(16, &mut rest));
        assert!(rest.slices().is_empty());
        let rest = rest.file().unwrap();
        assert_eq!((rest.offset(), rest.len()), (110, 990));
    }
}
