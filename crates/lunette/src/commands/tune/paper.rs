//! The settings for a path of which the figures are known: the model alone, nothing is measured.

use lunette_tuning::{Bounds, Candidate, Path, Prediction, Settings, Target, Transfer, predict, recommend};
use serde::Serialize;

use super::Arguments;
use super::candidates::{plain, unset};
use super::explain::{count, explain};

use super::paste::{self, Lines};
use super::units::Rate;
use crate::failure::Failure;
use crate::output;

/// Requests in flight today, if the user says nothing else.
const TODAY_DEPTH: u32 = 32;

/// Bytes of a request today, if the user says nothing else.
const TODAY_REQUEST: u64 = 64 << 10;

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (Some(rate), Some(round_trip)) = (arguments.rate, arguments.rtt) else {
        return Err(Failure::Usage("write a URL, or --rtt and --rate".into()));
    };
    let path = Path {
        rate,
        round_trip,
        loss: arguments.loss,
        mtu: arguments.mtu,
        tcp_window: arguments.tcp_window.0,
        ..Path::default()
    };
    let target = Target { command_window: arguments.command_window, ..Target::default() };
    let request_len = arguments.request.unwrap_or(TODAY_REQUEST);
    let bounds = Bounds { request_len: arguments.fixed_request.then_some(request_len), ..Bounds::default() };
    let tuned = recommend(&path, &target, &bounds);
    let today = Settings { request_len, depth: arguments.depth.unwrap_or(TODAY_DEPTH), ..open_iscsi() };
    let report = Report::new(&path, &target, &today, &tuned);
    if arguments.json { output::json(&report) } else { report.print(&path) }
}

/// The defaults of open-iscsi 2.1.
fn open_iscsi() -> Settings {
    Settings {
        initial_r2t: false,
        immediate_data: true,
        first_burst_len: 256 << 10,
        max_burst_len: (16 << 20) - 1024,
        max_outstanding_r2t: 1,
        max_data_segment_len: 256 << 10,
        ..Settings::default()
    }
}

/// The settings of today and those that are found, with what each of them carries.
#[derive(Serialize)]
struct Report {
    /// Bytes that fill the path.
    delay_bandwidth_bytes: u64,
    today: Row,
    tuned: Row,
    /// The tuned settings in the words of the programs that take them.
    paste: Vec<Lines>,
}

#[derive(Serialize)]
struct Row {
    request_bytes: u64,
    depth: u32,
    connections: u32,
    first_burst_bytes: u64,
    max_burst_bytes: u64,
    max_outstanding_r2t: u32,
    read: Direction,
    write: Direction,
}

#[derive(Serialize)]
struct Direction {
    bytes_per_second: u64,
    limit: String,
}

#[expect(clippy::cast_sign_loss, reason = "a number of bytes is not negative")]
impl Report {
    fn new(path: &Path, target: &Target, today: &Settings, tuned: &Settings) -> Self {
        let row = |settings| Row::new(path, target, settings);
        let candidate = Candidate { settings: *tuned, ..unset() };
        Self {
            delay_bandwidth_bytes: path.delay_bandwidth_bytes() as u64,
            today: row(today),
            tuned: row(tuned),
            paste: paste::all(path, &candidate, &plain(), path.loss > 0.0),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn print(&self, path: &Path) -> Result<(), Failure> {
        output::line(format_args!(
            "path: {} of data over {:?}; {:.1} MB fill it",
            Rate(path.payload_rate()),
            path.round_trip,
            self.delay_bandwidth_bytes as f64 / 1e6
        ))?;
        for (name, row) in [("today", &self.today), ("tuned", &self.tuned)] {
            output::line(format_args!(
                "{name}: {} of {} in flight over {}",
                count(row.depth, "request"),
                indicatif::BinaryBytes(row.request_bytes),
                count(row.connections, "connection"),
            ))?;
            for (way, direction) in [("reads ", &row.read), ("writes", &row.write)] {
                let rate = Rate(direction.bytes_per_second as f64).to_string();
                output::line(format_args!("  {way} {rate:>10}  {}", direction.limit))?;
            }
        }
        paste::print(&self.paste)
    }
}

#[expect(clippy::cast_sign_loss, reason = "a number of bytes is not negative")]
impl Row {
    fn new(path: &Path, target: &Target, settings: &Settings) -> Self {
        let direction = |transfer| {
            let prediction: Prediction = predict(path, target, settings, transfer);
            Direction {
                bytes_per_second: prediction.bytes_per_second as u64,
                limit: explain(path, settings, &prediction),
            }
        };
        Self {
            request_bytes: settings.request_len,
            depth: settings.depth,
            connections: settings.connections,
            first_burst_bytes: settings.first_burst_len,
            max_burst_bytes: settings.max_burst_len,
            max_outstanding_r2t: settings.max_outstanding_r2t,
            read: direction(Transfer::Read),
            write: direction(Transfer::Write),
        }
    }
}
