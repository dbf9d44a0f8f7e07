//! `lunette-lab tune`: what `lunette tune URL` finds on paths that it has not seen, beside the best of an exhaustive
//! search.
//!
//! - `route`: the paths: one that is fixed, and some that are drawn from a seed.
//! - `contest`: what is measured on each path, as command lines: the defaults, open-iscsi's defaults, the tuner's
//!   settings, the grid.
//! - `report`: the table and the verdicts.
//!
//! The rates are those of reads: they are what the tuner measures unless it is given a range to overwrite. Congestion
//! control and bursts are not part of the grid, because with reads the target decides about the first and the second
//! belong to writes.

mod contest;
mod report;
mod route;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use self::contest::Contest;
use self::report::Report;
use self::route::Route;
use crate::experiment::campaign::{self, Failures};
use crate::experiment::{Cell, Origin, Programs, Results};

/// The tuner on paths that it has not seen, beside an exhaustive search over its settings.
///
/// Writes tune.md. A run that was interrupted goes on where it was; remove the file of results to begin again.
#[derive(Clone, clap::Args)]
pub(crate) struct Options {
    /// The seed that the paths are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Paths to draw
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=50))]
    paths: u8,
    /// A smaller grid, and less time for the tuner
    #[arg(long)]
    quick: bool,
    /// Two settings of the grid on the fixed path, one second each
    #[arg(long, conflicts_with = "quick")]
    smallest: bool,
    /// Print all figures as one line of JSON
    #[arg(long)]
    json: bool,
    /// Measure nothing: write the report of the results that are there
    #[arg(long)]
    report: bool,
    /// The file that keeps the results
    #[arg(long, value_name = "FILE", default_value = "target/lab/tune.jsonl")]
    results: PathBuf,
    /// Where the report goes
    #[arg(long, value_name = "FOLDER", default_value = "target/lab")]
    output: PathBuf,
    /// The program to measure [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    lunette: Option<PathBuf>,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Full,
    Quick,
    Smallest,
}

/// Runs of what the verdicts compare: of one run each, the best of many would be the luckiest.
const RUNS: usize = 3;

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
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

    fn contests(&self) -> Vec<Contest> {
        let drawn = if self.smallest { 0 } else { usize::from(self.paths) };
        let routes = std::iter::once(Route::FIXED).chain(Route::drawn(self.seed, drawn));
        routes.map(|route| Contest::new(route, self.size())).collect()
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let contests = options.contests();
    let (results, failures) = if options.report {
        (Results::read(&options.results)?, Failures::default())
    } else {
        measure(options, &contests)?
    };
    let report = match Report::new(&contests, &results) {
        Err(error) => return failures.none().and(Err(error)),
        report => report?,
    };
    let what = || format!("cannot write the report to {}", options.output.display());
    fs::create_dir_all(&options.output).with_context(what)?;
    fs::write(options.output.join("tune.md"), report.page()).with_context(what)?;
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", report.summary());
        println!("written: {}", options.output.join("tune.md").display());
    }
    failures.none()?;
    Ok(ExitCode::SUCCESS)
}

fn measure(options: &Options, contests: &[Contest]) -> Result<(Results, Failures)> {
    let programs = options.programs()?;
    let mut results = Results::open(&options.results, &Origin::here(&programs)?)?;
    let all: Vec<Cell> = contests.iter().flat_map(Contest::cells).collect();
    let first = campaign::run(&all, 1, &mut results, &programs)?;
    let runs = if options.size() == Size::Smallest { 1 } else { RUNS };
    let compared: Vec<Cell> = contests.iter().flat_map(|contest| contest.compared(&results)).collect();
    let second = campaign::run(&compared, runs, &mut results, &programs)?;
    Ok((results, first.and(second)))
}
