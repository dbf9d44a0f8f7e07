//! `lunette crc`: which CRC32C kernels this CPU runs, and how fast.

use std::collections::BTreeSet;

use clap::Args;
use lunette_crc32c::bench::{self, Options, PAPER_CYCLES_PER_BYTE, Row};
use lunette_crc32c::{Kernel, choices, requested};

use crate::failure::Failure;
use crate::output;

const AFTER_HELP: &str = "\
LUNETTE_CRC=NAME makes one kernel serve every length, here and in all other commands.

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
            figures(&rows).into_iter().chain(ratios(&rows)).try_for_each(output::line)?;
        }
    }
    Ok(())
}

fn names(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn kernels() -> Vec<String> {
    let all = format!("kernels of this CPU, the plainest first: {}", names(Kernel::all().map(Kernel::name)));
    let choices = choices().map(|choice| format!("from {} bytes: {}", choice.from, choice.kernel.name()));
    std::iter::once(all).chain(choices).collect()
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
