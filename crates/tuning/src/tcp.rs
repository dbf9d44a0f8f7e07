//! What one TCP connection carries under loss.

use crate::path::{CongestionControl, Path};

/// CUBIC's constant C (RFC 9438 section 4.1).
const CUBIC_C: f64 = 0.4;

/// CUBIC's multiplicative decrease (RFC 9438 section 4.6).
const CUBIC_BETA: f64 = 0.7;

/// The loss up to which BBR keeps its rate (BBRv1 by its gain cycle; later versions give way earlier, at 2%).
const BBR_TOLERATED_LOSS: f64 = 0.02;

/// Bytes of payload per second that one connection carries, for its windows and for loss. Infinite without distance.
pub(crate) fn connection_rate(path: &Path) -> f64 {
    path.tcp_window as f64 / path.round_trip.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// Bytes of payload per second that the congestion window of one connection lets pass under random loss. Infinite without loss.
pub(crate) fn loss_rate(path: &Path) -> f64 {
    let round_trip = path.round_trip.as_secs_f64();
    if path.loss <= 0.0 || round_trip == 0.0 {
        return f64::INFINITY;
    }
    let segments = match path.congestion {
        // In the region where Reno is faster CUBIC behaves as Reno does (RFC 9438 section 4.3).
        CongestionControl::Cubic => cubic_window(path.loss, round_trip).max(reno_window(path.loss)),
        CongestionControl::Bbr if path.loss <= BBR_TOLERATED_LOSS => return f64::INFINITY,
        CongestionControl::Bbr | CongestionControl::Reno => reno_window(path.loss),
    };
    segments * path.segment_len() / round_trip
}

/// The mean window in segments (RFC 9438 section 5.1, with one acknowledgement for two segments not assumed).
fn reno_window(loss: f64) -> f64 {
    (1.5 / loss).sqrt()
}

/// The mean window in segments (RFC 9438 section 5.1).
fn cubic_window(loss: f64, round_trip: f64) -> f64 {
    let factor = CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA));
    (factor * (round_trip / loss).powi(3)).powf(0.25)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_windows_are_those_of_rfc_9438() {
        // Tables 1 and 2 there: packets of a mean window at round trips of 10 ms and 100 ms.
        for (loss, reno, at_100_ms, at_10_ms) in
            [(1e-4, 122.47, 187.40, 33.32), (1e-5, 387.3, 1053.8, 187.4), (1e-6, 1224.7, 5926.0, 1053.8)]
        {
            for (ours, theirs) in
                [(reno_window(loss), reno), (cubic_window(loss, 0.1), at_100_ms), (cubic_window(loss, 0.01), at_10_ms)]
            {
                assert!((ours / theirs - 1.0).abs() < 0.01, "{ours} for {theirs} at a loss of {loss}");
            }
        }
    }
}
