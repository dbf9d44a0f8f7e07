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

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::experiment::{Cell, Origin, Programs, Results, campaign};
use paper::Paper;
use report::Report;
use spec::Spec;

/// The figures of a paper on the Effective Cross Layer, measured again.
///
/// Writes ecl.md and its plots. A run that was interrupted goes on where it was; remove the file of results to begin again.
#[derive(Clone, clap::Args)]
pub(crate) struct Options {
    /// The corners of the figures, each once
    #[arg(long)]
    quick: bool,
    /// A few cells of each figure
    #[arg(long, conflicts_with = "quick")]
    smallest: bool,
    /// How often each cell is measured [default: 1, and 3 for those that are quoted; 1 with --quick and --smallest]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=99))]
    runs: Option<u8>,
    /// Print all figures as one line of JSON
    #[arg(long)]
    json: bool,
    /// Measure nothing: write the report of the results that are there
    #[arg(long)]
    report: bool,
    /// The file that keeps the results
    #[arg(long, value_name = "FILE", default_value = "target/lab/ecl.jsonl")]
    results: PathBuf,
    /// Where the report goes [default: docs/papers, or target/lab with --quick and --smallest]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// The program to measure [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    lunette: Option<PathBuf>,
}

/// How much of the figures is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    Full,
    Quick,
    Smallest,
}

/// Runs of the cells that are quoted, in a full campaign.
const KEY_RUNS: u8 = 3;

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        Paper::load()?;
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
    let (paper, size) = (Paper::load()?, options.size());
    let results = if options.report { Results::read(&options.results)? } else { measure(options, size)? };
    let report = Report::new(&paper, size, &results);
    let folder = options.output.clone();
    let folder = folder.unwrap_or_else(|| if size == Size::Full { "docs/papers" } else { "target/lab" }.into());
    let what = || format!("cannot write the report to {}", folder.display());
    fs::create_dir_all(&folder).with_context(what)?;
    fs::write(folder.join("ecl.md"), report.page()).with_context(what)?;
    for (name, svg) in report.plots()? {
        fs::write(folder.join(name), svg).with_context(what)?;
    }
    let text = fs::read(&options.results).with_context(|| format!("cannot read {}", options.results.display()))?;
    fs::write(folder.join("ecl.jsonl"), text).with_context(what)?;
    let unmeasured = report.unmeasured();
    ensure!(unmeasured == 0, "{unmeasured} cells have no measurement; run this again without --report");
    if options.json {
        println!("{}", serde_json::to_string(&report.cells())?);
    } else {
        println!("{}", report.summary());
        println!("written: {}", folder.join("ecl.md").display());
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(options: &Options, size: Size) -> Result<Results> {
    let programs = options.programs()?;
    let mut results = Results::open(&options.results, &Origin::here(&programs)?)?;
    let specs: Vec<Spec> = plan::chosen(size).into_iter().filter(|spec| spec.is_possible(&programs)).collect();
    let cells = |specs: &[Spec]| specs.iter().map(Spec::cell).collect::<Vec<Cell>>();
    let key: Vec<Spec> = specs.iter().copied().filter(plan::is_key).collect();
    let key_runs = options.runs.unwrap_or(if size == Size::Full { KEY_RUNS } else { 1 });
    let failures = campaign::run(&cells(&specs), options.runs.unwrap_or(1).into(), &mut results, &programs)?;
    let others = campaign::run(&cells(&key), key_runs.into(), &mut results, &programs)?;
    failures.and(others).none()?;
    Ok(results)
}
