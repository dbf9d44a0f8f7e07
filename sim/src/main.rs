//! The simulator as a command: `cargo xtask sim` runs it.

#![forbid(unsafe_code)]

mod report;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use lunette_sim::{Campaign, Setup, Transport, gateway_campaign, run, run_gateways};

const LEVELS: [u32; 3] = [0, 1, 2];
const CONNECTIONS: [u32; 3] = [1, 2, 8];

/// The levels and connections within TLS when no transport is named. There
/// are half as many runs of each, because of the time that handshakes take.
const TLS_AMONG_ALL: [(u32, u32); 4] = [(0, 1), (1, 1), (2, 1), (2, 8)];

/// Initiator and target under a virtual clock and a network that breaks everything.
#[derive(Parser)]
struct Arguments {
    /// Only sessions over this.
    #[arg(long, value_enum)]
    transport: Option<Transport>,
    /// Runs for each transport, recovery level and number of connections. When no transport is named, there are half as
    /// many within TLS, and not with all levels and numbers.
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
    /// The setups, with the number of seeds of each.
    fn setups(&self) -> Vec<(Setup, u64)> {
        let levels = self.level.map_or(LEVELS.to_vec(), |level| vec![level]);
        let connections = self.connections.map_or(CONNECTIONS.to_vec(), |connections| vec![connections]);
        let pairs = levels.iter().flat_map(|level| connections.iter().map(|connections| (*level, *connections)));
        let tcp = pairs.map(|(level, connections)| Setup { transport: Transport::Tcp, level, connections });
        let tls = tcp.clone().map(|setup| Setup { transport: Transport::Tls, ..setup });
        let ecl = tcp.clone().filter(|setup| (setup.level, setup.connections) == (0, 1));
        let ecl = ecl.map(|setup| Setup { transport: Transport::Ecl, ..setup });
        let with = |setup| (setup, self.seeds);
        match self.transport {
            None => {
                let tls = tls.filter(|setup| TLS_AMONG_ALL.contains(&(setup.level, setup.connections)));
                let tls = tls.map(|setup| (setup, self.seeds.div_ceil(2)));
                tcp.map(with).chain(tls).chain(ecl.map(with)).collect()
            }
            Some(Transport::Tcp) => tcp.map(with).collect(),
            Some(Transport::Tls) => tls.map(with).collect(),
            Some(Transport::Ecl) => ecl.map(with).collect(),
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
        let [(setup, _)] = setups[..] else {
            eprintln!("--trace shows one run: say --transport, --level and --connections");
            return ExitCode::FAILURE;
        };
        return trace(setup, seed);
    }
    let began = Instant::now();
    let report = Campaign { setups, first: arguments.first }.run();
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
