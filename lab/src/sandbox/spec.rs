//! The measurements that a campaign makes.

use std::fmt;

use super::Size;
use super::cell::{Caches, Cell, Digest, Work};

/// The digest of counted cells: valgrind shows programs a CPU without AVX-512, so what ships is another one there. What
/// is left for the protocol does not depend on it.
pub(super) const COUNTED: Digest = Digest::Crc32q;
/// The length of a PDU that everything is compared at.
pub(super) const PDU_LEN: usize = 8 << 10;
/// The longest command.
pub(super) const LONGEST: usize = 64 << 10;

/// How a cell is measured. Its text is the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Run {
    Cycles(Cell),
    Counts(Cell),
}

impl Run {
    /// The cell that it measures.
    pub(super) fn cell(&self) -> &Cell {
        match self {
            Self::Cycles(cell) | Self::Counts(cell) => cell,
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycles(cell) => write!(f, "lunette-lab sandbox --cell {cell}"),
            Self::Counts(cell) => write!(f, "lunette-lab sandbox --count --cell {cell}"),
        }
    }
}

impl Size {
    /// Reads of one PDU.
    pub(super) fn short_lens(self) -> &'static [usize] {
        match self {
            Self::Full => &[512, 1024, 2048, 4096, PDU_LEN],
            Self::Quick | Self::Smallest => &[512, PDU_LEN],
        }
    }

    /// Reads of whole PDUs.
    pub(super) fn long_lens(self) -> &'static [usize] {
        match self {
            Self::Full => &[PDU_LEN, 2 * PDU_LEN, 4 * PDU_LEN, LONGEST],
            Self::Quick | Self::Smallest => &[PDU_LEN, LONGEST],
        }
    }

    /// How often each cell is measured in cycles. Counts are the same each time.
    pub(super) fn runs(self) -> usize {
        match self {
            Self::Full => 11,
            Self::Quick => 3,
            Self::Smallest => 1,
        }
    }
}

/// The lengths of Data-Out, and of what the target sends and receives.
pub(super) const OTHER_LENS: [usize; 3] = [512, PDU_LEN, LONGEST];
/// Where the state is, when only the protocol's cost is looked at.
pub(super) const STATES: [Caches; 2] = [Caches::ColdState, Caches::Warm];
/// Work other than that on Data-In, with the part that touches its data.
pub(super) const OTHERS: [(Work, Work); 4] = [
    (Work::Solicited, Work::Digest),
    (Work::Unsolicited, Work::Digest),
    (Work::TargetDataOut, Work::CopyWithDigest),
    (Work::TargetDataIn, Work::Digest),
];
/// Reads in other orders.
pub(super) const ORDERS: [Work; 3] = [Work::DataIn, Work::DataInReversed, Work::DataInShuffled];

/// All measurements of a campaign, each once.
pub(super) fn runs(size: Size) -> Vec<Run> {
    let mut cells = parts(size);
    cells.extend(data_in(size));
    cells.extend(others(Digest::Shipping));
    let mut runs: Vec<Run> = cells.into_iter().map(Run::Cycles).collect();
    runs.extend(counted(size).into_iter().map(Run::Counts));
    let mut seen = std::collections::HashSet::new();
    runs.retain(|run| seen.insert(*run));
    runs
}

/// Copies and digests by themselves.
fn parts(size: Size) -> Vec<Cell> {
    let mut cells = Vec::new();
    for len in size.short_lens().iter().copied() {
        for caches in [Caches::Cold, Caches::Warm] {
            let cell = |work, digest| Cell { work, digest, len, caches };
            cells.push(cell(Work::Copy, Digest::Shipping));
            for (digest, _) in Digest::ALL {
                cells.extend([Work::CopyThenDigest, Work::CopyWithDigest].map(|work| cell(work, digest)));
            }
        }
    }
    for (digest, _) in Digest::ALL {
        let cell = |work| Cell { work, digest, len: PDU_LEN, caches: Caches::Warm };
        cells.extend([Work::Headers, Work::Digest].map(cell));
    }
    cells
}

/// The cells of the initiator's receive path, and the parts that are no protocol.
fn data_in(size: Size) -> Vec<Cell> {
    let mut cells = Vec::new();
    for len in size.short_lens().iter().chain(size.long_lens()).copied() {
        let cell = |work, caches| Cell { work, digest: Digest::Shipping, len, caches };
        cells.push(cell(Work::CopyWithDigest, Caches::Warm));
        cells.extend([Caches::Cold, Caches::ColdState, Caches::Warm].map(|caches| cell(Work::DataIn, caches)));
    }
    for (digest, _) in Digest::ALL {
        let cell = |caches| Cell { work: Work::DataIn, digest, len: PDU_LEN, caches };
        cells.extend([Caches::Cold, Caches::Warm].map(cell));
    }
    cells.extend(unusual(Digest::Shipping));
    cells
}

/// Markers and other orders.
fn unusual(digest: Digest) -> Vec<Cell> {
    let mut cells = Vec::new();
    for caches in STATES {
        let cell = |work, len| Cell { work, digest, len, caches };
        cells.extend([Work::DataIn, Work::DataInMarked].map(|work| cell(work, PDU_LEN)));
        cells.extend(ORDERS.map(|work| cell(work, LONGEST)));
        cells.push(cell(Work::CopyWithDigest, LONGEST));
    }
    cells
}

/// Data-Out, and the target's side.
fn others(digest: Digest) -> Vec<Cell> {
    let mut cells = Vec::new();
    for len in OTHER_LENS {
        for (work, part) in OTHERS {
            cells.push(Cell { work: part, digest, len, caches: Caches::Warm });
            cells.extend(STATES.map(|caches| Cell { work, digest, len, caches }));
        }
    }
    cells
}

/// The cells that callgrind counts.
fn counted(size: Size) -> Vec<Cell> {
    let mut cells = Vec::new();
    let lens: &[usize] = if size == Size::Smallest { &[] } else { size.short_lens() };
    for len in lens.iter().chain(size.long_lens()).copied() {
        for caches in STATES {
            let cell = |work| Cell { work, digest: COUNTED, len, caches };
            cells.extend([Work::DataIn, Work::CopyWithDigest].map(cell));
        }
    }
    for digest in [Digest::Sarwate, Digest::Slicing8, Digest::Slicing16, COUNTED] {
        let cell = |work| Cell { work, digest, len: PDU_LEN, caches: Caches::Warm };
        cells.extend([Work::Digest, Work::CopyWithDigest, Work::CopyThenDigest, Work::Headers].map(cell));
    }
    cells.push(Cell { work: Work::Headers, digest: COUNTED, len: PDU_LEN, caches: Caches::ColdState });
    let warm = |cell: &Cell| cell.caches == Caches::Warm;
    cells.extend(unusual(COUNTED).into_iter().filter(warm));
    cells.extend(others(COUNTED).into_iter().filter(warm));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_campaigns_are_parts_of_the_full_one() {
        let full = runs(Size::Full);
        for size in [Size::Quick, Size::Smallest] {
            let smaller = runs(size);
            assert!(smaller.len() < full.len());
            assert!(smaller.iter().all(|run| full.contains(run)), "{size:?}");
        }
    }

    #[test]
    fn no_measurement_is_made_twice() {
        let mut runs: Vec<String> = runs(Size::Full).iter().map(ToString::to_string).collect();
        let all = runs.len();
        runs.sort();
        runs.dedup();
        assert_eq!(runs.len(), all);
    }
}
