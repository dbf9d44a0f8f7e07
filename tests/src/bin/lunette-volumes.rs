//! Random walks of what is done with volumes while their server is killed; `cargo xtask volumes` builds everything that
//! they need.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use lunette_tests::{volumes, walks};

fn main() -> ExitCode {
    let tally = volumes::run(&walks::Arguments::parse());
    println!("{tally}");
    if tally.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
