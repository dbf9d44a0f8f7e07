//! `cargo xtask hostile`: random walks of hostile peers against the server and the client that ship.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::process;
use crate::programs;

/// Walks on each side, in `cargo xtask test`.
const SEEDS_OF_THE_STEP: &str = "60";

/// Hostile initiators against the server, and a hostile target against the client.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Walks on each side.
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "SEED")]
    first: Option<u64>,
    /// Side that is attacked: target, initiator or both.
    #[arg(long)]
    side: Option<String>,
    /// Makes only the walk of this seed and shows all that happens in it; needs a side.
    #[arg(long, value_name = "SEED", requires = "side")]
    trace: Option<u64>,
}

impl Arguments {
    /// The arguments for the campaign.
    fn words(&self) -> Vec<String> {
        let given = [
            ("--seeds", self.seeds.map(|number| number.to_string())),
            ("--first", self.first.map(|number| number.to_string())),
            ("--side", self.side.clone()),
            ("--trace", self.trace.map(|number| number.to_string())),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

/// Builds all participants and runs the campaign, which reports the faults.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    programs::build()?;
    let status = campaign().args(arguments.words()).status().context("cannot start lunette-hostile")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a few seconds on each side.
pub(crate) fn step() -> Result<()> {
    programs::build()?;
    process::run(campaign().args(["--seeds", SEEDS_OF_THE_STEP]))
}

fn campaign() -> Command {
    let mut command = Command::new(process::built("lunette-hostile"));
    command.env("LUNETTE_BIN", process::built("lunette")).current_dir(process::root());
    command
}
