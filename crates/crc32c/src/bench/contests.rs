//! Whether the kernel that the crate chooses is the fastest of its own.

use super::Row;
use crate::{Kernel, choices};

/// A choice is right as long as no other kernel of this crate is faster than this.
pub const TOLERATED_LEAD: f64 = 1.05;

/// The choice for one operation, length and cache beside the fastest kernel for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Contest {
    /// `digest` or `copy`.
    pub op: &'static str,
    /// The message's length in bytes.
    pub bytes: usize,
    /// `warm` or `cold`.
    pub cache: &'static str,
    /// The kernel that `auto` uses.
    pub chosen: &'static str,
    /// The fastest kernel that this CPU can run.
    pub fastest: &'static str,
    /// The speed of the fastest kernel ÷ that of the chosen one, in its own row or in the one of `auto`, whichever is
    /// faster: the first does not have the price of choosing, the second copies past the cache. May be below 1.
    pub lead: f64,
}

/// One contest for each operation, length and cache in `rows`, which must be of this process: they are compared with
/// the choices in force.
pub fn contests(rows: &[Row]) -> Vec<Contest> {
    let own = |row: &&Row| Kernel::named(row.kernel).is_ok();
    rows.iter()
        .filter(|row| row.kernel == "auto" && ["digest", "copy"].contains(&row.op))
        .filter_map(|auto| {
            let same_contest = |row: &&Row| (row.op, row.bytes, row.cache) == (auto.op, auto.bytes, auto.cache);
            let chosen = choices().filter(|choice| choice.from <= auto.bytes).last()?.kernel.name();
            let own_rows = || rows.iter().filter(own).filter(same_contest);
            let of_chosen = own_rows().find(|row| row.kernel == chosen);
            let fastest = own_rows().max_by(|a, b| a.gb_per_s.total_cmp(&b.gb_per_s))?;
            let speed = of_chosen.map_or(auto.gb_per_s, |row| row.gb_per_s.max(auto.gb_per_s));
            Some(Contest {
                op: auto.op,
                bytes: auto.bytes,
                cache: auto.cache,
                chosen,
                fastest: fastest.kernel,
                lead: fastest.gb_per_s / speed,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_kernel_of_the_same_contest_is_found() {
        let row = |op, kernel, bytes, gb_per_s| Row { op, kernel, bytes, cache: "warm", gb_per_s };
        let rows = [
            row("digest", "auto", 48, 2.0),
            row("digest", "sarwate", 48, 1.0),
            row("digest", "slicing8", 48, 3.0),
            // Another crate, another length and another operation take no part.
            row("digest", "crc-fast", 48, 9.0),
            row("digest", "slicing16", 512, 9.0),
            row("copy", "slicing16", 48, 9.0),
            row("memcpy+digest", "auto", 48, 1.0),
        ];
        let found = contests(&rows);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].op, found[0].bytes, found[0].fastest), ("digest", 48, "slicing8"));
        assert!((found[0].lead - 1.5).abs() < 1e-9);
        let chosen = choices().next().unwrap();
        assert_eq!(found[0].chosen, chosen.kernel.name());
    }
}
