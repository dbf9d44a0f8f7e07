//! `cargo xtask failover`: faults of two gateways to one disk in Ceph, under a load that compares every byte.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::ceph::Cluster;
use crate::compare;
use crate::packages;
use crate::process::{self, target_dir};
use crate::programs;

/// Two gateways that are killed, stopped and cut off. It takes about a quarter of a minute for each round.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Rounds, with the faults in turns.
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Only this fault: move, stop, kill, hang, partition or osd.
    #[arg(long, value_name = "FAULT")]
    only: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// The arguments for the campaign.
    fn words(&self) -> Vec<String> {
        let only = self.only.iter().flat_map(|fault| ["--only".to_owned(), fault.clone()]);
        let json = self.json.then(|| "--json".to_owned());
        ["--rounds".to_owned(), self.rounds.to_string()].into_iter().chain(only).chain(json).collect()
    }
}

/// Builds all participants, starts a cluster, and makes the rounds. They end at the first broken promise.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if !packages::is_root() {
        bail!("only root can cut a gateway off from its cluster, in a network namespace");
    }
    packages::provide()?;
    packages::provide_for_ceph()?;
    programs::build()?;
    let program = program()?;
    eprintln!("CPU: {}", compare::cpu_model());
    let folder = target_dir().join("ceph-failover");
    if let Ok(left) = Cluster::at(&folder) {
        left.stop()?;
    }
    let cluster = Cluster::start(&folder)?;
    let mut campaign = campaign(&program, &process::built("lunette"), &cluster);
    let status = campaign.args(arguments.words()).status().context("cannot start lunette-failover");
    cluster.stop()?;
    Ok(if status?.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the campaign.
pub(crate) fn program() -> Result<PathBuf> {
    programs::checked("lunette-failover")
}

/// The campaign with gateways of this build of the command and with this cluster.
pub(crate) fn campaign(program: &Path, lunette: &Path, cluster: &Cluster) -> Command {
    let mut command = Command::new(program);
    command.env("LUNETTE_BIN", lunette).env("LUNETTE_CEPH_CONF", cluster.configuration());
    command
}
