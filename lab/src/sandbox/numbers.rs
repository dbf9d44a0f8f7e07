//! The conclusions from the measurements: the cost of a PDU, and its parts.

use std::cell::Cell as Counter;

use super::cell::{Caches, Cell, Digest, Work};
use super::measure::CYCLES;
use super::spec::{COUNTED, PDU_LEN, Run};
use crate::experiment::{Results, Spread};

/// The measurements, asked for by what they say.
pub(super) struct Numbers<'a> {
    results: &'a Results,
    /// How often something was asked for that is not there.
    missing: Counter<usize>,
}

/// Cycles of a command in parts.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    pub(super) protocol: f64,
    pub(super) digest: f64,
    /// The copy, and the digest in it when it is interleaved.
    pub(super) copy: f64,
}

impl Parts {
    pub(super) fn total(self) -> f64 {
        self.protocol + self.digest + self.copy
    }

    /// The shares of protocol, digest and copy in percent.
    pub(super) fn percents(self) -> [f64; 3] {
        [self.protocol, self.digest, self.copy].map(|part| part / self.total() * 100.0)
    }
}

impl<'a> Numbers<'a> {
    pub(super) fn new(results: &'a Results) -> Self {
        Self { results, missing: Counter::new(0) }
    }

    /// How often something was asked for that is not there.
    pub(super) fn missing(&self) -> usize {
        self.missing.get()
    }

    fn spread(&self, run: Run, name: &str) -> Option<Spread> {
        let spread = Spread::of_figure(self.results.runs(&run), name);
        if spread.is_none() {
            self.missing.set(self.missing.get() + 1);
        }
        spread
    }

    /// Cycles of a command, over all runs.
    pub(super) fn cycles(&self, cell: Cell) -> Option<Spread> {
        self.spread(Run::Cycles(cell), CYCLES)
    }

    fn median(&self, cell: Cell) -> Option<f64> {
        self.cycles(cell).map(|cycles| cycles.median)
    }

    /// A count of callgrind for a command.
    pub(super) fn count(&self, name: &str, cell: Cell) -> Option<f64> {
        self.spread(Run::Counts(cell), name).map(|count| count.median)
    }

    /// The cycles of a PDU without its header's digest and `part`, which digests (and copies) the data of the command.
    pub(super) fn protocol(&self, work: Work, part: Work, len: usize, caches: Caches) -> Option<f64> {
        let cell = Cell { work, digest: Digest::Shipping, len, caches };
        let data = self.median(Cell { work: part, caches: Caches::Warm, ..cell })?;
        let headers = self.headers(Digest::Shipping)?;
        Some((self.median(cell)? - data) / cell.pdus() as f64 - headers)
    }

    /// The cycles of reads, each from its beginning to its end.
    pub(super) fn read_protocol(&self, len: usize, caches: Caches) -> Option<f64> {
        let state = if caches == Caches::Cold { Caches::ColdState } else { caches };
        Some(self.protocol(Work::DataIn, Work::CopyWithDigest, len, state)? * len.div_ceil(PDU_LEN) as f64)
    }

    /// The rest of a count of callgrind. Misses of the parts depend on the caches, too.
    pub(super) fn protocol_count(&self, name: &str, work: Work, part: Work, len: usize, caches: Caches) -> Option<f64> {
        let cell = Cell { work, digest: COUNTED, len, caches };
        let data = self.count(name, Cell { work: part, ..cell })?;
        let headers = self.count(name, Cell { work: Work::Headers, len: PDU_LEN, ..cell })?;
        Some((self.count(name, cell)? - data) / cell.pdus() as f64 - headers)
    }

    /// Cycles of the digest of one header.
    fn headers(&self, digest: Digest) -> Option<f64> {
        self.median(Cell { work: Work::Headers, digest, len: PDU_LEN, caches: Caches::Warm })
    }

    /// A read of one PDU as it was before the paper: the copy, and then the digest.
    pub(super) fn in_sequence(&self, digest: Digest, len: usize, caches: Caches) -> Option<Parts> {
        let cell = Cell { work: Work::Copy, digest: Digest::Shipping, len, caches };
        let copy = self.median(cell)?;
        let both = self.median(Cell { work: Work::CopyThenDigest, digest, ..cell })?;
        let headers = self.headers(digest)?;
        Some(Parts { protocol: self.read_protocol(len, caches)?, digest: both - copy + headers, copy })
    }

    /// A read of one PDU with the digest in the copy. What the digest adds to the copy alone is its part.
    pub(super) fn interleaved(&self, digest: Digest, len: usize, caches: Caches) -> Option<Parts> {
        let cell = Cell { work: Work::Copy, digest: Digest::Shipping, len, caches };
        let copy = self.median(cell)?;
        let both = self.median(Cell { work: Work::CopyWithDigest, digest, ..cell })?;
        let headers = self.headers(digest)?;
        Some(Parts { protocol: self.read_protocol(len, caches)?, digest: both - copy + headers, copy })
    }

    /// Cycles of the digest of the data of one PDU that is in the cache.
    pub(super) fn digest(&self, digest: Digest, len: usize, caches: Caches) -> Option<f64> {
        let cell = Cell { work: Work::Copy, digest: Digest::Shipping, len, caches };
        Some(self.median(Cell { work: Work::CopyThenDigest, digest, ..cell })? - self.median(cell)?)
    }

    /// Cycles of copy and digest: in sequence, and interleaved.
    pub(super) fn copies(&self, digest: Digest, len: usize, caches: Caches) -> Option<(f64, f64)> {
        let cell = |work| Cell { work, digest, len, caches };
        Some((self.median(cell(Work::CopyThenDigest))?, self.median(cell(Work::CopyWithDigest))?))
    }

    /// The values of a figure of all runs.
    pub(super) fn all(&self, name: &str) -> Option<Spread> {
        Spread::of(self.results.all(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(cells: &[(&str, f64)]) -> Results {
        let line = |(cell, cycles): &(&str, f64)| {
            format!("{{\"cell\": \"lunette-lab sandbox --cell {cell}\", \"figures\": {{\"cycles\": {cycles}}}}}\n")
        };
        Results::parse(&cells.iter().map(line).collect::<String>()).expect("results")
    }

    #[test]
    fn parts_are_what_is_left_without_the_others() {
        let results = numbers(&[
            ("data-in/shipping/8192/cold-state", 2000.0),
            ("copy-with-digest/shipping/8192/warm", 500.0),
            ("headers/shipping/8192/warm", 30.0),
            ("headers/sarwate/8192/warm", 200.0),
            ("copy/shipping/8192/cold", 1000.0),
            ("copy-then-digest/sarwate/8192/cold", 9000.0),
            ("copy-with-digest/sarwate/8192/cold", 8500.0),
        ]);
        let numbers = Numbers::new(&results);
        let parts = |parts: Parts| [parts.protocol, parts.digest, parts.copy].map(f64::round);
        let sequence = numbers.in_sequence(Digest::Sarwate, 8192, Caches::Cold).expect("all is there");
        assert!(parts(sequence).into_iter().eq([1470.0, 8200.0, 1000.0]));
        let interleaved = numbers.interleaved(Digest::Sarwate, 8192, Caches::Cold).expect("all is there");
        assert!((interleaved.total() - 1470.0 - 8700.0).abs() < 1e-6);
        assert_eq!(numbers.missing(), 0);
        assert!(numbers.in_sequence(Digest::Slicing8, 8192, Caches::Cold).is_none());
        assert_eq!(numbers.missing(), 1);
    }
}
