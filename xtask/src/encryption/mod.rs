//! `cargo xtask encryption`: encrypted disks beside plain ones, and beside the LUKS drivers of QEMU and nbdkit, in one
//! run.
//!
//! In every contest the server of the blocks has the first CPU. The side that encrypts has the second one, together
//! with the client that asks. All parties take turns in rounds, and the results are ratios of medians.

mod client;
mod contest;
mod contestant;

use std::process::ExitCode;

use anyhow::Result;

use crate::compare::statistics::Spread;
use crate::compare::system::{CongestionControl, Cpus, Interrupt};
use crate::compare::{contestant::Stage, folder, load};
use crate::packages;
use crate::process::{self, cargo};
use client::LOADS;
use contest::{ENCRYPTED, Ratio};
use contestant::Parties;

/// Encrypted disks beside plain ones, and beside the LUKS drivers of QEMU and nbdkit.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How often each party takes its turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of one turn.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Measures and prints. The exit code does not depend on the ratios, which are for the reader to judge.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::provide_for_encryption()?;
    process::run(&mut cargo(["build", "--locked", "--release", "--package", "lunette"]))?;
    let interrupt = Interrupt::on_signals()?;
    let stage = Stage { folder: folder()?, cpus: Cpus::choose()?, interrupt };
    let _congestion_control = CongestionControl::pin()?;
    let before = load();
    let parties = Parties::start(&stage)?;
    let measured = contest::rounds(&stage, &parties, arguments.rounds, arguments.seconds)?;
    drop(parties);
    let ratios = contest::ratios(&measured);
    if arguments.json {
        print_json(&measured, &ratios);
    } else {
        println!("{}, load average {before} before, {} after", packages::versions(&["qemu-utils", "nbdkit"]), load());
        println!("{} rounds of {} s\n", arguments.rounds, arguments.seconds);
        print_tables(&measured, &ratios);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_tables(measured: &[contest::Measured], ratios: &[Ratio]) {
    println!("{:44} {}", "IOPS, median of all rounds", LOADS.map(|load| format!("{:>18}", load.name)).concat());
    for measured in measured {
        let figures = measured.iops.iter().map(|iops| Spread::of(iops.iter().copied()));
        let cells = figures.map(|spread| spread.map_or("-".into(), |spread| format!("{:.0}", spread.median)));
        let cells: Vec<_> = cells.map(|cell: String| format!("{cell:>18}")).collect();
        println!("{:44} {}", measured.party.name(), cells.concat());
    }
    println!("\n{:64} {:>6} {:>15} {:>6}  met", "ratios", "value", "rounds", "solid");
    for ratio in ratios {
        let (value, range, met) = match ratio.value {
            Some(value) => {
                let met = if value.median >= ratio.solid { "yes" } else { "no" };
                (format!("{:.2}", value.median), format!("{:.2} to {:.2}", value.low, value.high), met)
            }
            None => ("-".into(), String::new(), "not measured"),
        };
        println!("{:64} {value:>6} {range:>15} {:>6.2}  {met}", ratio.name, ratio.solid);
    }
    println!("\nThe encrypted disks: {ENCRYPTED}.");
}

fn print_json(measured: &[contest::Measured], ratios: &[Ratio]) {
    for measured in measured {
        for (load, iops) in LOADS.iter().zip(&measured.iops) {
            println!("{}", serde_json::json!({ "party": measured.party.name(), "load": load.name, "iops": iops }));
        }
    }
    for ratio in ratios {
        let value = ratio.value.map(|value| value.median);
        println!("{}", serde_json::json!({ "ratio": ratio.name, "value": value, "solid": ratio.solid }));
    }
}
