//! The project's own chores: `cargo xtask test`, `cargo xtask suite`, `cargo xtask fuzz`, `cargo xtask count`.

#![forbid(unsafe_code)]

mod count;
mod fuzz;
mod packages;
mod process;
mod suite;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own chores.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Everything that has to pass: format, lints, docs, unit tests, fuzz targets replayed, interoperability.
    Test(test::Arguments),
    /// libiscsi's test suite over all kinds of disks, as a table of tests and disks.
    Suite(suite::Arguments),
    /// Coverage-guided fuzzing, with cargo-fuzz on a nightly toolchain.
    Fuzz(fuzz::Arguments),
    /// Instruction counts of the digest kernels, against their baseline.
    Count(count::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Test(arguments) => test::run(&arguments),
        Chore::Suite(arguments) => suite::run(&arguments),
        Chore::Fuzz(arguments) => fuzz::run(&arguments),
        Chore::Count(arguments) => count::run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
