//! The path as the trials show it.

use std::time::Duration;

use super::Trial;
use crate::path::Path;
use crate::tcp;

/// More connections carry at least this much more when each of them is held back by loss.
const LOSS_SHOWS: f64 = 1.3;

/// The share of its window that a connection carries at most when something else than the window holds it back.
const BELOW_WINDOW: f64 = 0.6;

/// Over a shorter path a loss is repaired too soon to hold a connection back.
const LEAST_ROUND_TRIP: Duration = Duration::from_millis(1);

/// The path with the rate that the fastest trial showed, and with the loss that explains why one connection carries less than several.
///
/// A loss that was measured stays. Without a trial the path is as it was.
pub fn estimate(path: &Path, trials: &[Trial]) -> Path {
    let on_the_wire = |trial: &Trial| {
        let settings = &trial.candidate.settings;
        let overhead = settings.payload_len() as f64 / settings.request_len.max(1) as f64;
        trial.rates.map(|rates| rates.most() * overhead)
    };
    let most = trials.iter().filter_map(on_the_wire).fold(0.0, f64::max);
    if most == 0.0 {
        return *path;
    }
    let known = Path { rate: path.rate * most / path.payload_rate(), ..*path };
    let single = trials.first().filter(|trial| trial.candidate.settings.connections == 1).and_then(on_the_wire);
    match single {
        Some(single)
            if known.loss == 0.0
                && known.round_trip >= LEAST_ROUND_TRIP
                && most > LOSS_SHOWS * single
                && single < BELOW_WINDOW * tcp::connection_rate(&known) =>
        {
            Path { loss: tcp::loss_at(&known, single), ..known }
        }
        _ => known,
    }
}
