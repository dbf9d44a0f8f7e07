//! `cargo xtask handover`: handovers of a server, one after the other, below clients that compare what they read.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::compare;
use crate::packages;
use crate::process;
use crate::programs;

/// Handovers below clients of three makes, with successors that are killed on their way.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Rounds: handovers, whether or not the successor is killed.
    #[arg(long)]
    rounds: Option<u32>,
    /// Rounds in which the successor is killed on its way.
    #[arg(long, value_name = "N")]
    kill: Option<u32>,
    /// Another build of the command, which takes turns with this one.
    #[arg(long, value_name = "PATH")]
    with: Option<PathBuf>,
    /// The seed of the moments.
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Builds all participants and makes the rounds. Whatever a client has noticed is an error.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::provide()?;
    programs::build()?;
    eprintln!("CPU: {}", compare::cpu_model());
    let Arguments { rounds, kill, with, seed, json } = arguments;
    let mut campaign = Command::new(process::built("lunette-handovers"));
    campaign.env("LUNETTE_BIN", process::built("lunette"));
    for (name, count) in [("--rounds", rounds.map(u64::from)), ("--kill", kill.map(u64::from)), ("--seed", *seed)] {
        campaign.args(count.map(|count| format!("{name}={count}")));
    }
    if let Some(with) = with {
        campaign.arg("--with").arg(with.canonicalize().with_context(|| format!("{}", with.display()))?);
    }
    campaign.args(json.then_some("--json"));
    let status = campaign.status().context("cannot start lunette-handovers")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
