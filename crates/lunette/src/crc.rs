//! `lunette crc`: which CRC32C kernels this CPU runs, and how fast.

use std::collections::BTreeSet;

use clap::Args;
use lunette_crc32c::bench::{self, Options, PAPER_CYCLES_PER_BYTE, Row};
use lunette_crc32c::{Kernel, choices, requested};

use crate::failure::Failure;

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
        print_kernels();
    }
    if arguments.bench {
        let rows = bench::run(&Options::default());
        if arguments.json {
            for row in &rows {
                println!("{}", row.to_json());
            }
        } else {
            print_figures(&rows);
            print_ratios(&rows);
        }
    }
    Ok(())
}

fn names(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn print_kernels() {
    println!("kernels of this CPU, the plainest first: {}", names(Kernel::all().map(Kernel::name)));
    for choice in choices() {
        println!("from {} bytes: {}", choice.from, choice.kernel.name());
    }
}

/// One table per operation and cache: a line per kernel, a column per length, in GB/s.
fn print_figures(rows: &[Row]) {
    let tables: BTreeSet<_> = rows.iter().map(|row| (row.cache, row.op)).collect();
    for (cache, op) in tables.into_iter().rev() {
        let of_table = || rows.iter().filter(move |row| (row.cache, row.op) == (cache, op));
        let sizes: BTreeSet<_> = of_table().map(|row| row.bytes).collect();
        println!("\n{op}, {cache} cache, GB/s");
        print!("{:16}", "bytes");
        for size in &sizes {
            print!("{size:>10}");
        }
        println!();
        let mut kernels: Vec<_> = of_table().map(|row| row.kernel).collect();
        kernels.dedup();
        let mut seen = BTreeSet::new();
        for kernel in kernels.into_iter().filter(|kernel| seen.insert(*kernel)) {
            print!("{kernel:16}");
            for size in &sizes {
                match of_table().find(|row| row.kernel == kernel && row.bytes == *size) {
                    Some(row) => print!("{:>10.2}", row.gb_per_s),
                    None => print!("{:>10}", "-"),
                }
            }
            println!();
        }
    }
}

fn print_ratios(rows: &[Row]) {
    println!("\nratios of this run                           bytes  cache  ratio  solid    aim");
    for ratio in bench::ratios(rows) {
        let bench::Ratio { name, bytes, cache, value, solid, aim } = ratio;
        let verdict = if value < solid { "  below" } else { "" };
        println!("{name:36} {bytes:>13} {cache:>6} {value:>6.2} {solid:>6.2} {aim:>6.2}{verdict}");
    }
    println!("\nThe paper's Pentium M (FAST '05), cycles per byte:");
    for (name, cycles) in PAPER_CYCLES_PER_BYTE {
        println!("{name:12} {cycles:.2}");
    }
}
