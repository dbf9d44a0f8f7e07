//! `lunette-lab sandbox`: where the cycles of each PDU go, as a paper asked, on the sessions that ship.
//!
//! ```text
//! runs ──> one process each, measured or counted ──> results (a file) ──> numbers ──> tables, plots
//! ```
//!
//! - `pair`: one session with eight connections, both of its ends in memory. `packets`: bytes as they lie in TCP
//!   segments.
//! - `job`: a command up to the moment at which it is measured, and then the calls of `lunette-session` that are. Parts
//!   of it by themselves are the calls of `lunette-crc32c` that sessions make.
//! - `cpu`: the time stamp counter and the caches. `measure`: cycles of one cell, in this process. `count`: the same
//!   under callgrind.
//! - `cell`: the name of a measurement. `spec`: which of them a campaign makes.
//! - `numbers`: protocol, digest and copy, as differences of measurements. `paper`: the paper's, from `papers.toml`.
//! - `figures`: the paper's figures again. `report`: the page of `report.md`.

#![expect(clippy::cast_precision_loss, reason = "cycles, counts and lengths below 2^52")]

mod cell;
mod count;
mod cpu;
mod figures;
mod job;
mod measure;
mod numbers;
mod packets;
mod pair;
mod paper;
mod report;
mod spec;

use std::env;
use std::num::NonZero;
use std::process::{Command, ExitCode};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::experiment::{Figures, LOAD, Origin, Results, Size, Study, campaign, machine};
use cell::Cell;
use paper::Paper;
use report::Report;
use spec::Run;

/// Where the cycles of each PDU go: the figures of a paper on a software iSCSI implementation, measured again.
///
/// Writes sandbox.md and its plots. A run that was interrupted goes on where it was; remove the file of results to
/// begin again. Needs valgrind.
#[derive(Clone, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    study: Study,
    /// Measure nothing but one cell, like data-in/shipping/8192/cold, and print its cycles
    #[arg(long, value_name = "WORK/DIGEST/BYTES/CACHES", conflicts_with_all = ["quick", "smallest", "report"])]
    cell: Option<Cell>,
    /// Count the cell's instructions and misses under callgrind instead
    #[arg(long, requires = "cell")]
    count: bool,
    /// Kind of work to run under callgrind
    #[arg(long, requires = "cell", hide = true)]
    under_callgrind: bool,
}

/// Forty commands, this many times, in one process.
const TIMES: usize = 5;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match &options.cell {
        Some(cell) if options.under_callgrind => measure::under_callgrind(cell)?,
        Some(cell) if options.count => println!("{}", serde_json::to_string(&count::counts(cell)?)?),
        Some(cell) => println!("{}", serde_json::to_string(&measure::cycles(cell, TIMES)?)?),
        None => return campaign(&options.study),
    }
    Ok(ExitCode::SUCCESS)
}

fn campaign(study: &Study) -> Result<ExitCode> {
    let paper = Paper::load()?;
    let results = study.results("sandbox", |file, size| {
        let mut results = Results::open(file, &Origin::of_this_program()?)?;
        measure_all(&mut results, size, study.runs.map_or(size.runs(), usize::from))?;
        Ok(results)
    })?;
    study.publish("sandbox", &Report::new(&paper, study.size(), &results))
}

/// Makes all measurements in cycles, in rounds over all of them, so that what changes on the machine meanwhile meets
/// all. Then makes the counts, once, on all cores: other load does not change them.
fn measure_all(results: &mut Results, size: Size, runs: usize) -> Result<()> {
    let (timed, counted): (Vec<Run>, Vec<Run>) =
        spec::runs(size).into_iter().partition(|run| matches!(run, Run::Cycles(_)));
    let missing = |run: &Run, wanted: usize| wanted.saturating_sub(results.runs(run).len());
    let uncounted: Vec<&Run> = counted.iter().filter(|run| missing(run, 1) > 0).collect();
    let all = timed.iter().map(|run| missing(run, runs)).sum::<usize>() + uncounted.len();
    let progress = campaign::progress(all as u64);
    for round in 1..=runs {
        for run in &timed {
            if results.runs(run).len() < round {
                progress.set_message(run.to_string());
                results.record(run, in_own_process(run.cell())?)?;
                progress.inc(1);
            }
        }
    }
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    for some in uncounted.chunks(cores) {
        for (run, figures) in some.iter().zip(counts_of(some)) {
            results.record(run, figures?)?;
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(())
}

/// Counts these cells, all at once.
fn counts_of(runs: &[&Run]) -> Vec<Result<Figures>> {
    thread::scope(|scope| {
        let counting: Vec<_> = runs.iter().map(|run| scope.spawn(|| count::counts(run.cell()))).collect();
        let ended = |of: thread::ScopedJoinHandle<'_, _>| of.join().unwrap_or_else(|_| bail!("a count has panicked"));
        counting.into_iter().map(ended).collect()
    })
}

/// Measures a cell in a process of its own, so that no measurement finds the heap as another has left it.
fn in_own_process(cell: &Cell) -> Result<Figures> {
    let this = env::current_exe().context("this program has no path")?;
    let load = machine::load();
    let output = Command::new(this).args(["sandbox", "--cell", &cell.to_string()]).output()?;
    if !output.status.success() {
        bail!("measuring {cell} failed: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    let mut figures: Figures = serde_json::from_slice(&output.stdout).context("a measurement printed no figures")?;
    figures.extend(load.map(|load| (LOAD.into(), load)));
    Ok(figures)
}

#[cfg(test)]
mod tests;
