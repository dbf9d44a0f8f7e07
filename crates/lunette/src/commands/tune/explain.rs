//! The limit of a session, in a sentence.

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
            "loss of {} over {round_trip} keeps the congestion windows small: {} at most {rate}",
            percent(path.loss),
            count(settings.connections, "connection"),
        ),
        Limit::CommandCost => format!("the time per command: requests of {len} at most {rate}"),
    }
}

/// A share in percent, with two digits that mean something.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let (mut digits, mut first) = (1, percent);
    while first < 1.0 && digits < 9 {
        (digits, first) = (digits + 1, first * 10.0);
    }
    let text = format!("{percent:.digits$}");
    format!("{}%", if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text })
}

/// A number with its noun.
pub(super) fn count(number: u32, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_two_digits() {
        for (share, text) in
            [(0.0005, "0.05%"), (0.000_219_439, "0.022%"), (0.1, "10%"), (0.017, "1.7%"), (1e-8, "0.000001%")]
        {
            assert_eq!(percent(share), text);
        }
    }
}
