//! The path as the trials show it.

use std::time::Duration;

use super::Trial;
use crate::path::Path;
use crate::settings::Transfer;
use crate::tcp;

/// More connections carry at least this much more when each of them is held back by loss.
const LOSS_SHOWS: f64 = 1.3;

/// The share of its window that a connection carries at most when something else than the window holds it back.
const BELOW_WINDOW: f64 = 0.6;

/// Over a shorter path a loss is repaired too soon to hold a connection back.
const LEAST_ROUND_TRIP: Duration = Duration::from_millis(1);

/// The path with the rate that the fastest trial showed, and with the loss that explains why one connection carries
/// less than several.
///
/// A loss that was measured stays. Without a trial the path is as it was.
pub fn estimate(path: &Path, trials: &[Trial]) -> Path {
    let most = trials.iter().filter_map(|trial| Some(trial.rates?.most() * overhead(trial))).fold(0.0, f64::max);
    if most == 0.0 {
        return *path;
    }
    let known = Path { rate: path.rate * most / path.payload_rate(), ..*path };
    // One trial under loss says little: all of the same settings count.
    let first = trials.first().map(|trial| trial.candidate).filter(|candidate| candidate.settings.connections == 1);
    let same: Vec<f64> =
        trials.iter().filter(|trial| Some(trial.candidate) == first).filter_map(reads_on_the_wire).collect();
    let single = (!same.is_empty()).then(|| same.iter().sum::<f64>() / same.len() as f64);
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

/// Bytes of TCP payload for each one of data.
fn overhead(trial: &Trial) -> f64 {
    let settings = &trial.candidate.settings;
    settings.payload_len(Transfer::Read) as f64 / settings.request_len.max(1) as f64
}

/// Reads alone: the congestion control of the target decides them, whatever this side tries.
fn reads_on_the_wire(trial: &Trial) -> Option<f64> {
    Some(trial.rates?.read * overhead(trial))
}
