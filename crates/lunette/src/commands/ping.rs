//! `lunette ping`: round trips of NOP-Out and NOP-In.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lunette_initiator::wait;
use serde::Serialize;

use crate::disks::iscsi::failure::remote_failure;
use crate::disks::iscsi::remote::Remote;
use crate::failure::Failure;
use crate::output;

const AFTER_HELP: &str = "\
A round trip goes through login, both protocol stacks and the network, but not to the disk.

Exit codes: 0 all answers came intact, 1 other failure, 2 bad usage, 3 bad secret, 5 the target cannot be reached or
refuses, 6 an answer did not come, 7 an answer differs.";

/// Measure round trips to a target.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    remote: Remote,
    /// Number of pings
    #[arg(long, short = 'c', default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Milliseconds between two
    #[arg(long, value_name = "MS", default_value_t = 200)]
    interval: u64,
    /// Bytes that go there and back
    #[arg(long, value_name = "BYTES", default_value_t = 56, value_parser = clap::value_parser!(u16).range(1..=4096))]
    bytes: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let initiator = arguments.remote.start()?;
    let session = arguments.remote.connect(&initiator)?;
    let mut trips = Vec::new();
    for number in 0..arguments.count {
        if number > 0 {
            thread::sleep(Duration::from_millis(arguments.interval));
        }
        let data = (0..arguments.bytes).map(|at| (number.wrapping_add(at.into()) % 251) as u8).collect();
        let start = Instant::now();
        let intact = wait(session.ping(data)).map_err(remote_failure)?;
        let trip = start.elapsed();
        if !intact {
            return Err(Failure::Mismatch(format!("answer {number} differs from what was sent")));
        }
        if !arguments.json {
            let (bytes, us) = (arguments.bytes, trip.as_secs_f64() * 1e6);
            output::line(format_args!("{bytes} bytes, number {number}: {us:.1} us"))?;
        }
        trips.push(trip);
    }
    print(&Report::new(trips), arguments.json)
}

/// The times of round trips in microseconds.
#[derive(Serialize, Debug, PartialEq)]
struct Report {
    count: usize,
    min_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl Report {
    /// Summarizes at least one round trip.
    fn new(mut trips: Vec<Duration>) -> Self {
        trips.sort_unstable();
        let at = |percent: usize| {
            let index = (trips.len() * percent).div_ceil(100);
            trips[index.clamp(1, trips.len()) - 1].as_secs_f64() * 1e6
        };
        Self { count: trips.len(), min_us: at(0), p50_us: at(50), p90_us: at(90), p99_us: at(99), max_us: at(100) }
    }
}

fn print(report: &Report, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(report);
    }
    let Report { count, min_us, p50_us, p90_us, p99_us, max_us } = report;
    output::line(format_args!(
        "{count} round trips in us: min {min_us:.1}, p50 {p50_us:.1}, p90 {p90_us:.1}, p99 {p99_us:.1}, max {max_us:.1}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let report = Report::new((1..=100).rev().map(Duration::from_micros).collect());
        let figures = [report.min_us, report.p50_us, report.p90_us, report.p99_us, report.max_us];
        assert_eq!(figures.map(|us| us.round() as i64), [1, 50, 90, 99, 100]);
        assert_eq!(Report::new(vec![Duration::from_micros(7)]).p99_us.round() as i64, 7);
    }
}
