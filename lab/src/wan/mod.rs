//! `lunette-lab wan`: the tables of a paper on iSCSI and TCP over distances, measured again.
//!
//! - `paper`: its values and the parameters of its systems, from `papers.toml`; `published`: the closed form with them.
//! - `spec`: what a cell asks for, as the model takes it, and the command lines that measure it.
//! - `ours`: the closed form for this project's stack, with terms that probes measure.
//! - `extras`: what the paper could not measure, from `extras.toml`.
//! - `report`: tables, plots, and the page of `report.md`.

mod extras;
mod ours;
mod paper;
mod published;
mod report;
mod spec;

use std::process::ExitCode;

use anyhow::Result;

use crate::experiment::{LinkStudy, Size};
use extras::Extras;
use paper::{Paper, PaperCell};
use report::Report;
use spec::Spec;

/// Runs of each cell of a full campaign.
const RUNS: u8 = 3;
/// Runs of what is beyond the paper. Those cells are long, so a round of them takes as long as one of all tables.
const EXTRA_RUNS: u8 = 2;

pub(crate) fn run(study: &LinkStudy) -> Result<ExitCode> {
    let (paper, extras) = (Paper::load()?, Extras::load()?);
    let results = study.results("wan", |_, size| {
        let cells = |specs: Vec<Spec>| specs.iter().map(Spec::cell).collect();
        [(cells(of_tables(&paper, size)), RUNS), (cells(beyond(&extras, size)), EXTRA_RUNS)]
    })?;
    study.publish("wan", &Report::new(&paper, &extras, study.size(), &results)?)
}

/// The measurements for the tables in a campaign of that size.
fn of_tables(paper: &Paper, size: Size) -> Vec<Spec> {
    let burst_bytes = paper.parameters.burst_bytes;
    let mut specs: Vec<Spec> = chosen(paper, size).iter().map(|cell| Spec::of_paper(burst_bytes, cell)).collect();
    if size != Size::Smallest {
        specs.extend(ours::probes(burst_bytes, &paper.round_trips_ms()));
    }
    specs
}

/// The measurements beyond the paper in a campaign of that size.
fn beyond(extras: &Extras, size: Size) -> Vec<Spec> {
    if size == Size::Full { extras.specs() } else { Vec::new() }
}

/// The cells of the paper that a campaign of that size measures.
fn chosen(paper: &Paper, size: Size) -> Vec<PaperCell> {
    let is_corner = |cell: &PaperCell| {
        let far = cell.round_trip_ms == 0 || cell.round_trip_ms == 50;
        let extreme = cell.load.is_stream() || cell.request_len == 1 << 10 || cell.request_len == 256 << 10;
        far && extreme
    };
    match size {
        Size::Full => paper.cells(),
        Size::Quick => paper.cells().into_iter().filter(is_corner).collect(),
        Size::Smallest => paper.tables.iter().filter_map(|table| table.cells().first().copied()).collect(),
    }
}

#[cfg(test)]
mod tests;
