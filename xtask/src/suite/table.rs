//! The table of tests and disks, and its faults.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::disks::Disk;
use super::report::{Outcome, Report};

/// The outcome of every test on every disk.
pub(super) struct Table {
    disks: Vec<&'static str>,
    /// Rows in the suite's order.
    rows: Vec<Row>,
}

struct Row {
    suite: String,
    test: String,
    /// One per disk; `None` where the disk does not take the test.
    outcomes: Vec<Option<Outcome>>,
}

impl Table {
    pub(super) fn new(tests: &[String], disks: &[&'static Disk], reports: &[Report]) -> Self {
        let row = |name: &String| {
            let (suite, test) = name.split_once('.').unwrap_or((name, ""));
            let outcomes = reports.iter().map(|report| report.outcomes.get(name).cloned()).collect();
            Row { suite: suite.into(), test: test.into(), outcomes }
        };
        Self { disks: disks.iter().map(|disk| disk.name).collect(), rows: tests.iter().map(row).collect() }
    }

    /// The number of tests.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The failures, with the disk of each.
    pub(super) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for row in &self.rows {
            for (disk, outcome) in self.disks.iter().zip(&row.outcomes) {
                if let Some(Outcome::Failed(whats)) = outcome {
                    failures.push(format!("FAILED on {disk}: {}: {}", row.name(), whats.join("; ")));
                }
            }
        }
        failures
    }

    /// Tests that run completely on no disk.
    pub(super) fn never_run(&self) -> Vec<String> {
        let runs = |row: &&Row| !row.outcomes.iter().flatten().any(|outcome| !matches!(outcome, Outcome::Skipped(_)));
        let told = |row: &Row| {
            let reasons: Vec<&str> = row.skips().into_iter().collect();
            format!("SKIPPED on every disk: {}: {}", row.name(), reasons.join("; "))
        };
        self.rows.iter().filter(runs).map(told).collect()
    }

    /// The reasons why tests were skipped, each with its tests.
    fn skips(&self) -> BTreeMap<&str, Vec<String>> {
        let mut skips: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for row in &self.rows {
            for reason in row.skips() {
                skips.entry(reason).or_default().push(row.name());
            }
        }
        skips
    }
}

impl Row {
    fn name(&self) -> String {
        format!("{}.{}", self.suite, self.test)
    }

    fn cell(outcome: Option<&Outcome>) -> &'static str {
        match outcome {
            Some(Outcome::Passed) => "pass",
            Some(Outcome::Skipped(_)) => "skip",
            Some(Outcome::Failed(_)) => "FAIL",
            None => "-",
        }
    }

    fn cells(&self) -> Vec<&'static str> {
        self.outcomes.iter().map(|outcome| Self::cell(outcome.as_ref())).collect()
    }

    /// The reasons why the test was skipped, each reason once.
    fn skips(&self) -> BTreeSet<&str> {
        let skips = self.outcomes.iter().flatten().filter_map(|outcome| match outcome {
            Outcome::Skipped(reasons) => Some(reasons),
            _ => None,
        });
        skips.flatten().map(String::as_str).collect()
    }
}

/// The table. Tests of one suite with equal rows share a line.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:22}", "")?;
        for disk in &self.disks {
            write!(f, " {disk:>11}")?;
        }
        writeln!(f)?;
        for rows in self.rows.chunk_by(|a, b| a.suite == b.suite) {
            let mut groups: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
            for row in rows {
                let cells = row.cells();
                match groups.iter_mut().find(|(known, _)| *known == cells) {
                    Some((_, tests)) => tests.push(&row.test),
                    None => groups.push((cells, vec![&row.test])),
                }
            }
            let whole = groups.len() == 1;
            for (cells, tests) in groups {
                write!(f, "{:22}", rows[0].suite)?;
                for cell in cells {
                    write!(f, " {cell:>11}")?;
                }
                let tests = if whole { format!("{} tests", tests.len()) } else { tests.join(" ") };
                writeln!(f, "  {tests}")?;
            }
        }
        for (reason, tests) in self.skips() {
            writeln!(f, "skip: {reason}\n      {}", tests.join(" "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: Option<Outcome> = Some(Outcome::Passed);

    fn row(test: &str, first: Option<Outcome>, second: Option<Outcome>) -> Row {
        Row { suite: "Suite".into(), test: test.into(), outcomes: vec![first, second] }
    }

    fn skipped() -> Outcome {
        Outcome::Skipped(vec!["no medium".into()])
    }

    #[test]
    fn faults_are_named() {
        let failed = Outcome::Failed(vec!["a.c:1".into(), "a.c:2".into()]);
        let rows = vec![
            row("Fine", Some(skipped()), PASSED),
            row("Bad", PASSED, Some(failed)),
            row("Idle", Some(skipped()), None),
            row("Gone", None, None),
        ];
        let table = Table { disks: vec!["one", "two"], rows };
        assert_eq!(table.failures(), ["FAILED on two: Suite.Bad: a.c:1; a.c:2"]);
        let never = ["SKIPPED on every disk: Suite.Idle: no medium", "SKIPPED on every disk: Suite.Gone: "];
        assert_eq!(table.never_run(), never);
    }

    #[test]
    fn equal_rows_are_one_line() {
        let rows = ["A", "B"].map(|test| row(test, Some(skipped()), PASSED));
        let mut table = Table { disks: vec!["one", "two"], rows: rows.into() };
        let text = table.to_string();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.contains("2 tests") && text.contains("no medium\n      Suite.A Suite.B"), "{text}");
        table.rows.push(row("C", None, None));
        let text = table.to_string();
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.contains("A B") && !text.contains("tests"), "{text}");
    }
}
