//! The rate of one TCP connection under loss.

use crate::path::{CongestionControl, Path};

/// CUBIC's constant C (RFC 9438 section 4.1).
const CUBIC_C: f64 = 0.4;

/// CUBIC's multiplicative decrease (RFC 9438 section 4.6).
const CUBIC_BETA: f64 = 0.7;

/// The loss up to which BBR keeps its rate (BBRv1 by its gain cycle; later versions give way earlier, at 2%).
const BBR_TOLERATED_LOSS: f64 = 0.02;

/// The least loss that is told from none: a packet in 100 GB.
const LEAST_LOSS: f64 = 1e-8;

/// Bytes of payload per second that one connection carries, for its windows and for loss. Infinite without distance.
pub(crate) fn connection_rate(path: &Path) -> f64 {
    path.tcp_window as f64 / path.round_trip.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// Bytes of payload per second that the congestion window of one connection lets pass under random loss. Infinite
/// without loss.
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

/// The loss under which the congestion window of one connection lets `rate` pass, in bytes of payload per second; 0
/// when even the least loss explains no such rate.
pub(crate) fn loss_at(path: &Path, rate: f64) -> f64 {
    // The rate falls with the loss, so halving the interval of its logarithm finds it.
    let (mut least, mut most) = (LEAST_LOSS.ln(), 0.5_f64.ln());
    let is_slower = |loss_ln: f64| loss_rate(&Path { loss: loss_ln.exp(), ..*path }) < rate;
    if is_slower(least) || !loss_rate(&Path { loss: 0.5, ..*path }).is_finite() {
        return 0.0;
    }
    for _ in 0..50 {
        let middle = f64::midpoint(least, most);
        if is_slower(middle) { most = middle } else { least = middle }
    }
    least.exp()
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
    fn the_loss_is_found_from_the_rate() {
        let path = Path { round_trip: std::time::Duration::from_millis(20), ..Path::default() };
        for loss in [1e-6, 5e-4, 0.03] {
            let found = loss_at(&path, loss_rate(&Path { loss, ..path }));
            assert!((found / loss - 1.0).abs() < 1e-6, "{found} for {loss}");
        }
        // A path without distance carries anything, and more than a loss can explain is explained by none.
        assert!(loss_at(&Path { round_trip: std::time::Duration::ZERO, ..path }, 1e6) == 0.0);
        assert!(loss_at(&path, 1e12) == 0.0);
    }

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
