//! What limits a session, in a sentence.

use indicatif::BinaryBytes;
use lunette_tuning::{Limit, Path, Prediction, Settings};

use super::units::Rate;

/// Says what keeps a session with `settings` from more than `prediction`.
pub(super) fn explain(path: &Path, settings: &Settings, prediction: &Prediction) -> String {
    let rate = Rate(prediction.bytes_per_second);
    let round_trip = format!("{:?}", path.round_trip);
    let len = BinaryBytes(settings.request_len);
    match prediction.limit {
        Limit::Line => format!("the line is full: {rate} of data, the rest is headers"),
        Limit::InFlight => format!(
            "{} of {len} in flight, {} of {round_trip} each: at most {rate}",
            count(prediction.in_flight, "request"),
            count(prediction.trips, "round trip"),
        ),
        Limit::CommandWindow => format!(
            "the target takes {} at a time: {len} each, {} of {round_trip}: at most {rate}",
            count(prediction.in_flight, "command"),
            count(prediction.trips, "round trip"),
        ),
        Limit::TcpWindow => format!(
            "{} with a TCP window of {} over {round_trip}: at most {rate}",
            count(settings.connections, "connection"),
            BinaryBytes(path.tcp_window),
        ),
        Limit::Loss => format!(
            "loss of {}% over {round_trip} keeps the congestion windows small: {} at most {rate}",
            path.loss * 100.0,
            count(settings.connections, "connection"),
        ),
        Limit::CommandCost => format!("the time per command: requests of {len} at most {rate}"),
    }
}

/// A number with its noun.
pub(super) fn count(number: u32, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
