//! The simulator as a command: `cargo xtask sim` runs it.

#![forbid(unsafe_code)]

mod report;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use lunette_sim::{Campaign, Setup, run};

const LEVELS: [u32; 3] = [0, 1, 2];
const CONNECTIONS: [u32; 3] = [1, 2, 8];

/// Initiator and target under a virtual clock and a network that breaks everything.
#[derive(Parser)]
struct Arguments {
    /// Runs for each recovery level and number of connections.
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
    /// The report as JSON.
    #[arg(long)]
    json: bool,
    /// Shows all that happens in the run of this seed.
    #[arg(long, value_name = "SEED", requires = "level", requires = "connections")]
    trace: Option<u64>,
}

impl Arguments {
    fn setups(&self) -> Vec<Setup> {
        let levels = self.level.map_or(LEVELS.to_vec(), |level| vec![level]);
        let connections = self.connections.map_or(CONNECTIONS.to_vec(), |connections| vec![connections]);
        let pairs = levels.iter().flat_map(|level| connections.iter().map(|connections| (*level, *connections)));
        pairs.map(|(level, connections)| Setup { level, connections }).collect()
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let setups = arguments.setups();
    if let (Some(seed), [setup]) = (arguments.trace, &setups[..]) {
        return trace(*setup, seed);
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

fn trace(setup: Setup, seed: u64) -> ExitCode {
    let run = run(setup, seed, true);
    print!("{}", run.trace.unwrap_or_default());
    if run.failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
