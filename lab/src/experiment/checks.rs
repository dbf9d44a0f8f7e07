//! Checks that the tests of all experiments share.

use std::collections::HashSet;

use super::paper::Judge;
use super::{Cell, Report};

/// The committed page is that of the committed results, which have all cells.
pub(crate) fn committed_page(report: &dyn Report, committed: &str) {
    assert_eq!(report.unmeasured(), 0, "all cells are measured");
    let page = report.page().expect("a page");
    for (written, committed) in page.lines().zip(committed.lines()) {
        assert_eq!(written, committed);
    }
    assert_eq!(page.lines().count(), committed.lines().count());
    assert!(!committed.contains("{{"));
}

/// Each claim of the paper has a verdict, or none of them has.
pub(crate) fn verdicts(report: &impl Judge, are_there: bool) {
    for claim in report.claims() {
        assert_eq!(report.verdict(&claim.id).is_some(), are_there, "{}", claim.id);
    }
}

/// The cells differ, and their commands have valid options.
pub(crate) fn different_cells(cells: &[Cell]) {
    let commands: HashSet<String> = cells.iter().map(Cell::to_string).collect();
    assert_eq!(commands.len(), cells.len());
    assert!(cells.iter().all(|cell| cell.options().is_ok()));
}
