use super::*;
use crate::experiment::Report as _;

/// The report as it is committed, and the results that it was made of.
const PAGE: &str = include_str!("../../../docs/papers/zerocopy.md");
const RESULTS: &str = include_str!("../../../docs/papers/zerocopy.jsonl");

#[test]
fn every_claim_is_judged_by_measurements() {
    let paper = Paper::load().expect("the data file");
    let nothing = Results::parse("").expect("no results");
    let report = Report::new(&paper, Size::Full, &nothing);
    assert!(paper.claims.iter().all(|claim| report.verdict(&claim.id).is_none()), "a verdict without a measurement");
    assert_eq!(report.unmeasured(), plan::chosen(Size::Full).len());
}

/// `lunette-lab zerocopy --report --results docs/papers/zerocopy.jsonl` writes it.
#[test]
fn the_committed_page_is_that_of_the_committed_results() {
    let paper = Paper::load().expect("the data file");
    let results = Results::parse(RESULTS).expect("results");
    let report = Report::new(&paper, Size::Full, &results);
    assert_eq!(report.unmeasured(), 0, "all cells are measured");
    for claim in &paper.claims {
        assert!(report.verdict(&claim.id).is_some(), "{} has no verdict", claim.id);
    }
    let page = report.page().expect("a page");
    for (written, committed) in page.lines().zip(PAGE.lines()) {
        assert_eq!(written, committed);
    }
    assert_eq!(page.lines().count(), PAGE.lines().count());
    assert!(!PAGE.contains("{{"));
}

#[test]
fn each_cell_is_measured_once_in_a_round() {
    for size in [Size::Full, Size::Quick, Size::Smallest] {
        let mut commands: Vec<String> = plan::chosen(size).iter().map(|spec| spec.cell().to_string()).collect();
        let count = commands.len();
        commands.sort();
        commands.dedup();
        assert_eq!(commands.len(), count, "{size:?}");
        assert!(plan::chosen(size).iter().all(|spec| spec.cell().options().is_ok()), "{size:?}");
    }
}

#[test]
fn each_table_has_cells_in_a_smaller_run() {
    for size in [Size::Quick, Size::Smallest] {
        let chosen = plan::chosen(size);
        for (number, table) in [plan::loads(), plan::ways(), plan::remaps(), plan::rewrites(size)].iter().enumerate() {
            assert!(table.iter().any(|spec| chosen.contains(spec)), "{size:?}: {number}");
        }
    }
}
