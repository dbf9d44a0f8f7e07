//! `lunette-lab ecl`: the figures of a paper on the Effective Cross Layer, measured again, and what it did not measure.
//!
//! - `paper`: its values and claims, from `papers.toml`.
//! - `spec`: what a cell asks for, and the command lines that measure it; `plan`: which cells the figures have.
//! - `figures`: tables and plots; `claims`: what holds; `report`: the page of `report.md`.

mod claims;
mod figures;
mod paper;
mod plan;
mod report;
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

/// The figures of a paper on the Effective Cross Layer, measured again.
///
/// Writes ecl.md and its plots. A run that was interrupted goes on where it was; remove the file of results to begin
/// again.
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
    let results = options.study.results("ecl", |file, size| measure(options, file, size))?;
    options.study.publish("ecl", &Report::new(&paper, options.study.size(), &results))
}

fn measure(options: &Options, file: &Path, size: Size) -> Result<Results> {
    let programs = options.programs()?;
    let mut results = Results::open(file, &Origin::here(&programs)?)?;
    let specs: Vec<Spec> = plan::chosen(size).into_iter().filter(|spec| spec.is_possible(&programs)).collect();
    let cells = |specs: &[Spec]| specs.iter().map(Spec::cell).collect::<Vec<Cell>>();
    let key: Vec<Spec> = specs.iter().copied().filter(plan::is_key).collect();
    let runs = options.study.runs;
    let key_runs = runs.unwrap_or(if size == Size::Full { KEY_RUNS } else { 1 });
    let failures = campaign::run(&cells(&specs), runs.unwrap_or(1).into(), &mut results, &programs)?;
    let others = campaign::run(&cells(&key), key_runs.into(), &mut results, &programs)?;
    failures.and(others).none()?;
    Ok(results)
}
