//! The step of `cargo xtask test` that runs the experiments of the laboratory at their smallest size.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::packages;
use crate::process;
use crate::programs;

/// Each experiment measures some cells of each table or figure, and fails when one of these is missing.
const EXPERIMENTS: [Experiment; 4] = [
    Experiment { name: "sandbox", has_links: false },
    Experiment { name: "wan", has_links: true },
    Experiment { name: "ecl", has_links: true },
    Experiment { name: "zerocopy", has_links: true },
];

struct Experiment {
    name: &'static str,
    /// Whether it needs links between namespaces.
    has_links: bool,
}

/// Builds what is measured and runs all experiments. Where the system cannot have links, it says so.
pub(crate) fn step() -> Result<()> {
    programs::build()?;
    let program = process::built("lunette-lab");
    let folder = process::target_dir().join("lab/smallest");
    if folder.exists() {
        // The results of another build would be taken for this one's.
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let can_link = packages::is_root() && Path::new("/dev/net/tun").exists();
    for Experiment { name, has_links } in EXPERIMENTS {
        if has_links && !can_link {
            eprintln!("SKIPPED: {name} needs root and /dev/net/tun");
            continue;
        }
        let mut command = Command::new(&program);
        command.args([name, "--smallest", "--results"]).arg(folder.join(format!("results-{name}.jsonl")));
        process::run(command.arg("--output").arg(&folder).current_dir(process::root()))?;
    }
    Ok(())
}
