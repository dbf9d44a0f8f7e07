//! The project's own chores: `cargo xtask test`, `cargo xtask suite`, `cargo xtask fuzz`, `cargo xtask count`, `cargo
//! xtask compare`, `cargo xtask encryption`, `cargo xtask profile`, `cargo xtask sim`, `cargo xtask hostile`, `cargo
//! xtask disks`, `cargo xtask volumes`, `cargo xtask soak`, `cargo xtask ceph`, `cargo xtask failover`, `cargo xtask
//! handover`, `cargo xtask api`, `cargo xtask chart`, `cargo xtask linux`, `cargo xtask oldest`, `cargo xtask miri`,
//! `cargo xtask package`.

#![forbid(unsafe_code)]

mod api;
mod ceph;
mod chart;
mod compare;
mod count;
mod encryption;
mod failover;
mod fuzz;
mod handover;
mod hostile;
mod lab;
mod layout;
mod licences;
mod links;
mod linux;
mod manifests;
mod package;
mod packages;
mod process;
mod profile;
mod programs;
mod prose;
mod protocol;
mod sim;
mod soak;
mod suite;
mod test;
mod tiers;
mod toolchains;
mod tree;
mod walks;

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
    /// Instruction counts of the digest kernels, the protocol and whole I/Os, against their baseline.
    Count(count::Arguments),
    /// Lunette beside tgt, libiscsi and plain TCP, as ratios of one run.
    Compare(compare::Arguments),
    /// Encrypted disks beside plain ones, and beside the LUKS drivers of QEMU and nbdkit, as ratios of one run.
    Encryption(encryption::Arguments),
    /// The share of CPU time of each layer, on both sides, as `perf` samples it.
    Profile(profile::Arguments),
    /// Initiator and target under a virtual clock and a network that breaks everything.
    Sim(sim::Arguments),
    /// Random walks of hostile peers against the server and the client that ship.
    Hostile(hostile::Arguments),
    /// Random walks of what happens to the file below a disk, with a disk that is read and written meanwhile.
    Disks(walks::Arguments),
    /// Random walks of what is done with volumes while their server is killed.
    Volumes(walks::Arguments),
    /// The long campaigns, one after the other.
    Soak(soak::Arguments),
    /// A Ceph cluster on this machine, for tests of disks in Ceph.
    Ceph(ceph::Arguments),
    /// Faults of two gateways to one disk in Ceph, under a load that compares every byte.
    Failover(failover::Arguments),
    /// Handovers of a server to its successors, below clients that compare what they read.
    Handover(handover::Arguments),
    /// Debian's kernel with open-iscsi and multipath-tools as a client, in a virtual machine.
    Linux(linux::Arguments),
    /// The command and all libraries, with the oldest compiler that they promise.
    Oldest,
    /// Tests of crates with `unsafe` in Miri, which needs a nightly toolchain.
    Miri,
    /// A Debian package, and its trial in a clean Debian system.
    Package(package::Arguments),
    /// The API of a running server against its own description.
    Api(api::Arguments),
    /// The Helm chart and the manifests of the driver for Kubernetes, against the schemas of Kubernetes.
    Chart(chart::Arguments),
    /// One end of the plain TCP connection that `compare` measures.
    #[command(hide = true)]
    Ceiling(compare::ceiling::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Test(arguments) => test::run(&arguments),
        Chore::Suite(arguments) => suite::run(&arguments),
        Chore::Fuzz(arguments) => fuzz::run(&arguments),
        Chore::Count(arguments) => count::run(&arguments),
        Chore::Compare(arguments) => compare::run(&arguments),
        Chore::Encryption(arguments) => encryption::run(&arguments),
        Chore::Profile(arguments) => profile::run(&arguments),
        Chore::Sim(arguments) => sim::run(&arguments),
        Chore::Hostile(arguments) => hostile::run(&arguments),
        Chore::Disks(arguments) => walks::run("lunette-disks", &arguments),
        Chore::Volumes(arguments) => walks::run("lunette-volumes", &arguments),
        Chore::Soak(arguments) => soak::run(&arguments),
        Chore::Ceph(arguments) => ceph::run(&arguments),
        Chore::Failover(arguments) => failover::run(&arguments),
        Chore::Handover(arguments) => handover::run(&arguments),
        Chore::Linux(arguments) => linux::run(&arguments),
        Chore::Oldest => toolchains::oldest(),
        Chore::Miri => toolchains::miri(),
        Chore::Package(arguments) => package::run(&arguments),
        Chore::Api(arguments) => api::run(&arguments),
        Chore::Chart(arguments) => chart::run(&arguments),
        Chore::Ceiling(arguments) => compare::ceiling::run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
