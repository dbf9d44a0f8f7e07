//! Random walks of events below a disk; `cargo xtask disks` builds everything that they need.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use lunette_tests::{disks, walks};

fn main() -> ExitCode {
    let tally = disks::run(&walks::Arguments::parse());
    println!("{tally}");
    if tally.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
