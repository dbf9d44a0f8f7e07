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

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::experiment::{Cell, Origin, Programs, Results, campaign};
use extras::Extras;
use paper::{Paper, PaperCell};
use report::Report;
use spec::Spec;

/// The tables of a paper on iSCSI over distances, measured again.
///
/// Writes wan.md and its plots. A run that was interrupted goes on where it was; remove the file of results to begin again.
#[derive(Clone, clap::Args)]
pub(crate) struct Options {
    /// The corners of the tables, each once, and nothing beyond the paper
    #[arg(long)]
    quick: bool,
    /// One cell of each table
    #[arg(long, conflicts_with = "quick")]
    smallest: bool,
    /// How often each cell is measured [default: 3, what is beyond the paper 2; 1 with --quick and --smallest]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=99))]
    runs: Option<u8>,
    /// Print all figures as one line of JSON
    #[arg(long)]
    json: bool,
    /// Measure nothing: write the report of the results that are there
    #[arg(long)]
    report: bool,
    /// The file that keeps the results
    #[arg(long, value_name = "FILE", default_value = "target/lab/wan.jsonl")]
    results: PathBuf,
    /// Where the report goes [default: docs/papers, or target/lab with --quick and --smallest]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// The program to measure [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    lunette: Option<PathBuf>,
}

/// How much of the paper is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    Full,
    Quick,
    Smallest,
}

/// Runs of each cell of a full campaign.
const RUNS: u8 = 3;
/// Runs of what is beyond the paper. Those cells are long, so a round of them takes as long as one of all tables.
const EXTRA_RUNS: u8 = 2;

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        Paper::load()?;
        Extras::load()?;
        if self.report { Ok(()) } else { self.programs().map(drop) }
    }

    fn programs(&self) -> Result<Programs> {
        Programs::find(self.lunette.as_deref())
    }

    fn size(&self) -> Size {
        match (self.quick, self.smallest) {
            (true, _) => Size::Quick,
            (_, true) => Size::Smallest,
            _ => Size::Full,
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (paper, extras, size) = (Paper::load()?, Extras::load()?, options.size());
    let results = if options.report {
        Results::read(&options.results)?
    } else {
        let programs = options.programs()?;
        let mut results = Results::open(&options.results, &Origin::here(&programs)?)?;
        let cells = |specs: Vec<Spec>| specs.iter().map(Spec::cell).collect::<Vec<Cell>>();
        let runs = options.runs.unwrap_or(if size == Size::Full { RUNS } else { 1 });
        let failures = campaign::run(&cells(of_tables(&paper, size)), runs.into(), &mut results, &programs)?;
        let runs = options.runs.unwrap_or(EXTRA_RUNS);
        let others = campaign::run(&cells(beyond(&extras, size)), runs.into(), &mut results, &programs)?;
        failures.and(others).none()?;
        results
    };
    let report = Report::new(&paper, &extras, size, &results)?;
    let folder = options.output.clone();
    let folder = folder.unwrap_or_else(|| if size == Size::Full { "docs/papers" } else { "target/lab" }.into());
    write(&folder, &report)?;
    keep(&options.results, &folder)?;
    ensure!(
        report.unmeasured() == 0,
        "{} cells have no measurement; run this again without --report",
        report.unmeasured()
    );
    if options.json {
        println!("{}", serde_json::to_string(&report.figures())?);
    } else {
        println!("{}", report.summary());
        println!("written: {}", folder.join("wan.md").display());
    }
    Ok(ExitCode::SUCCESS)
}

/// What a campaign of that size measures for the tables.
fn of_tables(paper: &Paper, size: Size) -> Vec<Spec> {
    let burst_bytes = paper.parameters.burst_bytes;
    let mut specs: Vec<Spec> = chosen(paper, size).iter().map(|cell| Spec::of_paper(burst_bytes, cell)).collect();
    if size != Size::Smallest {
        specs.extend(ours::probes(burst_bytes, &paper.round_trips_ms()));
    }
    specs
}

/// What a campaign of that size measures beyond the paper.
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

/// Puts the results beside the report that was made of them.
fn keep(results: &Path, folder: &Path) -> Result<()> {
    let text = fs::read(results).with_context(|| format!("cannot read {}", results.display()))?;
    fs::write(folder.join("wan.jsonl"), text).context("cannot put the results beside the report")
}

fn write(folder: &Path, report: &Report) -> Result<()> {
    let what = || format!("cannot write the report to {}", folder.display());
    fs::create_dir_all(folder).with_context(what)?;
    fs::write(folder.join("wan.md"), report.page()?).with_context(what)?;
    for (name, svg) in report.plots()? {
        fs::write(folder.join(name), svg).with_context(what)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
