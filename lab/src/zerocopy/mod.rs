//! `lunette-lab zerocopy`: the figures and tables of a paper on zero-copy iSCSI, measured again: where CPU time goes
//! with and without copies, checksums and segmentation, and what digests have to do with it.
//!
//! Tools that cells run, on the sessions of `lunette-session`, against `lunette serve`:
//!
//! - `load`: one request again and again, whose data leaves from memory or from the pages of a file. `layers`: CPU time
//!   by layer, from samples of `perf`.
//! - `remap`: received payloads by page. `rewrite`: pages that are rewritten while they are sent.
//! - `client`: the session that `load` and `rewrite` drive. `socket`: system calls.
//!
//! The experiment:
//!
//! - `paper`: its values and claims, from `papers.toml`. `spec`: what a cell asks for, and its command lines; `plan`:
//!   which cells there are.
//! - `figures`: tables and plots; `claims`: what holds; `report`: the page of `report.md`.

mod claims;
mod client;
mod figures;
mod layers;
pub(crate) mod load;
mod paper;
mod plan;
pub(crate) mod remap;
mod report;
pub(crate) mod rewrite;
mod socket;
mod spec;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use crate::experiment::{Cell, Origin, Programs, Results, Size, Study, campaign};
use paper::Paper;
use report::Report;
use spec::Spec;

/// The figures and tables of a paper on zero-copy iSCSI, measured again.
///
/// Writes zerocopy.md and its plots. A run that was interrupted goes on where it was; remove the file of results to
/// begin again. Needs two CPUs, and perf for CPU time by layer.
#[derive(Clone, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    study: Study,
    /// The program to measure [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    lunette: Option<PathBuf>,
}

/// Runs of the cells that are quoted, in a full campaign.
const KEY_RUNS: u8 = 3;

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        Paper::load()?;
        if self.study.report { Ok(()) } else { self.programs().map(drop) }
    }

    fn programs(&self) -> Result<Programs> {
        Programs::find(self.lunette.as_deref())
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let paper = Paper::load()?;
    let results = options.study.results("zerocopy", |file, size| measure(options, file, size))?;
    options.study.publish("zerocopy", &Report::new(&paper, options.study.size(), &results))
}

fn measure(options: &Options, file: &Path, size: Size) -> Result<Results> {
    let programs = options.programs()?;
    if !programs.has(layers::PROGRAM) {
        eprintln!(
            "warning: {} is missing: CPU time will not be told by layer, and only that of the processes will count",
            layers::PROGRAM
        );
    }
    let mut results = Results::open(file, &Origin::here(&programs)?)?;
    let specs = plan::chosen(size);
    let cells = |specs: &[Spec]| specs.iter().map(Spec::cell).collect::<Vec<Cell>>();
    let key: Vec<Spec> = specs.iter().copied().filter(plan::is_key).collect();
    let runs = options.study.runs;
    let key_runs = runs.unwrap_or(if size == Size::Full { KEY_RUNS } else { 1 });
    let failures = campaign::run(&cells(&specs), runs.unwrap_or(1).into(), &mut results, &programs)?;
    let others = campaign::run(&cells(&key), key_runs.into(), &mut results, &programs)?;
    failures.and(others).none()?;
    Ok(results)
}
