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

use std::process::ExitCode;

use anyhow::Result;

use crate::experiment::{LinkStudy, Programs, Round, Size};
use paper::Paper;
use report::Report;
use spec::Spec;

/// Runs of the cells that are quoted, in a full campaign.
const KEY_RUNS: u8 = 3;

pub(crate) fn run(study: &LinkStudy) -> Result<ExitCode> {
    let paper = Paper::load()?;
    let results = study.results("ecl", rounds)?;
    study.publish("ecl", &Report::new(&paper, study.size(), &results))
}

fn rounds(programs: &Programs, size: Size) -> [Round; 2] {
    let specs: Vec<Spec> = plan::chosen(size).into_iter().filter(|spec| spec.is_possible(programs)).collect();
    let key = specs.iter().filter(|spec| plan::is_key(spec)).map(Spec::cell).collect();
    [(specs.iter().map(Spec::cell).collect(), 1), (key, KEY_RUNS)]
}
