//! Handovers of a server below clients that compare what they read; `cargo xtask handover` builds everything that they
//! need.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use lunette_tests::handover;

fn main() -> ExitCode {
    let arguments = handover::Arguments::parse();
    let report = handover::run(&arguments);
    if arguments.json() {
        println!("{}", report.json());
    } else {
        println!("{report}");
    }
    if report.errors().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
