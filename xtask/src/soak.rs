//! `cargo xtask soak`: the campaigns that take too long for every change, one after the other.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::process;

/// The long campaigns, for a night or a release. A campaign that finds something does not keep the others from running.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Do only this campaign.
    #[arg(long, value_name = "CAMPAIGN", value_parser = CAMPAIGNS.map(|(name, _)| name))]
    only: Option<String>,
}

/// The chores with their arguments. Together they take about four hours on two cores.
const CAMPAIGNS: [(&str, &[&str]); 11] = [
    ("sim", &["sim", "--seeds", "2000"]),
    ("gateways", &["sim", "--gateways", "--seeds", "5000"]),
    ("hostile", &["hostile", "--seeds", "10000"]),
    ("disks", &["disks", "--seeds", "300"]),
    ("volumes", &["volumes", "--seeds", "300"]),
    ("fuzz", &["fuzz", "--time", "120"]),
    ("api", &["api", "--examples", "300"]),
    ("linux", &["linux"]),
    ("csi", &["linux", "--csi"]),
    ("failover", &["failover", "--rounds", "100"]),
    ("handover", &["handover", "--rounds", "300", "--kill", "60"]),
];

/// Runs the campaigns and says which of them found something.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let this = std::env::current_exe().context("the path of this program is unknown")?;
    let mut found = Vec::new();
    for (name, chore) in CAMPAIGNS {
        if arguments.only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let start = Instant::now();
        if let Err(error) = process::run(Command::new(&this).args(chore).current_dir(process::root())) {
            eprintln!("{error:#}");
            found.push(name);
        }
        eprintln!("== {name}: {:.0} s", start.elapsed().as_secs_f64());
    }
    if found.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("found something: {}", found.join(", "));
    Ok(ExitCode::FAILURE)
}
