//! The common part of all experiments: their options, and the way from results to a report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Cell, Origin, Programs, Results, campaign};

/// How much of an experiment is measured, and where its results and its report are.
#[derive(Clone, clap::Args)]
pub(crate) struct Study {
    /// The corners of the tables and figures, each once
    #[arg(long)]
    quick: bool,
    /// A few cells of each table and figure, each once
    #[arg(long, conflicts_with = "quick")]
    smallest: bool,
    /// How often each cell is measured [default: as the report says; fewer with --quick, 1 with --smallest]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=99))]
    pub(crate) runs: Option<u8>,
    /// Print all figures as one line of JSON
    #[arg(long)]
    json: bool,
    /// Measure nothing: write the report of the results that are there
    #[arg(long)]
    pub(crate) report: bool,
    /// The file that keeps the results [default: target/lab/NAME.jsonl]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Where the report goes [default: docs/papers, or target/lab with --quick and --smallest]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

/// An experiment over links: the options of all of them, and its course.
#[derive(Clone, clap::Args)]
pub(crate) struct LinkStudy {
    #[command(flatten)]
    study: Study,
    /// The program to measure [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    lunette: Option<PathBuf>,
}

/// Cells, and how often each is measured in a full campaign; in a smaller one it is measured once.
pub(crate) type Round = (Vec<Cell>, u8);

impl LinkStudy {
    /// Finds the programs before anything is set up.
    pub(crate) fn check(&self) -> Result<()> {
        if self.study.report { Ok(()) } else { self.programs().map(drop) }
    }

    fn programs(&self) -> Result<Programs> {
        Programs::find(self.lunette.as_deref())
    }

    pub(crate) fn size(&self) -> Size {
        self.study.size()
    }

    /// The results of the experiment of that name, after what is missing in its rounds was measured.
    pub(crate) fn results(&self, name: &str, rounds: impl FnOnce(&Programs, Size) -> [Round; 2]) -> Result<Results> {
        self.study.results(name, |file, size| {
            let programs = self.programs()?;
            let mut results = Results::open(file, &Origin::here(&programs)?)?;
            let mut failures = campaign::Failures::default();
            for (cells, in_full) in rounds(&programs, size) {
                let runs = self.study.runs.unwrap_or(if size == Size::Full { in_full } else { 1 });
                failures = failures.and(campaign::run(&cells, runs.into(), &mut results, &programs)?);
            }
            failures.none()?;
            Ok(results)
        })
    }

    /// Writes the report: see [`Study::publish`].
    pub(crate) fn publish(&self, name: &str, report: &dyn Report) -> Result<ExitCode> {
        self.study.publish(name, report)
    }
}

/// How much of an experiment is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Size {
    Full,
    Quick,
    Smallest,
}

/// The findings of a campaign, ready to be written.
pub(crate) trait Report {
    /// The page in Markdown.
    fn page(&self) -> Result<String>;
    /// The plots as SVG, with their names.
    fn plots(&self) -> Result<Vec<(String, String)>>;
    /// The outcome in a few lines.
    fn summary(&self) -> String;
    /// All figures.
    fn figures(&self) -> Result<Value>;
    /// Values of the size's tables and figures that were not measured.
    fn unmeasured(&self) -> usize;
}

/// A page with texts in the places that have their names, such as `{{claims}}`.
pub(crate) fn filled<'a>(page: &str, parts: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let fill = |page: String, (name, text): (&str, String)| page.replace(&format!("{{{{{name}}}}}"), text.trim());
    parts.into_iter().fold(page.to_owned(), fill)
}

impl Study {
    pub(crate) fn size(&self) -> Size {
        match (self.quick, self.smallest) {
            (true, _) => Size::Quick,
            (_, true) => Size::Smallest,
            _ => Size::Full,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.results.clone().unwrap_or_else(|| Path::new("target/lab").join(name).with_extension("jsonl"))
    }

    /// The results of the experiment of that name: those that are there, after `measure` has added what is missing,
    /// unless the options say not to.
    pub(crate) fn results(&self, name: &str, measure: impl FnOnce(&Path, Size) -> Result<Results>) -> Result<Results> {
        let file = self.file(name);
        if self.report { Results::read(&file) } else { measure(&file, self.size()) }
    }

    /// Writes the report on these results: `NAME.md`, its plots, and a copy of the results. Prints the outcome.
    ///
    /// # Errors
    ///
    /// When values are missing, too. The report is written before.
    pub(crate) fn publish(&self, name: &str, report: &dyn Report) -> Result<ExitCode> {
        let folder = self.output.clone();
        let full = self.size() == Size::Full;
        let folder = folder.unwrap_or_else(|| if full { "docs/papers" } else { "target/lab" }.into());
        let page = write(&folder, name, report, &self.file(name))
            .with_context(|| format!("cannot write the report to {}", folder.display()))?;
        let unmeasured = report.unmeasured();
        ensure!(unmeasured == 0, "{unmeasured} values were not measured; run this again without --report");
        if self.json {
            println!("{}", serde_json::to_string(&report.figures()?)?);
        } else {
            println!("{}\nwritten: {}", report.summary(), page.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes page and plots, and a copy of the results beside them. Gives the path of the page.
fn write(folder: &Path, name: &str, report: &dyn Report, results: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let page = folder.join(name).with_extension("md");
    fs::write(&page, report.page()?)?;
    for (name, svg) in report.plots()? {
        fs::write(folder.join(name), svg)?;
    }
    let copy = folder.join(name).with_extension("jsonl");
    // Not `fs::copy`: a file that is copied onto itself is empty then.
    fs::write(copy, fs::read(results)?)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        study: Study,
    }

    struct Stub {
        unmeasured: usize,
    }

    impl Report for Stub {
        fn page(&self) -> Result<String> {
            Ok("# A page\n".into())
        }
        fn plots(&self) -> Result<Vec<(String, String)>> {
            Ok(vec![("stub-1.svg".into(), "<svg/>".into())])
        }
        fn summary(&self) -> String {
            "- It works.".into()
        }
        fn figures(&self) -> Result<Value> {
            Ok(Value::Null)
        }
        fn unmeasured(&self) -> usize {
            self.unmeasured
        }
    }

    fn study(folder: &Path, more: &str) -> Study {
        let results = folder.join("stub.jsonl");
        fs::write(&results, "{\"machine\": \"this machine\"}\n").expect("results");
        let line = format!("lab --output {} --results {} {more}", folder.display(), results.display());
        Arguments::try_parse_from(line.split_whitespace()).expect("options").study
    }

    fn conduct(study: &Study, unmeasured: usize) -> Result<ExitCode> {
        let results = study.results("stub", |file, _| {
            ensure!(!study.report, "nothing is to be measured");
            Results::read(file)
        })?;
        assert_eq!(results.origin(), "this machine; an unknown build");
        study.publish("stub", &Stub { unmeasured })
    }

    #[test]
    fn a_report_is_written_beside_its_results_which_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        for options in ["", "--report"] {
            conduct(&study(folder.path(), options), 0).expect("a report");
            assert_eq!(fs::read_to_string(folder.path().join("stub.md")).expect("a page"), "# A page\n");
            assert!(folder.path().join("stub-1.svg").exists());
            assert!(fs::read_to_string(folder.path().join("stub.jsonl")).expect("results").contains("this machine"));
        }
    }

    #[test]
    fn a_report_with_gaps_is_written_and_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = conduct(&study(folder.path(), "--quick"), 3).expect_err("gaps");
        assert!(error.to_string().starts_with("3 values"), "{error}");
        assert!(folder.path().join("stub.md").exists());
    }
}
