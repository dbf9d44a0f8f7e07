//! The instructions of an I/O on a whole side: event loop, protocol, and the layers above.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// Makes each byte that memcpy moves count as an instruction, from this length on and on any CPU, so that an
/// unnecessary copy shows: with wide registers it hardly would. The data of the short I/Os is below this length.
const TUNABLES: &str = "glibc.cpu.x86_rep_movsb_threshold=4097";

/// Counts the instructions of one I/O of each load. The program has been built.
pub(super) fn count() -> Result<BTreeMap<String, u64>> {
    let folder = process::target_dir().join("count");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let dumps = folder.join("turns.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*::scripted_turn", "--toggle-collect=*::Engine as *>::timeout"])
        .args(["--collect-atstart=yes", "--dump-before=*::milestone"])
        .arg(format!("--callgrind-out-file={}", dumps.display()))
        .arg(process::target_dir().join("release/count-turns"))
        .env("GLIBC_TUNABLES", TUNABLES)
        .output()
        .context("valgrind cannot be started; install the package valgrind")?;
    if !output.status.success() {
        bail!("counting turns failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let told = String::from_utf8(output.stdout).context("the names of loads are text")?;
    let mut counts = BTreeMap::new();
    for (line, dump) in told.lines().zip((2..).step_by(2)) {
        let (load, ios) = line.split_once('\t').context("a line without a tab")?;
        let ios: u64 = ios.parse().with_context(|| format!("no number of I/Os: {line}"))?;
        counts.insert(load.into(), total(&dumps.with_extension(format!("out.{dump}")))? / ios);
    }
    Ok(counts)
}

/// The total of the instructions in a dump.
fn total(dump: &Path) -> Result<u64> {
    let text = fs::read_to_string(dump).with_context(|| format!("cannot read {}", dump.display()))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
    total.with_context(|| format!("{} has no total", dump.display()))
}
