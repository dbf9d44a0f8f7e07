//! `lunette tune`: the settings that a path needs.
//!
//! With a URL they are measured (`measured`): a survey of the idle path, then the trials that `lunette_tuning::Tuner`
//! asks for. With `--rtt` and `--rate` they are computed (`paper`).

mod candidates;
mod explain;
mod findings;
mod measured;
mod paper;
mod paste;
mod scratch;
mod survey;
mod system;
mod trial;
mod units;

use std::time::Duration;

use clap::Args;
use lunette_initiator::Url;

use self::scratch::Scratch;
use crate::failure::Failure;
use crate::size::Size;

const AFTER_HELP: &str = "\
With a URL: measures round trips, what the target agrees to and its time per command, then reads with the defaults of lunette cp and
with other settings, first those that a model of the path finds. At the end it measures the defaults and the best settings in turns,
and recommends the faster ones. Nothing is written unless --write names a range of the disk, which is OVERWRITTEN. With --request,
--depth or parameters of the URL it measures these settings of today, too.

Without a URL: computes, on paper, what a session over a path with these figures can carry, what limits it, and the settings that lift
the limit. --request and --depth say what is used now; the other settings of today are the defaults of open-iscsi, but for an
InitialR2T of No and the windows.

Exit codes: 0 done, 1 other failure, 2 bad usage, 3 bad secret, 5 the target cannot be reached or refuses, the disk is not ready or is
read only, 6 a request failed, 8 the target was lost in the middle: what was known by then is printed.";

const URL_HELP: &str = "The disk to measure with: iscsi://[USER@]HOST[:PORT]/TARGET[/LUN][?PARAMETER=VALUE&...]";

/// Find the settings that a path needs: measured, or from its delay and its rate.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    // No documentation comment: rustdoc takes the brackets of a URL for links.
    #[arg(value_name = "URL", value_parser = Url::parse, help = URL_HELP, conflicts_with_all = ["rtt", "rate", "loss", "mtu", "tcp_window", "command_window"])]
    url: Option<Url>,
    /// Seconds that the measurement may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "url", conflicts_with = "rtt", value_parser = clap::value_parser!(u32).range(2..=3600))]
    time: u32,
    /// Bytes that the measurement may move: 21M at least, 41M with --write
    #[arg(long, value_name = "SIZE", default_value = "16G", requires = "url", conflicts_with = "rtt")]
    max_bytes: Size,
    /// Measure writes, too: OVERWRITES these bytes of the disk, such as 1G..2G
    #[arg(long, value_name = "FROM..TO", requires = "url", conflicts_with = "rtt")]
    write: Option<Scratch>,
    /// On paper: the round trip time, such as 80ms
    #[arg(long, value_name = "TIME", value_parser = units::time, required_unless_present = "url")]
    rtt: Option<Duration>,
    /// On paper: bits per second of the slowest link, such as 155M or 10G
    #[arg(long, value_name = "RATE", value_parser = units::rate, required_unless_present = "url")]
    rate: Option<f64>,
    /// On paper: packets that are lost at random, such as 0.05%
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = units::percent)]
    loss: f64,
    /// On paper: bytes of the largest IP packet
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65_535))]
    mtu: u32,
    /// On paper: bytes that one connection may have on the way
    #[arg(long, value_name = "SIZE", default_value = "6M")]
    tcp_window: Size,
    /// On paper: commands that the target takes at a time
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    command_window: u32,
    /// Bytes of a request today, and of one request in the new settings if --fixed-request [default: 64K on paper]
    #[arg(long, value_name = "SIZE", value_parser = request)]
    request: Option<u64>,
    /// The load decides the bytes of a request: find settings for this length alone
    #[arg(long)]
    fixed_request: bool,
    /// Requests in flight today [default: 32 on paper]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Reads the bytes of a request: what one command of our initiator may carry.
fn request(text: &str) -> Result<u64, String> {
    let Size(bytes) = text.parse().map_err(|error: crate::size::NotASize| error.to_string())?;
    let most = lunette_initiator::limits::MAX_REQUEST_BYTES as u64;
    if (512..=most).contains(&bytes) { Ok(bytes) } else { Err(format!("write 512 to {most} bytes")) }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.url {
        Some(url) => measured::run(arguments, url),
        None => paper::run(arguments),
    }
}
