//! `lunette tune`: the settings that a path needs.

mod explain;
mod paste;
mod units;

use std::time::Duration;

use clap::Args;
use lunette_tuning::{Bounds, Path, Prediction, Settings, Target, Transfer, predict, recommend};
use serde::Serialize;

use self::explain::{count, explain};
use self::paste::Paste;
use self::units::Rate;
use crate::failure::Failure;
use crate::output;
use crate::size::Size;

const AFTER_HELP: &str = "\
Computes, on paper, what a session over a path with these figures can carry, what limits it, and the settings that lift the limit.
Nothing is measured. --request and --depth say what is used now; the other settings of today are the defaults of open-iscsi, but for
an InitialR2T of No and the windows.

Exit codes: 0 done, 2 bad usage.";

/// Find the settings that a path needs, from its delay and its rate.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The round trip time, such as 80ms
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    rtt: Duration,
    /// Bits per second of the slowest link, such as 155M or 10G
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    rate: f64,
    /// Packets that are lost at random, such as 0.05%
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = units::percent)]
    loss: f64,
    /// Bytes of the largest IP packet
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65_535))]
    mtu: u32,
    /// Bytes that one connection may have on the way
    #[arg(long, value_name = "SIZE", default_value = "6M")]
    tcp_window: Size,
    /// Commands that the target takes at a time
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    command_window: u32,
    /// Bytes of a request today, and of one request in the new settings if --fixed-request
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = request)]
    request: u64,
    /// The load decides the bytes of a request: find settings for this length alone
    #[arg(long)]
    fixed_request: bool,
    /// Requests in flight today
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    depth: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Bytes of a request: at least a block, at most what one command of our initiator carries.
fn request(text: &str) -> Result<u64, String> {
    let Size(bytes) = text.parse().map_err(|error: crate::size::NotASize| error.to_string())?;
    let most = lunette_initiator::limits::MAX_REQUEST_BYTES as u64;
    if (512..=most).contains(&bytes) { Ok(bytes) } else { Err(format!("write 512 to {most} bytes")) }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = Path {
        rate: arguments.rate,
        round_trip: arguments.rtt,
        loss: arguments.loss,
        mtu: arguments.mtu,
        tcp_window: arguments.tcp_window.0,
        ..Path::default()
    };
    let target = Target { command_window: arguments.command_window, ..Target::default() };
    let bounds = Bounds { request_len: arguments.fixed_request.then_some(arguments.request), ..Bounds::default() };
    let tuned = recommend(&path, &target, &bounds);
    let today = Settings { request_len: arguments.request, depth: arguments.depth, ..open_iscsi() };
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

#[derive(Serialize)]
struct Lines {
    title: &'static str,
    lines: Vec<String>,
}

#[expect(clippy::cast_sign_loss, reason = "a number of bytes is not negative")]
impl Report {
    fn new(path: &Path, target: &Target, today: &Settings, tuned: &Settings) -> Self {
        let row = |settings| Row::new(path, target, settings);
        let paste = paste::all(path, tuned).into_iter().map(|Paste { title, lines }| Lines { title, lines });
        Self {
            delay_bandwidth_bytes: path.delay_bandwidth_bytes() as u64,
            today: row(today),
            tuned: row(tuned),
            paste: paste.collect(),
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
        for Lines { title, lines } in &self.paste {
            output::line(format_args!("\n# {title}"))?;
            for text in lines {
                output::line(text)?;
            }
        }
        Ok(())
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
