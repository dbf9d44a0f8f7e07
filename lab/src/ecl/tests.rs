use super::*;
use crate::experiment::{Report as _, Results, checks};

/// The report as it is committed, and the results that it was made of.
const PAGE: &str = include_str!("../../../docs/papers/ecl.md");
const RESULTS: &str = include_str!("../../../docs/papers/ecl.jsonl");

#[test]
fn every_claim_is_judged_by_measurements() {
    let paper = Paper::load().expect("the data file");
    let nothing = Results::parse("").expect("no results");
    let report = Report::new(&paper, Size::Full, &nothing);
    checks::verdicts(&report, false);
    assert_eq!(report.unmeasured(), plan::chosen(Size::Full).iter().filter(|spec| spec.program().is_none()).count());
}

/// `lunette-lab ecl --report --results docs/papers/ecl.jsonl` writes it.
#[test]
fn the_committed_page_is_that_of_the_committed_results() {
    let (paper, results) = (Paper::load().expect("the data file"), Results::parse(RESULTS).expect("results"));
    let report = Report::new(&paper, Size::Full, &results);
    checks::verdicts(&report, true);
    checks::committed_page(&report, PAGE);
}

#[test]
fn each_cell_is_measured_once_in_a_round() {
    for size in [Size::Full, Size::Quick, Size::Smallest] {
        checks::different_cells(&plan::chosen(size).iter().map(Spec::cell).collect::<Vec<_>>());
    }
}

#[test]
fn each_figure_has_cells_in_a_quick_run() {
    let quick = plan::chosen(Size::Quick);
    for (number, figure) in plan::all().iter().enumerate() {
        assert!(figure.iter().any(|spec| quick.contains(spec)), "figure {number}");
    }
}
