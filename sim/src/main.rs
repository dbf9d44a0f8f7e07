//! The simulator as a command: `cargo xtask sim` runs it.

#![forbid(unsafe_code)]

mod report;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use lunette_sim::{Campaign, Setup, Transport, gateway_campaign, run, run_gateways};

const LEVELS: [u32; 3] = [0, 1, 2];
const CONNECTIONS: [u32; 3] = [1, 2, 8];

/// The transport of sessions, on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Carrier {
    /// TCP: iSCSI's recovery levels, with one and several connections.
    Tcp,
    /// The Effective Cross Layer.
    Ecl,
}

/// Initiator and target under a virtual clock and a network that breaks everything.
#[derive(Parser)]
struct Arguments {
    /// Only sessions over this.
    #[arg(long, value_enum)]
    transport: Option<Carrier>,
    /// Runs for each transport, recovery level and number of connections.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
    /// Only this recovery level.
    #[arg(long)]
    level: Option<u32>,
    /// Only this number of connections.
    #[arg(long)]
    connections: Option<u32>,
    /// Only gateways to one disk that fail over; nothing of sessions.
    #[arg(long, conflicts_with_all = ["transport", "level", "connections", "json"])]
    gateways: bool,
    /// The report as JSON.
    #[arg(long)]
    json: bool,
    /// Shows all that happens in the run of this seed.
    #[arg(long, value_name = "SEED")]
    trace: Option<u64>,
}

impl Arguments {
    fn setups(&self) -> Vec<Setup> {
        let levels = self.level.map_or(LEVELS.to_vec(), |level| vec![level]);
        let connections = self.connections.map_or(CONNECTIONS.to_vec(), |connections| vec![connections]);
        let pairs = levels.iter().flat_map(|level| connections.iter().map(|connections| (*level, *connections)));
        let tcp = pairs.map(|(level, connections)| Setup { transport: Transport::Tcp, level, connections });
        let ecl = tcp.clone().filter(|setup| (setup.level, setup.connections) == (0, 1));
        let ecl = ecl.map(|setup| Setup { transport: Transport::Ecl, ..setup });
        match self.transport {
            None => tcp.chain(ecl).collect(),
            Some(Carrier::Tcp) => tcp.collect(),
            Some(Carrier::Ecl) => ecl.collect(),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.gateways {
        return gateways(&arguments);
    }
    let setups = arguments.setups();
    if let Some(seed) = arguments.trace {
        let [setup] = setups[..] else {
            eprintln!("--trace shows one run: say --transport, --level and --connections");
            return ExitCode::FAILURE;
        };
        return trace(setup, seed);
    }
    let began = Instant::now();
    let report = Campaign { setups, first: arguments.first, seeds: arguments.seeds }.run();
    let seconds = began.elapsed().as_secs_f64();
    if arguments.json {
        println!("{}", report::json(&report, seconds));
    } else {
        print!("{}", report::text(&report, seconds));
    }
    if report.first_failure().is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn gateways(arguments: &Arguments) -> ExitCode {
    if let Some(seed) = arguments.trace {
        let run = run_gateways(seed, true);
        print!("{}", run.trace);
        return if run.failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let began = Instant::now();
    let (tally, failures) = gateway_campaign(arguments.first, arguments.seeds);
    print!("{}", report::gateways(&tally, &failures, began.elapsed().as_secs_f64()));
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn trace(setup: Setup, seed: u64) -> ExitCode {
    let run = run(setup, seed, true);
    print!("{}", run.trace.unwrap_or_default());
    if run.failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
