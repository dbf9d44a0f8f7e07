//! Random walks of hostile peers; `cargo xtask hostile` builds everything that they need.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use lunette_tests::hostile;

fn main() -> ExitCode {
    let tally = hostile::run(&hostile::Arguments::parse());
    println!("{tally}");
    if tally.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
