//! The instructions of one Data-In PDU with status at the initiator, from `lunette-lab sandbox`: the whole, and what is
//! left without copy and digests.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Counts;
use crate::process;

/// Lengths of reads: one TCP segment, and six.
const LENGTHS: [u32; 2] = [512, 8192];
/// A kernel that valgrind knows. What is left without digests does not depend on it.
const KERNEL: &str = "crc32q";

/// Counts both for each length. The programs have been built.
pub(super) fn count() -> Result<Counts> {
    let mut counts = Counts::new();
    for length in LENGTHS {
        let [whole, copy, header] = ["data-in", "copy-with-digest", "headers"].map(|work| instructions(work, length));
        let whole = whole?;
        let protocol = whole.checked_sub(copy? + header?).context("a part takes more instructions than the whole")?;
        counts.insert(format!("sandbox data-in {length}"), whole);
        counts.insert(format!("sandbox data-in {length} protocol"), protocol);
    }
    Ok(counts)
}

#[expect(clippy::cast_sign_loss, reason = "a count is not negative")]
fn instructions(work: &str, length: u32) -> Result<u64> {
    let cell = format!("{work}/{KERNEL}/{length}/warm");
    let output = Command::new(process::target_dir().join("release/lunette-lab"))
        .args(["sandbox", "--count", "--cell", &cell])
        .output()
        .context("lunette-lab cannot be started")?;
    if !output.status.success() {
        bail!("counting {cell} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).context("no figures of a cell")?;
    let instructions = figures["instructions"].as_f64().with_context(|| format!("no instructions of {cell}"))?;
    Ok(instructions.round() as u64)
}
