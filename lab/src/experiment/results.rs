//! A file with a JSON line for each run, so that a campaign that was interrupted goes on where it was.

use std::collections::HashMap;
use std::env;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::cell::{LATE, UNREAD, build_of};
use super::{Cell, Figures, LOAD, Programs, Spread, machine};

/// The figures of all runs so far, by the command that measured them.
pub(crate) struct Results {
    runs: HashMap<String, Vec<Figures>>,
    /// The machine and the programs that measured them. `None` until something has.
    origin: Option<Origin>,
    /// `None` for results that are only read.
    file: Option<File>,
}

/// The origin of a measurement: runs of another machine or another build have no median with these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Origin {
    /// CPU, cores and kernel.
    machine: String,
    /// The build of the program. Files from before this was kept have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    build: Option<String>,
}

impl Origin {
    /// The origin for this machine, with these programs.
    pub(crate) fn here(programs: &Programs) -> Result<Self> {
        Ok(Self { machine: machine::describe(), build: Some(programs.build()?) })
    }

    /// The origin for this machine, with this program alone.
    pub(crate) fn of_this_program() -> Result<Self> {
        let this = env::current_exe().context("this program has no path")?;
        Ok(Self { machine: machine::describe(), build: Some(build_of("lunette-lab", &this)?) })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.machine, self.build.as_deref().unwrap_or("an unknown build"))
    }
}

/// A line of the file: the first one says what measured, the others what was measured.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Entry {
    Origin(Origin),
    Run { cell: String, figures: Figures },
}

