//! `lunette-lab all`: every experiment, one after the other, and what they have found in one page.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

/// The program as it runs.
const PROGRAM: &str = "/proc/self/exe";
/// The experiments, with the papers that they measure.
const EXPERIMENTS: [(&str, &str); 4] = [
    ("sandbox", "A scalable and high performance software iSCSI implementation"),
    ("wan", "iSCSI and TCP parameters on LAN, MAN and WAN"),
    ("ecl", "Fixed-size encrypted quanta and the Effective Cross Layer"),
    ("zerocopy", "Zero-copy iSCSI in Linux"),
];
/// Where their results are, and reports that are not full ones.
const FOLDER: &str = "target/lab";
/// The section of a report that has its outcome.
const OUTCOME: &str = "\n## In short\n";

/// Every experiment, one after the other, and what they have found in one page.
///
/// Writes the report of each, and target/lab/sums.md. A run that was interrupted goes on where it was.
#[derive(Clone, clap::Args)]
pub(crate) struct Options {
    /// The corners of all tables and figures, each once
    #[arg(long)]
    quick: bool,
    /// Measure nothing: write the reports of the results that are there
    #[arg(long)]
    report: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let flags = [(options.quick, "--quick"), (options.report, "--report")];
    let flags: Vec<&str> = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect();
    let mut failed = Vec::new();
    for (name, _) in EXPERIMENTS {
        eprintln!("{name}");
        let status =
            Command::new(PROGRAM).arg(name).args(&flags).status().context("cannot start this program again")?;
        if !status.success() {
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("these have failed; the others are done, so run this again: {}", failed.join(", "));
    }
    let reports = Path::new(if options.quick { FOLDER } else { "docs/papers" });
    let sums = Path::new(FOLDER).join("sums.md");
    fs::write(&sums, sums_of(reports)?).with_context(|| format!("cannot write {}", sums.display()))?;
    println!("written: {}", sums.display());
    Ok(ExitCode::SUCCESS)
}

/// The outcomes of all reports.
fn sums_of(folder: &Path) -> Result<String> {
    let mut page = String::from("# What the experiments have found\n");
    for (name, title) in EXPERIMENTS {
        let path = folder.join(name).with_extension("md");
        let report = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let outcome = outcome_of(&report).with_context(|| format!("{} has no outcome", path.display()))?;
        let _ = write!(page, "\n## {title}\n\n{outcome}\n\n[The report]({})\n", path.display());
    }
    Ok(page)
}

/// The section of a report that has its outcome.
fn outcome_of(report: &str) -> Option<&str> {
    let (_, section) = report.split_once(OUTCOME)?;
    section.split("\n## ").next().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_committed_report_has_an_outcome() {
        let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/papers");
        let page = sums_of(&papers).expect("reports");
        assert!(page.matches("\n- ").count() >= 2 * EXPERIMENTS.len(), "{page}");
        assert!(!page.contains("## Method"));
    }
}
