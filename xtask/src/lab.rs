//! The step of `cargo xtask test` that runs the experiments of the laboratory at their smallest size.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::packages;
use crate::process;

/// Each experiment measures some cells of each table or figure, and fails when one of these is missing.
const EXPERIMENTS: [&str; 2] = ["wan", "ecl"];

/// Builds what is measured and runs all experiments. Where the system cannot have links, it says so.
pub(crate) fn step() -> Result<()> {
    if !packages::is_root() || !Path::new("/dev/net/tun").exists() {
        eprintln!("SKIPPED: the experiments of the laboratory need root and /dev/net/tun");
        return Ok(());
    }
    process::build_for_checks()?;
    let program = process::target_dir().join("checks/lunette-lab");
    let folder = process::target_dir().join("lab/smallest");
    if folder.exists() {
        // The results of another build would be taken for this one's.
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    for experiment in EXPERIMENTS {
        let mut command = Command::new(&program);
        command.args([experiment, "--smallest", "--results"]).arg(folder.join("results.jsonl"));
        process::run(command.arg("--output").arg(&folder).current_dir(process::root()))?;
    }
    Ok(())
}
