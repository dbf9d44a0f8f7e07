//! The benchmark behind `lunette crc --bench`: this crate's kernels, `memcpy`, and two other crates.
//!
//! A shared machine is noisy, so every figure is the median of many samples, and the contestants of a length take turns
//! in each round, so that a disturbance affects them all. Compare figures of one run only, and as ratios; [`ratios`]
//! gives those that this project holds itself to.
//!
//! *Warm* means that a contestant's own calls just before the sample had the same source and destination. *Cold* means
//! that each call has a source and a destination that were last used far more than a cache's size of bytes ago, in an
//! order that a prefetcher does not guess.

mod contestants;
mod contests;
mod ratios;
mod sampling;

use std::fmt::Write as _;

use contestants::Contestant;
use sampling::Arena;

pub use contests::{Contest, TOLERATED_LEAD, contests};
pub use ratios::{Ratio, ratios};

/// The lengths, in bytes, of the table.
pub const SIZES: [usize; 7] = [48, 512, 4 << 10, 8 << 10, 64 << 10, 1 << 20, 64 << 20];

/// Measurements of the paper on a 1.7 GHz Pentium M, in cycles per byte (FAST '05, sections 3, 5.2 and 6.1; the copy
/// from and to memory).
pub const PAPER_CYCLES_PER_BYTE: [(&str, f64); 3] = [("sarwate", 6.55), ("slicing8", 2.15), ("copy", 2.15)];

/// The object and the duration of a measurement.
#[derive(Debug, Clone)]
pub struct Options {
    /// The lengths of messages in bytes.
    pub sizes: Vec<usize>,
    /// Rounds for lengths up to 1 MiB; longer messages get a third.
    pub rounds: usize,
    /// The least number of bytes that a sample moves, by repeating its call.
    pub bytes_per_sample: usize,
    /// Bytes of the memory that cold sources are taken from, and as many for destinations; several times the largest
    /// cache.
    pub cold_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { sizes: SIZES.to_vec(), rounds: 31, bytes_per_sample: 4 << 20, cold_bytes: 256 << 20 }
    }
}

/// One figure, a row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// `digest`, `memcpy`, `memcpy+digest` or `copy`, the last fused.
    pub op: &'static str,
    /// A kernel's name, `auto` for this crate's choice, `crc-fast` or `crc32c` for those crates, `memcpy`.
    pub kernel: &'static str,
    /// The message's length in bytes.
    pub bytes: usize,
    /// `warm` or `cold`.
    pub cache: &'static str,
    /// The median speed, in billions of bytes a second.
    pub gb_per_s: f64,
}

impl Row {
    /// The row as a JSON object.
    pub fn to_json(&self) -> String {
        let Self { op, kernel, bytes, cache, gb_per_s } = self;
        let mut json = String::new();
        // Writing to a string cannot fail; the names need no escapes.
        let _ = write!(
            json,
            r#"{{"op":"{op}","kernel":"{kernel}","bytes":{bytes},"cache":"{cache}","gb_per_s":{gb_per_s:.3}}}"#
        );
        json
    }
}

/// Measures everything that this CPU can run. With the default options this takes about a minute and 600 MB of memory.
///
/// The contestant `auto` is the kernel forced by [`force`](crate::force) or by the environment, if there is one.
#[expect(clippy::cast_precision_loss, reason = "lengths are far below 2^52")]
pub fn run(options: &Options) -> Vec<Row> {
    let mut arena = Arena::new(options);
    let mut rows = Vec::new();
    for bytes in options.sizes.iter().copied() {
        let contestants = Contestant::all();
        for cache in ["warm", "cold"] {
            let medians = arena.medians(&contestants, bytes, cache == "cold", options);
            rows.extend(contestants.iter().zip(medians).filter_map(|(contestant, seconds)| {
                let gb_per_s = bytes as f64 / seconds? / 1e9;
                Some(Row { op: contestant.op, kernel: contestant.kernel, bytes, cache, gb_per_s })
            }));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_has_a_row_for_each_contestant() {
        let options = Options { sizes: vec![512], rounds: 1, bytes_per_sample: 512, cold_bytes: 1 << 16 };
        let rows = run(&options);
        for (op, kernel) in [("digest", "bitwise"), ("digest", "auto"), ("digest", "crc-fast"), ("digest", "crc32c")] {
            let its_own = |row: &&Row| row.op == op && row.kernel == kernel;
            assert_eq!(rows.iter().filter(its_own).map(|row| row.cache).collect::<Vec<_>>(), ["warm", "cold"]);
        }
        for op in ["memcpy", "memcpy+digest", "copy"] {
            assert!(rows.iter().any(|row| row.op == op));
        }
        assert!(rows.iter().all(|row| row.bytes == 512 && row.gb_per_s > 0.0));
    }

    #[test]
    fn json_is_as_documented() {
        let row = Row { op: "memcpy+digest", kernel: "auto", bytes: 48, cache: "cold", gb_per_s: 1.25 };
        let json = r#"{"op":"memcpy+digest","kernel":"auto","bytes":48,"cache":"cold","gb_per_s":1.250}"#;
        assert_eq!(row.to_json(), json);
    }
}
