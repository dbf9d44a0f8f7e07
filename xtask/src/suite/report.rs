//! The parser of the tool's output.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

/// The outcome of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// The test left out all or part of its actions, for these reasons.
    Skipped(Vec<String>),
    /// The test failed on these assertions.
    Failed(Vec<String>),
}

/// The outcomes of tests, `SUITE.TEST`, on one disk.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) outcomes: BTreeMap<String, Outcome>,
}

impl Report {
    /// Adds the output of one run (`-v -V`). Fails when the run did not finish.
    ///
    /// A test begins with a line `  Test: NAME ...`, perhaps with its first message behind, and ends with a line that
    /// begins with `passed` or `FAILED`. After the latter come numbered lines with the failed assertions. Output
    /// between tests does not count, nor do the notes `[FAILED]` about single commands, which may be meant to fail.
    pub(super) fn add(&mut self, output: &str) -> Result<()> {
        let mut suite = "";
        let mut test = None;
        for line in output.lines() {
            if let Some(name) = line.strip_prefix("Suite: ") {
                suite = name.trim();
            } else if let Some((name, rest)) = line.strip_prefix("  Test: ").and_then(|rest| rest.split_once(" ...")) {
                self.close(test.take());
                test = Some(Test { name: format!("{suite}.{name}"), ..Test::default() });
                self.line(&mut test, rest);
            } else {
                self.line(&mut test, line);
            }
        }
        self.close(test);
        let Some(summary) = output.lines().find_map(|line| line.trim_start().strip_prefix("tests ")) else {
            bail!("the tool ended before its summary");
        };
        let numbers: Vec<&str> = summary.split_whitespace().collect();
        match numbers[..] {
            [total, ran, ..] if total == ran && total != "0" => Ok(()),
            _ => bail!("the tool did not run all tests: {summary}"),
        }
    }

    /// Handles a line that belongs to `test`, if it belongs to one.
    fn line(&mut self, test: &mut Option<Test>, line: &str) {
        let Some(current) = test.as_mut() else { return };
        if let Some(failures) = &mut current.failures {
            match numbered(line) {
                Some(assertion) => failures.push(assertion.into()),
                None => self.close(test.take()),
            }
        } else if line.starts_with("passed") {
            let Test { name, skipped, .. } = std::mem::take(current);
            let outcome = if skipped.is_empty() { Outcome::Passed } else { Outcome::Skipped(skipped) };
            self.outcomes.insert(name, outcome);
            *test = None;
        } else if line.starts_with("FAILED") {
            current.failures = Some(Vec::new());
        } else if let Some((_, reason)) = line.split_once("[SKIPPED]") {
            let reason = reason.trim().to_owned();
            if !current.skipped.contains(&reason) {
                current.skipped.push(reason);
            }
        }
    }

    /// Records a test at its end. A test that has not passed by then has failed.
    fn close(&mut self, test: Option<Test>) {
        let Some(test) = test else { return };
        let failures = test.failures.unwrap_or_else(|| vec!["it has no end".into()]);
        self.outcomes.insert(test.name, Outcome::Failed(failures));
    }
}

#[derive(Debug, Default)]
struct Test {
    name: String,
    skipped: Vec<String>,
    /// The failed assertions, once the test has failed.
    failures: Option<Vec<String>>,
}

/// Parses `    1. file.c:62  - CU_ASSERT_EQUAL(ret,0)`, without its number.
fn numbered(line: &str) -> Option<&str> {
    let (number, what) = line.trim_start().split_once(". ")?;
    // The output of the tool's next action may follow on the same line.
    let what = what.split("    ").next()?;
    (line.starts_with("    ") && number.parse::<u32>().is_ok()).then_some(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Suite: Inquiry
  Test: Standard ...
    Send INQUIRY (Expecting SUCCESS)
    [OK] INQUIRY returned SUCCESS
passed    Send PRIN/READ_KEYS
    [FAILED] PRIN command: failed with sense. SENSE KEY:UNIT_ATTENTION(6)
  Test: Quick ...passed
Suite: Unmap
  Test: Simple ...    [SKIPPED] No.
    [SKIPPED] No.
    [SKIPPED] Not at all.
passed
  Test: Bad ...
    [FAILED] WRITE10 command failed
FAILED
    1. bad.c:62  - CU_ASSERT_EQUAL(ret,0)
    2. bad.c:63  - CU_FAIL(\"no\")
  Test: Worse ...FAILED
    1. worse.c:1  - CU_FAIL(\"no\")    Send PRIN/READ_KEYS
    Send PRIN/READ_KEYS
    1. this belongs to nothing

Run Summary:    Type  Total    Ran Passed Failed Inactive
               tests      5      5      3      2        0
";

    #[test]
    fn outcomes_are_read() {
        let mut report = Report::default();
        report.add(OUTPUT).unwrap();
        let failed = |whats: &[&str]| Outcome::Failed(whats.iter().map(|what| (*what).to_owned()).collect());
        let expected = [
            ("Inquiry.Quick", Outcome::Passed),
            ("Inquiry.Standard", Outcome::Passed),
            ("Unmap.Bad", failed(&["bad.c:62  - CU_ASSERT_EQUAL(ret,0)", "bad.c:63  - CU_FAIL(\"no\")"])),
            ("Unmap.Worse", failed(&["worse.c:1  - CU_FAIL(\"no\")"])),
            ("Unmap.Simple", Outcome::Skipped(vec!["No.".into(), "Not at all.".into()])),
        ];
        for (name, outcome) in expected {
            assert_eq!(report.outcomes[name], outcome, "{name}");
        }
        assert_eq!(report.outcomes.len(), 5);
    }

    #[test]
    fn a_run_that_breaks_off_is_an_error() {
        let broken = &OUTPUT[..OUTPUT.find("passed").unwrap()];
        let mut report = Report::default();
        assert!(report.add(broken).is_err());
        assert_eq!(report.outcomes["Inquiry.Standard"], Outcome::Failed(vec!["it has no end".into()]));
        assert!(Report::default().add(&OUTPUT.replace("5      5", "5      4")).is_err());
        assert!(Report::default().add(&OUTPUT.replace("5      5", "0      0")).is_err());
        assert!(Report::default().add("").is_err());
    }
}
