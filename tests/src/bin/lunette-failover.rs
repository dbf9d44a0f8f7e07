//! Faults of two gateways to one disk in Ceph; `cargo xtask failover` starts the cluster and builds everything that
//! they need.

#![forbid(unsafe_code)]

use clap::Parser;
use lunette_tests::failover;

fn main() {
    let arguments = failover::Arguments::parse();
    let report = failover::run(&arguments);
    if arguments.json() {
        println!("{}", report.json());
    } else {
        println!("{report}");
    }
}
