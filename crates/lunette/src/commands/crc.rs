//! `lunette crc`: which CRC32C kernels this CPU runs, and how fast.

use std::collections::BTreeSet;

use clap::Args;
use lunette_crc32c::bench::{self, Options, PAPER_CYCLES_PER_BYTE, Row};
use lunette_crc32c::{Features, Kernel, Tier, choices, requested, requested_tier};

use crate::failure::Failure;
use crate::output;

const AFTER_HELP: &str = "\
LUNETTE_CRC=NAME makes one kernel serve every length, here and in all other commands. LUNETTE_CPU=TIER hides what this CPU has beyond a tier
of older CPUs; the first lines of the output name the tiers.

A figure is the median of many samples in which all contestants take turns. Compare figures of one run only.
JSON: one row a line, {\"op\":\"digest|memcpy|memcpy+digest|copy\",\"kernel\":\"...\",\"bytes\":N,\"cache\":\"warm|cold\",\"gb_per_s\":x}";

/// Show the CRC32C kernels of this CPU, and measure them.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Measure digest, memcpy, memcpy then digest, and the fused copy; takes about a minute
    #[arg(long)]
    bench: bool,
    /// Print the figures as JSON rows
    #[arg(long, requires = "bench")]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(Err(error)) = requested() {
        return Err(Failure::Usage(format!("LUNETTE_CRC: {error}; one of {}", names(Kernel::names()))));
    }
    if let Some(Err(error)) = requested_tier() {
        return Err(Failure::Usage(format!("LUNETTE_CPU: {error}")));
    }
    if !arguments.json {
        kernels().into_iter().try_for_each(output::line)?;
    }
    if arguments.bench {
        let rows = bench::run(&Options::default());
        if arguments.json {
            for row in &rows {
                output::line(row.to_json())?;
            }
        } else {
            let lines = figures(&rows).into_iter().chain(contests(&rows)).chain(ratios(&rows));
            lines.into_iter().try_for_each(output::line)?;
        }
    }
    Ok(())
}

fn names(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The kernels that exist, and the choice of `auto`.
fn kernels() -> Vec<String> {
    let mask = match requested_tier() {
        Some(Ok(tier)) => format!(", as far as the tier {} has them", tier.name()),
        _ => String::new(),
    };
    let head = [
        format!("extensions of this CPU{mask}: {}", Features::of_this_cpu()),
        format!("tiers for LUNETTE_CPU: {}", names(Tier::all().map(Tier::name))),
        format!("kernels of this CPU, the plainest first: {}", names(Kernel::all().map(Kernel::name))),
    ];
    let choices = choices().map(|choice| format!("from {} bytes: {}", choice.from, choice.kernel.name()));
    head.into_iter().chain(choices).collect()
}

/// One table per operation and cache: a line per kernel, a column per length, in GB/s.
fn figures(rows: &[Row]) -> Vec<String> {
    let tables: BTreeSet<_> = rows.iter().map(|row| (row.cache, row.op)).collect();
    let mut lines = Vec::new();
    for (cache, op) in tables.into_iter().rev() {
        let of_table = || rows.iter().filter(move |row| (row.cache, row.op) == (cache, op));
        let sizes: BTreeSet<_> = of_table().map(|row| row.bytes).collect();
        let row_of = |first: &str, cell: &dyn Fn(usize) -> String| {
            sizes.iter().fold(format!("{first:16}"), |row, size| format!("{row}{:>10}", cell(*size)))
        };
        lines.push(format!("\n{op}, {cache} cache, GB/s"));
        lines.push(row_of("bytes", &|size| size.to_string()));
        let mut kernels: Vec<_> = of_table().map(|row| row.kernel).collect();
        kernels.dedup();
        let mut seen = BTreeSet::new();
        for kernel in kernels.into_iter().filter(|kernel| seen.insert(*kernel)) {
            let row = |size| of_table().find(|row| row.kernel == kernel && row.bytes == size);
            lines.push(row_of(kernel, &|size| row(size).map_or("-".into(), |row| format!("{:.2}", row.gb_per_s))));
        }
    }
    lines
}

/// The choices of `auto`, each beside the fastest kernel.
fn contests(rows: &[Row]) -> Vec<String> {
    let head = "\nchoices of auto                 bytes  cache  lead of the fastest kernel".into();
    let contests = bench::contests(rows).into_iter().map(|contest| {
        let bench::Contest { op, bytes, cache, chosen, fastest, lead } = contest;
        let verdict = if lead > bench::TOLERATED_LEAD { "  beaten" } else { "" };
        format!("{op:8} {chosen:16} {bytes:>11} {cache:>6} {lead:>6.2} {fastest}{verdict}")
    });
    std::iter::once(head).chain(contests).collect()
}

fn ratios(rows: &[Row]) -> Vec<String> {
    let head = "\nratios of this run                           bytes  cache  ratio  solid    aim".into();
    let ratios = bench::ratios(rows).into_iter().map(|ratio| {
        let bench::Ratio { name, bytes, cache, value, solid, aim } = ratio;
        let verdict = if value < solid { "  below" } else { "" };
        format!("{name:36} {bytes:>13} {cache:>6} {value:>6.2} {solid:>6.2} {aim:>6.2}{verdict}")
    });
    let paper = "\nThe paper's Pentium M (FAST '05), cycles per byte:".into();
    let cycles = PAPER_CYCLES_PER_BYTE.iter().map(|(name, cycles)| format!("{name:12} {cycles:.2}"));
    std::iter::once(head).chain(ratios).chain([paper]).chain(cycles).collect()
}
