//! `cargo xtask disks` and `cargo xtask volumes`: random walks over small file systems of their own. They need root.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::process;
use crate::programs;

/// Walks over small file systems of their own.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Walks.
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "SEED")]
    first: Option<u64>,
    /// Walks at the same time.
    #[arg(long)]
    jobs: Option<u64>,
    /// Makes only the walk of this seed and shows its steps.
    #[arg(long, value_name = "SEED")]
    trace: Option<u64>,
}

/// Builds all participants and runs the campaign of this program, which reports the faults.
pub(crate) fn run(program: &str, arguments: &Arguments) -> Result<ExitCode> {
    programs::build()?;
    // A namespace of mounts that another program makes meanwhile would keep their file systems from being unmounted.
    let mut command = Command::new("unshare");
    command.arg("--mount").arg(process::built(program));
    command.env("LUNETTE_BIN", process::built("lunette")).current_dir(process::root());
    let Arguments { seeds, first, jobs, trace } = *arguments;
    for (name, value) in [("--seeds", seeds), ("--first", first), ("--jobs", jobs), ("--trace", trace)] {
        command.args(value.map(|value| format!("{name}={value}")));
    }
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
