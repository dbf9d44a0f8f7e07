//! The committed page, and the results that it is made of.

use super::paper::Paper;
use super::report::Report;
use super::{Size, spec};
use crate::experiment::{Report as _, Results, checks};

const PAGE: &str = include_str!("../../../docs/papers/sandbox.md");
const RESULTS: &str = include_str!("../../../docs/papers/sandbox.jsonl");

/// `lunette-lab sandbox --report --results docs/papers/sandbox.jsonl` writes it.
#[test]
fn the_committed_page_is_that_of_the_committed_results() {
    let (paper, results) = (Paper::load().expect("the data file"), Results::parse(RESULTS).expect("the results"));
    let report = Report::new(&paper, Size::Full, &results);
    checks::committed_page(&report, PAGE);
    let figures = report.figures().expect("figures");
    assert_eq!(figures.as_array().map(Vec::len), Some(spec::runs(Size::Full).len()));
}

#[test]
fn a_page_without_results_says_so() {
    let (paper, results) = (Paper::load().expect("the data file"), Results::parse("").expect("no results"));
    for size in [Size::Full, Size::Quick, Size::Smallest] {
        assert!(Report::new(&paper, size, &results).unmeasured() > 0);
    }
}
