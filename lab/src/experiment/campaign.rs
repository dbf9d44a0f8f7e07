//! Runs cells until each has the runs that are asked for.

use std::io::{IsTerminal, stderr};

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Cell, Figures, Programs, Results};

/// Attempts for each run: a machine that was too slow for a moment is no reason to end.
const ATTEMPTS: usize = 2;

/// The runs that failed, each with its command and what was wrong.
#[derive(Default)]
#[must_use]
pub(crate) struct Failures(Vec<String>);

impl Failures {
    /// Adds those of another part of the campaign that are not the same.
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self.0.sort();
        self.0.dedup();
        self
    }

    /// An error that names the failures, if there are any.
    pub(crate) fn none(self) -> Result<()> {
        let Self(failures) = self;
        if failures.is_empty() {
            return Ok(());
        }
        bail!(
            "{} runs failed; the others are kept, so run this again to repeat them:\n{}",
            failures.len(),
            failures.join("\n")
        )
    }
}

/// Runs each cell as often as `runs` says, in rounds over all cells, so that what changes on the machine meanwhile
/// meets all of them. Runs that `results` has already are not repeated.
///
/// A cell that fails does not stop the others: it is one of the failures.
///
/// # Errors
///
/// When results cannot be kept.
pub(crate) fn run(cells: &[Cell], runs: usize, results: &mut Results, programs: &Programs) -> Result<Failures> {
    let missing: usize = cells.iter().map(|cell| runs.saturating_sub(results.runs(cell).len())).sum();
    let progress = progress(missing as u64);
    let mut failures = Failures::default();
    for round in 1..=runs {
        for cell in cells {
            if results.runs(cell).len() >= round {
                continue;
            }
            progress.set_message(cell.link.join(" "));
            match attempt(cell, programs) {
                Ok(figures) => results.record(cell, figures)?,
                Err(error) => failures.0.push(format!("{cell}: {error:#}")),
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(failures)
}

fn attempt(cell: &Cell, programs: &Programs) -> Result<Figures> {
    for _ in 1..ATTEMPTS {
        if let Ok(figures) = cell.run(programs) {
            return Ok(figures);
        }
    }
    cell.run(programs)
}

/// The progress of that number of runs, on terminals alone.
pub(crate) fn progress(length: u64) -> ProgressBar {
    let target = if stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{pos}/{len} {wide_bar} {eta} {msg}").expect("a valid template");
    ProgressBar::with_draw_target(Some(length), target).with_style(style)
}
