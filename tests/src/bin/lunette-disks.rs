//! Random walks of events below a disk; `cargo xtask disks` builds everything that they need.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use lunette_tests::disks;

fn main() -> ExitCode {
    let tally = disks::run(&disks::Arguments::parse());
    println!("{tally}");
    if tally.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