impl Results {
    /// Reads a file, to which nothing is added.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let what = || format!("cannot read the results in {}", path.display());
        Self::parse(&fs::read_to_string(path).with_context(what)?).with_context(what)
    }

    /// Opens a file to go on with, or makes one. A last line that an interruption has cut is dropped.
    ///
    /// # Errors
    ///
    /// When something else has measured what is in it.
    pub(crate) fn open(path: &Path, origin: &Origin) -> Result<Self> {
        let what = || format!("cannot keep results in {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(what)?;
        }
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(what)?,
        };
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut results = Self::parse(&text[..whole]).with_context(what)?;
        if let Some(other) = results.origin.as_ref().filter(|other| *other != origin) {
            bail!(
                "{} has the results of another build or machine: remove it to begin again, or name another file with --results\n\
                 there: {other}\nhere: {origin}",
                path.display()
            );
        }
        let file = OpenOptions::new().append(true).create(true).open(path).with_context(what)?;
        file.set_len(whole as u64).with_context(what)?;
        results.file = Some(file);
        if results.origin.is_none() {
            results.write(&Entry::Origin(origin.clone()))?;
            results.origin = Some(origin.clone());
        }
        Ok(results)
    }

    /// Reads the lines of a file.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut results = Self { runs: HashMap::new(), origin: None, file: None };
        for (number, line) in text.lines().enumerate() {
            match serde_json::from_str(line).with_context(|| format!("line {} is no run", number + 1))? {
                Entry::Origin(origin) => results.origin = Some(origin),
                Entry::Run { cell, figures } => results.runs.entry(cell).or_default().push(figures),
            }
        }
        Ok(results)
    }

    /// The machine that measured, and the build of the program that was measured.
    pub(crate) fn origin(&self) -> String {
        self.origin.as_ref().map_or("an unknown machine".into(), Origin::to_string)
    }

    /// The values of one figure in all runs of all cells.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = f64> + 'a {
        self.runs.values().flatten().filter_map(move |figures| figures.get(name).copied())
    }

    /// The load averages of the runs, in words; nothing where none was measured.
    pub(crate) fn loads(&self) -> String {
        Spread::of(self.all(LOAD)).map_or(String::new(), |load| {
            format!(" at load averages of {:.1} to {:.1} (median {:.1})", load.least, load.most, load.median)
        })
    }

    /// How late packets were that the relay handed over, in µs, and how many it did not read.
    pub(crate) fn lateness(&self) -> (f64, f64) {
        (Spread::of(self.all(LATE)).map_or(0.0, |late| late.median), self.all(UNREAD).sum())
    }

    /// The least and the most runs of those cells that have some.
    pub(crate) fn least_and_most<'a>(&self, cells: impl IntoIterator<Item = &'a Cell>) -> (usize, usize) {
        let counts = cells.into_iter().map(|cell| self.runs(cell).len()).filter(|count| *count > 0);
        counts.fold((0, 0), |(least, most), count| (if least == 0 { count } else { count.min(least) }, count.max(most)))
    }

    /// The runs of a cell so far: of the command that is its text.
    pub(crate) fn runs(&self, cell: &impl fmt::Display) -> &[Figures] {
        self.runs.get(&cell.to_string()).map_or(&[], Vec::as_slice)
    }

    /// Keeps a run.
    pub(crate) fn record(&mut self, cell: &impl fmt::Display, figures: Figures) -> Result<()> {
        let cell = cell.to_string();
        self.write(&Entry::Run { cell: cell.clone(), figures: figures.clone() })?;
        self.runs.entry(cell).or_default().push(figures);
        Ok(())
    }

    fn write(&mut self, entry: &Entry) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let line = serde_json::to_string(entry).expect("text and numbers") + "\n";
        file.write_all(line.as_bytes()).context("cannot keep the results of a run")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cell;
    use super::*;

    fn cell(client: &str) -> Cell {
        Cell {
            link: Vec::new(),
            serve: String::new(),
            port: 1,
            prepare: None,
            client: client.into(),
            read: |_| Ok(Figures::new()),
        }
    }

    fn origin(build: &str) -> Origin {
        Origin { machine: "this machine".into(), build: Some(build.into()) }
    }

    fn figures(value: f64) -> Figures {
        Figures::from([("value".into(), value)])
    }

    #[test]
    fn results_go_on_after_a_line_that_was_cut() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("results/wan.jsonl");
        let mut results = Results::open(&path, &origin("1")).expect("a new file");
        results.record(&cell("a"), figures(1.0)).expect("room");
        results.record(&cell("b"), figures(2.0)).expect("room");
        let text = fs::read_to_string(&path).expect("the file");
        fs::write(&path, &text[..text.len() - 5]).expect("the file");

        let mut results = Results::open(&path, &origin("1")).expect("the file");
        assert_eq!(results.runs(&cell("a")), [figures(1.0)]);
        assert!(results.runs(&cell("b")).is_empty());
        results.record(&cell("b"), figures(3.0)).expect("room");
        results.record(&cell("a"), figures(4.0)).expect("room");

        let results = Results::open(&path, &origin("1")).expect("the file");
        assert_eq!(results.runs(&cell("a")), [figures(1.0), figures(4.0)]);
        assert_eq!(results.runs(&cell("b")), [figures(3.0)]);
        assert!((results.all("value").sum::<f64>() - 8.0).abs() < 1e-9);
        assert_eq!(results.origin(), "this machine; 1");
        assert_eq!(Results::read(&path).expect("the file").runs(&cell("a")).len(), 2);
    }

    #[test]
    fn another_build_or_machine_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("wan.jsonl");
        Results::open(&path, &origin("1")).expect("a new file").record(&cell("a"), figures(1.0)).expect("room");
        for other in [origin("2"), Origin { machine: "another".into(), ..origin("1") }] {
            let error = Results::open(&path, &other).err().expect("a refusal").to_string();
            assert!(error.contains("--results") && error.contains(&other.to_string()), "{error}");
        }
        fs::write(&path, "{\"machine\": \"this machine\"}\n").expect("a file without a build");
        assert!(Results::open(&path, &origin("1")).is_err());
        assert_eq!(Results::read(&path).expect("the file").origin(), "this machine; an unknown build");
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        assert!(Results::parse("{\"cell\": \"a\"}\n").is_err());
        assert!(Results::parse("a\n").is_err());
    }
}
