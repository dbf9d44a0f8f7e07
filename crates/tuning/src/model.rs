//! The closed form.

use std::fmt;
use std::time::Duration;

use crate::path::{Path, Target};
use crate::settings::{Settings, Transfer};
use crate::tcp;

/// The limit of a session's throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// The line is full.
    Line,
    /// Requests in flight: their number times their length is less than the path holds.
    InFlight,
    /// The target's command window lets fewer requests be in flight than are wanted.
    CommandWindow,
    /// The buffers of the sockets.
    TcpWindow,
    /// The congestion windows, which losses keep small.
    Loss,
    /// The time that target and initiator spend on each command.
    CommandCost,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Line => "the line",
            Self::InFlight => "requests in flight",
            Self::CommandWindow => "the target's command window",
            Self::TcpWindow => "TCP windows",
            Self::Loss => "loss of packets",
            Self::CommandCost => "the time per command",
        })
    }
}

/// The model's prediction for a session, with the terms it is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Bytes of data per second.
    pub bytes_per_second: f64,
    /// The limit that holds.
    pub limit: Limit,
    /// The time of one request that is alone.
    pub request_time: Duration,
    /// The part of that time which its bytes need on the line.
    pub serialisation: Duration,
    /// Round trips of one request.
    pub trips: u32,
    /// Requests in flight: those that are wanted, or fewer when the command window is smaller.
    pub in_flight: u32,
    /// Bytes of data per second that the line could carry.
    pub line: f64,
}

/// Computes the throughput of one session that has nothing but requests of one length under way, for long.
pub fn predict(path: &Path, target: &Target, settings: &Settings, transfer: Transfer) -> Prediction {
    let len = settings.request_len as f64;
    let efficiency = len / settings.payload_len(transfer) as f64;
    let line = path.payload_rate() * efficiency;
    let serialisation = len / line;
    let trips = settings.trips(transfer);
    let round_trip_s = path.round_trip.as_secs_f64();
    // The first R2T is under way while the unsolicited data still is.
    let unsolicited = if trips > 1 { settings.unsolicited_len() as f64 / line } else { 0.0 };
    let overlap_s = unsolicited.min(round_trip_s);
    let request_s = serialisation + f64::from(trips) * round_trip_s - overlap_s + target.latency.as_secs_f64();
    let in_flight = settings.depth.min(target.command_window);
    let connections = f64::from(settings.connections.max(1));
    let limits = [
        (Limit::Line, line),
        (
            if in_flight < settings.depth { Limit::CommandWindow } else { Limit::InFlight },
            f64::from(in_flight) * len / request_s,
        ),
        (Limit::TcpWindow, connections * tcp::connection_rate(path) * efficiency),
        (Limit::Loss, connections * tcp::loss_rate(path) * efficiency),
        (Limit::CommandCost, len / target.command_cost.as_secs_f64()),
    ];
    let (limit, bytes_per_second) =
        limits.into_iter().reduce(|least, next| if next.1 < least.1 { next } else { least }).expect("there are limits");
    Prediction {
        bytes_per_second,
        limit,
        request_time: duration(request_s),
        serialisation: duration(serialisation),
        trips,
        in_flight,
        line,
    }
}

/// A time in seconds, which a path without a rate makes longer than any.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CongestionControl;

    /// 155 Mb/s and windows of 10 MB: the link of the paper in docs/papers/wan.md.
    fn oc3(round_trip_ms: u64) -> Path {
        let round_trip = Duration::from_millis(round_trip_ms);
        Path { rate: 155e6 / 8.0, round_trip, tcp_window: 10 << 20, ..Path::default() }
    }

    fn at(path: &Path, settings: &Settings, transfer: Transfer) -> (f64, Limit) {
        let target = Target { latency: Duration::from_micros(400), ..Target::default() };
        let prediction = predict(path, &target, settings, transfer);
        (prediction.bytes_per_second / 1e6, prediction.limit)
    }

    #[test]
    fn cells_of_the_paper_come_out() {
        let read = |len: u64, depth| Settings { request_len: len << 10, depth, ..Settings::default() };
        for (settings, round_trip_ms, transfer, paper) in [
            (read(1, 1), 10, Transfer::Read, 0.1),
            (read(8, 1), 10, Transfer::Read, 0.8),
            (read(64, 1), 2, Transfer::Read, 11.3),
            (read(64, 1), 50, Transfer::Read, 1.2),
            (read(256, 1), 50, Transfer::Read, 4.1),
            (Settings { immediate_data: false, ..read(8, 1) }, 50, Transfer::Write, 0.08),
            (Settings { immediate_data: false, ..read(64, 1) }, 10, Transfer::Write, 2.7),
        ] {
            let (ours, _) = at(&oc3(round_trip_ms), &settings, transfer);
            assert!((ours / paper - 1.0).abs() < 0.15, "{settings:?} at {round_trip_ms} ms: {ours}, not {paper}");
        }
    }

    #[test]
    fn the_limit_that_holds_is_named() {
        let full = Settings { request_len: 1 << 20, depth: 128, ..Settings::default() };
        let lossy = Path { loss: 1e-3, ..oc3(50) };
        for (path, settings, limit) in [
            (oc3(50), full, Limit::Line),
            (oc3(50), Settings { depth: 1, ..full }, Limit::InFlight),
            (oc3(50), Settings { depth: 200, request_len: 4 << 10, ..full }, Limit::CommandWindow),
            (Path { tcp_window: 64 << 10, ..oc3(50) }, full, Limit::TcpWindow),
            (lossy, full, Limit::Loss),
            (Path { congestion: CongestionControl::Bbr, ..lossy }, full, Limit::Line),
            (Path::default(), Settings { request_len: 512, ..full }, Limit::CommandCost),
        ] {
            assert_eq!(at(&path, &settings, Transfer::Read).1, limit, "{path:?} {settings:?}");
        }
    }

    #[test]
    fn the_first_r2t_comes_while_unsolicited_data_is_sent() {
        let settings = Settings {
            request_len: 256 << 10,
            depth: 1,
            initial_r2t: false,
            first_burst_len: 128 << 10,
            max_burst_len: 128 << 10,
            max_data_segment_len: 256 << 10,
            ..Settings::default()
        };
        // 128 KiB take 7 ms on the line, the other half 7 ms more: measured 27.8 ms, 108.8 ms and 16.9 ms.
        for (round_trip_ms, request_ms) in [(10, 27.4), (50, 107.4), (2, 16.4)] {
            let target = Target { latency: Duration::from_micros(400), ..Target::default() };
            let prediction = predict(&oc3(round_trip_ms), &target, &settings, Transfer::Write);
            let ours_ms = prediction.request_time.as_secs_f64() * 1e3;
            assert!((ours_ms - request_ms).abs() < 0.2, "{ours_ms} ms for {request_ms}");
        }
    }

    #[test]
    fn connections_lift_what_each_of_them_is_limited_by() {
        let path = Path { loss: 1e-3, ..oc3(50) };
        let settings = Settings { request_len: 1 << 20, depth: 128, ..Settings::default() };
        let (one, _) = at(&path, &settings, Transfer::Read);
        let (four, _) = at(&path, &Settings { connections: 4, ..settings }, Transfer::Read);
        assert!((four / one - 4.0).abs() < 1e-9);
    }
}
