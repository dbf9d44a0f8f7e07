//! The ratios that this crate is held to.

use super::Row;
use crate::Features;

/// A ratio of two rows of one run, with its goals.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    /// The names of numerator and denominator.
    pub name: &'static str,
    /// The message's length in bytes.
    pub bytes: usize,
    /// `warm` or `cold`.
    pub cache: &'static str,
    /// The measured ratio.
    pub value: f64,
    /// The ratio that must be reached on this tier of CPUs.
    pub solid: f64,
    /// The ratio that should be reached.
    pub aim: f64,
}

/// A contestant: operation and kernel.
type Who = (&'static str, &'static str);

/// One line of the table of goals.
struct Goal {
    name: &'static str,
    above: Who,
    below: Who,
    cache: &'static str,
    /// Length, solid, aim.
    at: &'static [(usize, f64, f64)],
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const SLICING: Goal = Goal {
    name: "slicing8 / sarwate",
    above: ("digest", "slicing8"),
    below: ("digest", "sarwate"),
    cache: "warm",
    at: &[(8 * KIB, 3.0, 3.4)],
};

/// The goals on a machine with AVX-512 and VPCLMULQDQ.
const WIDE: [Goal; 7] = [
    SLICING,
    Goal {
        name: "auto / crc-fast",
        above: ("digest", "auto"),
        below: ("digest", "crc-fast"),
        cache: "warm",
        at: &[(48, 1.0, 1.5), (512, 1.0, 1.3), (4 * KIB, 1.0, 1.1), (MIB, 1.0, 1.02)],
    },
    Goal {
        name: "copy / memcpy",
        above: ("copy", "auto"),
        below: ("memcpy", "memcpy"),
        cache: "warm",
        at: &[(4 * KIB, 0.50, 0.60), (64 * KIB, 0.90, 0.97), (MIB, 0.93, 0.97), (64 * MIB, 0.93, 0.98)],
    },
    Goal {
        name: "copy / memcpy+digest",
        above: ("copy", "auto"),
        below: ("memcpy+digest", "auto"),
        cache: "warm",
        at: &[(4 * KIB, 1.15, 1.25), (64 * KIB, 1.15, 1.25), (MIB, 1.15, 1.2)],
    },
    Goal {
        name: "copy / memcpy+digest",
        above: ("copy", "auto"),
        below: ("memcpy+digest", "auto"),
        cache: "cold",
        at: &[(64 * MIB, 1.15, 1.45)],
    },
    Goal {
        name: "vpclmul256 / pclmul+crc32q",
        above: ("digest", "vpclmul256"),
        below: ("digest", "pclmul+crc32q"),
        cache: "warm",
        at: &[(4 * KIB, 1.5, 1.9)],
    },
    Goal {
        name: "vpclmul256 / crc32q+pclmul",
        above: ("digest", "vpclmul256"),
        below: ("digest", "crc32q+pclmul"),
        cache: "warm",
        at: &[(4 * KIB, 1.0, 1.2)],
    },
];

/// The goals on a machine without VPCLMULQDQ. The other crates are not in them: `LUNETTE_CPU` hides nothing from these.
const NARROW: [Goal; 4] = [
    SLICING,
    Goal {
        name: "copy / memcpy",
        above: ("copy", "auto"),
        below: ("memcpy", "memcpy"),
        cache: "warm",
        at: &[(64 * KIB, 0.85, 0.95), (MIB, 0.85, 0.95), (64 * MIB, 0.85, 0.98)],
    },
    Goal {
        name: "copy / memcpy+digest",
        above: ("copy", "auto"),
        below: ("memcpy+digest", "auto"),
        cache: "warm",
        at: &[(4 * KIB, 1.1, 1.25), (8 * KIB, 1.1, 1.25), (64 * KIB, 1.1, 1.25), (MIB, 1.1, 1.2), (64 * MIB, 1.1, 1.2)],
    },
    Goal {
        name: "copy / memcpy+digest",
        above: ("copy", "auto"),
        below: ("memcpy+digest", "auto"),
        cache: "cold",
        at: &[(4 * KIB, 1.1, 1.25), (64 * KIB, 1.1, 1.25), (MIB, 1.1, 1.2), (64 * MIB, 1.1, 1.2)],
    },
];

/// The ratios that this crate is held to, of those that can be formed from `rows`.
pub fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let figure = |(op, kernel): Who, bytes, cache| {
        rows.iter()
            .find(|row| row.op == op && row.kernel == kernel && row.bytes == bytes && row.cache == cache)
            .map(|row| row.gb_per_s)
    };
    let wide = Features::VPCLMULQDQ.without(Features::of_this_cpu()).is_none();
    let goals = if wide { &WIDE[..] } else { &NARROW[..] };
    let mut ratios = Vec::new();
    for &Goal { name, above, below, cache, at } in goals {
        ratios.extend(at.iter().filter_map(|(bytes, solid, aim)| {
            let value = figure(above, *bytes, cache)? / figure(below, *bytes, cache)?;
            Some(Ratio { name, bytes: *bytes, cache, value, solid: *solid, aim: *aim })
        }));
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_needs_both_rows() {
        let row = |op, kernel, gb_per_s| Row { op, kernel, bytes: 8192, cache: "warm", gb_per_s };
        let slicing = row("digest", "slicing8", 2.1);
        assert_eq!(ratios(std::slice::from_ref(&slicing)), []);
        let found = ratios(&[slicing, row("digest", "sarwate", 0.5)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "slicing8 / sarwate");
        assert!((found[0].value - 4.2).abs() < 1e-9);
    }
}
