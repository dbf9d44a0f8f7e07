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
    let results = study.results("zerocopy", rounds)?;
    study.publish("zerocopy", &Report::new(&paper, study.size(), &results))
}

fn rounds(programs: &Programs, size: Size) -> [Round; 2] {
    if !programs.has(layers::PROGRAM) {
        eprintln!(
            "warning: {} is missing: CPU time will not be told by layer, and only that of the processes will count",
            layers::PROGRAM
        );
    }
    let specs = plan::chosen(size);
    let key = specs.iter().filter(|spec| plan::is_key(spec)).map(Spec::cell).collect();
    [(specs.iter().map(Spec::cell).collect(), 1), (key, KEY_RUNS)]
}
