//! The closed form with the parameters of the paper's systems.
//!
//! ```text
//!                              window × S
//! ─────────────────────────────────────────────────────────────────
//! S / speed of one request + k × (round trip + 2 × crossing) + host
//! ```
//!
//! as long as that is less than what the link carries, than what the hosts manage for commands of that length, and, for
//! writes, than what the target takes in one round trip. `k` is the number of round trips of a command; each goes
//! through the emulator twice.

use lunette_tuning::{Settings, Transfer};

use super::paper::{LinkKind, Load, PaperCell, Parameters};

/// The rate of the closed form for a cell of the paper, in MB/s.
pub(super) fn mb_per_s(parameters: &Parameters, cell: &PaperCell) -> f64 {
    let line = match cell.link {
        LinkKind::Oc3 => parameters.oc3_mb_per_s,
        LinkKind::Lan => parameters.lan_mb_per_s,
    };
    commands(parameters, cell).unwrap_or_else(|| stream(parameters, cell)).min(line)
}

/// TCP alone: a window in each round trip. Windows that are no limit make the line one.
fn stream(parameters: &Parameters, cell: &PaperCell) -> f64 {
    const SMALL_WINDOW: u32 = 64 << 10;
    let window = match cell.load {
        _ if cell.window > SMALL_WINDOW => f64::from(cell.window),
        Load::StreamBack => parameters.stream_back_window_bytes,
        _ => parameters.stream_there_window_bytes,
    };
    window / 1e3 / (f64::from(cell.round_trip_ms) + parameters.stream_host_ms)
}

/// Commands: see the module. `None` for TCP alone.
#[expect(clippy::cast_precision_loss, reason = "lengths below 2^52")]
fn commands(parameters: &Parameters, cell: &PaperCell) -> Option<f64> {
    let of_kind = parameters.of(cell.load)?;
    let kilobytes = cell.request_len as f64 / 1e3;
    let window = f64::from(cell.window).min(of_kind.window);
    let round_trips = f64::from(round_trips(parameters.burst_bytes, cell));
    let crossings = match cell.link {
        LinkKind::Oc3 => 2.0 * parameters.crossing_ms,
        LinkKind::Lan => 0.0,
    };
    let trip_ms = f64::from(cell.round_trip_ms) + crossings;
    let alone_ms = kilobytes / parameters.one_request_mb_per_s + round_trips * trip_ms + of_kind.command_ms;
    let busy_ms = kilobytes / parameters.lan_mb_per_s + of_kind.busy_command_ms;
    let by_buffers = match cell.load {
        Load::Reads => f64::INFINITY,
        _ => parameters.write_bytes_per_round_trip / 1e3 / f64::from(cell.round_trip_ms),
    };
    Some((window * kilobytes / alone_ms).min(kilobytes / busy_ms).min(by_buffers))
}

fn round_trips(burst_bytes: u64, cell: &PaperCell) -> u32 {
    let (settings, transfer) = session(burst_bytes, cell);
    settings.trips(transfer)
}

/// The settings of the paper's sessions for a cell, and its direction.
pub(super) fn session(burst_bytes: u64, cell: &PaperCell) -> (Settings, Transfer) {
    let solicited = cell.load == Load::Solicited;
    let settings = Settings {
        request_len: cell.request_len,
        depth: cell.window,
        connections: 1,
        initial_r2t: solicited,
        immediate_data: !solicited,
        first_burst_len: burst_bytes,
        max_burst_len: burst_bytes,
        max_outstanding_r2t: 1,
        max_data_segment_len: 256 << 10,
        digest_len: 0,
    };
    (settings, if cell.load == Load::Reads { Transfer::Read } else { Transfer::Write })
}

/// Whether a computed value would be printed as the paper has it: the paper rounds to few digits.
pub(super) fn prints_as(computed: f64, printed: f64) -> bool {
    let digits = if printed < 0.095 { 2 } else { 1 };
    let scale = 10_f64.powi(digits);
    ((computed * scale).round() - (printed * scale).round()).abs() < 0.5
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wan::paper::{Paper, Whose};

    #[test]
    fn most_cells_come_out_and_each_other_one_is_known() {
        let paper = Paper::load().expect("the data file");
        let cells = paper.cells();
        let is_missed = |cell: &PaperCell| (mb_per_s(&paper.parameters, cell) / cell.mb_per_s - 1.0).abs() > 0.15;
        let distant: Vec<&PaperCell> =
            cells.iter().filter(|cell| (3..=5).contains(&cell.table) && cell.round_trip_ms > 0).collect();
        assert_eq!(distant.len(), 72);
        let missed: Vec<_> = distant.into_iter().filter(|cell| is_missed(cell)).collect();
        assert!(missed.len() <= 5, "{missed:#?}");
        for cell in cells.iter().filter(|cell| is_missed(cell)) {
            let computed = mb_per_s(&paper.parameters, cell);
            let known = prints_as(computed, cell.mb_per_s) || paper.why(Whose::Paper, cell).is_some();
            assert!(known, "{cell:?} is not explained: {computed}");
        }
    }

    #[test]
    fn rounding_is_that_of_the_paper() {
        assert!(prints_as(0.162, 0.2) && prints_as(0.019, 0.02) && prints_as(4.74, 4.7));
        assert!(!prints_as(0.14, 0.2) && !prints_as(0.026, 0.02));
    }
}
