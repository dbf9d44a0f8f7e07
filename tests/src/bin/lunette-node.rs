//! The driver for Kubernetes over this machine's open-iscsi; `cargo xtask linux --csi` runs it in a virtual machine.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use lunette_tests::{csi_node, sanity};

/// Volumes from their creation to their end, over open-iscsi and dm-multipath
#[derive(Parser)]
enum Chore {
    /// Try all cases on this machine
    Check(csi_node::Arguments),
    /// Build csi-sanity and print its path
    Sanity,
}

fn main() -> ExitCode {
    match Chore::parse() {
        Chore::Check(arguments) => {
            if !csi_node::check(&arguments) {
                return ExitCode::FAILURE;
            }
        }
        Chore::Sanity => println!("{}", sanity::csi_sanity().display()),
    }
    ExitCode::SUCCESS
}
