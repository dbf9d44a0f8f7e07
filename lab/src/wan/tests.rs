use super::*;
use crate::experiment::{Results, checks};

/// The report as it is committed, and the results that it was made of.
const PAGE: &str = include_str!("../../../docs/papers/wan.md");
const RESULTS: &str = include_str!("../../../docs/papers/wan.jsonl");

fn committed() -> (Paper, Extras, Results) {
    let paper = Paper::load().expect("the data file");
    let extras = Extras::load().expect("the data file");
    (paper, extras, Results::parse(RESULTS).expect("results"))
}

#[test]
fn each_cell_of_the_paper_is_measured_and_has_a_row() {
    let (paper, extras, results) = committed();
    let terms = ours::Terms::of(paper.parameters.burst_bytes, &paper.round_trips_ms(), &results).expect("terms");
    for cell in paper.cells() {
        let spec = Spec::of_paper(paper.parameters.burst_bytes, &cell);
        assert!(!results.runs(&spec.cell()).is_empty(), "{}", spec.cell());
        let ours = terms.mb_per_s(&spec, &results).expect("a possible link");
        assert!(ours > Some(0.0) && published::mb_per_s(&paper.parameters, &cell) > 0.0, "{cell:?}");
    }
    for spec in extras.specs() {
        assert!(!results.runs(&spec.cell()).is_empty(), "{}", spec.cell());
    }
}

#[test]
fn the_committed_page_has_a_row_for_each_cell() {
    let (paper, extras, _) = committed();
    for cell in paper.cells() {
        let (_, section) = PAGE.split_once(&format!("### Table {}:", cell.table)).expect("a section for each table");
        let section = section.split("\n#").next().unwrap_or_default();
        let row = format!("| {} | {} | {} |", report::name(&cell), cell.round_trip_ms, cell.mb_per_s);
        assert_eq!(section.matches(&row).count(), 1, "Table {}: {row}", cell.table);
    }
    for row in extras.groups.iter().flat_map(|group| &group.rows) {
        assert!(PAGE.contains(&format!("| {} | {} |", row.what, row.spec().round_trip_ms)), "{}", row.what);
    }
}

/// `lunette-lab wan --report --results docs/papers/wan.jsonl` writes it.
#[test]
fn the_committed_page_is_that_of_the_committed_results() {
    let (paper, extras, results) = committed();
    let report = Report::new(&paper, &extras, Size::Full, &results).expect("a report");
    checks::committed_page(&report, PAGE);
    assert!(!PAGE.contains("not explained"));
}

#[test]
fn cells_of_a_campaign_are_all_different() {
    let (paper, extras) = (Paper::load().expect("the data file"), Extras::load().expect("the data file"));
    checks::different_cells(&of_tables(&paper, Size::Full).iter().map(Spec::cell).collect::<Vec<_>>());
    assert!(!extras.specs().is_empty());
}

#[test]
fn the_corners_are_few() {
    let paper = Paper::load().expect("the data file");
    assert_eq!(chosen(&paper, Size::Quick).len(), 4 + 4 + 3 * 8 + 12);
    assert_eq!(chosen(&paper, Size::Smallest).len(), 6);
}
