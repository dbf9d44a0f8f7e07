//! Log pages: the table of supported pages, filled from the counters of the unit (SPC-5 7.3, SBC-4 6.4).

use lunette_scsi::log::{PageCode, PageControl, Parameter};

use std::sync::atomic::Ordering;

use crate::counts::{Access, CommandKind, Field};
use crate::unit::LogicalUnit;
use crate::unit::space;

/// A row of the table of log pages.
pub(crate) struct LogPage {
    pub(crate) code: PageCode,
    /// Builds the parameters, in the order of their codes.
    pub(crate) parameters: fn(&LogicalUnit, PageControl) -> Vec<Parameter>,
}

/// The pages, in the order of their codes. The lists of pages, which are generated from this table, are not in it.
pub(crate) static PAGES: [LogPage; 8] = [
    page(PageCode::WRITE_ERRORS, |unit, control| errors(unit, Access::Write, control)),
    page(PageCode::READ_ERRORS, |unit, control| errors(unit, Access::Read, control)),
    page(PageCode::VERIFY_ERRORS, |unit, control| errors(unit, Access::Verify, control)),
    page(PageCode::LOGICAL_BLOCK_PROVISIONING, |unit, _| provisioning(unit)),
    page(PageCode::TEMPERATURE, |_, _| temperature()),
    page(PageCode::START_STOP_CYCLES, |unit, _| cycles(unit)),
    page(PageCode::BACKGROUND_SCAN, |unit, _| background_scan(unit)),
    page(PageCode::GENERAL_STATISTICS, |unit, _| general_statistics(unit)),
];

const fn page(code: PageCode, parameters: fn(&LogicalUnit, PageControl) -> Vec<Parameter>) -> LogPage {
    LogPage { code, parameters }
}

/// Error counters (SPC-5 7.3.7). A store does not report the errors that it corrects, so all errors count as
/// uncorrected. No counter has a threshold, which is reported as the largest value.
fn errors(unit: &LogicalUnit, access: Access, control: PageControl) -> Vec<Parameter> {
    const TOTAL_BYTES: u16 = 5;
    const TOTAL_UNCORRECTED: u16 = 6;
    let counts = unit.counters().since_reset();
    (0..=TOTAL_UNCORRECTED)
        .map(|code| {
            let value = match (control, code) {
                (PageControl::Threshold | PageControl::DefaultThreshold, _) => u64::MAX,
                (PageControl::Cumulative, TOTAL_BYTES) => counts.get(Field::bytes(access)),
                (PageControl::Cumulative, TOTAL_UNCORRECTED) => counts.get(Field::errors(access)),
                _ => 0,
            };
            Parameter::counter(code, value)
        })
        .collect()
}

/// Available and used resources, where the store reports them. Other users may share the file system.
fn provisioning(unit: &LogicalUnit) -> Vec<Parameter> {
    const AVAILABLE: u16 = 1;
    const USED: u16 = 2;
    let Some(space) = unit.space() else { return Vec::new() };
    vec![
        Parameter::resource_count(AVAILABLE, space::sets(space.free_bytes), true),
        Parameter::resource_count(USED, space::sets(space.used_bytes), false),
    ]
}

/// Temperature and reference temperature, both "not available": a store has no thermometer.
fn temperature() -> Vec<Parameter> {
    const NOT_AVAILABLE: u8 = 0xff;
    vec![Parameter::binary(0, &[0, NOT_AVAILABLE]), Parameter::binary(1, &[0, NOT_AVAILABLE])]
}

/// Start-stop cycles and ejections of the medium. No lifetime of such cycles is specified.
fn cycles(unit: &LogicalUnit) -> Vec<Parameter> {
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes();
    let counters = unit.counters();
    [(3, 0), (4, counters.stops.load(Ordering::Relaxed)), (5, 0), (6, counters.unloads.load(Ordering::Relaxed))]
        .map(|(code, value)| Parameter::binary(code, &number(value)))
        .to_vec()
}

/// Status of the background scan: none is active and none has run; the power on time is that of the unit.
fn background_scan(unit: &LogicalUnit) -> Vec<Parameter> {
    let minutes = u32::try_from(unit.clock().uptime().as_secs() / 60).unwrap_or(u32::MAX);
    vec![Parameter::binary(0, &[&minutes.to_be_bytes()[..], &[0; 8]].concat())]
}

/// Commands and blocks. Processing and idle intervals are not measured: they are zero, as is the unit of time that they
/// would count in.
fn general_statistics(unit: &LogicalUnit) -> Vec<Parameter> {
    let (counts, block_size) = (unit.counters().since_reset(), u64::from(unit.block_size()));
    let values = [
        counts.succeeded(CommandKind::Read),
        counts.succeeded(CommandKind::Write),
        counts.written_bytes() / block_size,
        counts.read_bytes() / block_size,
    ];
    let statistics: Vec<u8> = values.into_iter().chain([0; 4]).flat_map(u64::to_be_bytes).collect();
    let (idle_intervals, interval) = ([0; 8], [0; 8]);
    vec![Parameter::binary(1, &statistics), Parameter::binary(2, &idle_intervals), Parameter::binary(3, &interval)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(PAGES.is_sorted_by(|before, after| before.code < after.code));
    }
}
