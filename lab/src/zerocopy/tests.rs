use super::*;
use crate::experiment::Report as _;

#[test]
fn every_claim_is_judged_by_measurements() {
    let paper = Paper::load().expect("the data file");
    let nothing = Results::parse("").expect("no results");
    let report = Report::new(&paper, Size::Full, &nothing);
    assert!(paper.claims.iter().all(|claim| report.verdict(&claim.id).is_none()), "a verdict without a measurement");
    assert_eq!(report.unmeasured(), plan::chosen(Size::Full).len());
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
