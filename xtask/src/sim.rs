//! `cargo xtask sim`: initiator and target under a virtual clock and a network that breaks everything.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::process;
use crate::programs;

const SIMULATOR: &str = "lunette-sim";

/// Runs for each transport, recovery level and number of connections, in `cargo xtask test`; fewer within TLS.
const SEEDS_OF_THE_STEP: &str = "40";

/// Runs of gateways in `cargo xtask test`.
const GATEWAY_SEEDS_OF_THE_STEP: &str = "400";

/// Simulated sessions; each seed is one run, the same every time.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only sessions over this: tcp, tls or ecl.
    #[arg(long)]
    transport: Option<String>,
    /// Runs for each transport, recovery level and number of connections; within TLS there are fewer, unless it is
    /// named.
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "SEED")]
    first: Option<u64>,
    /// Only this recovery level.
    #[arg(long)]
    level: Option<u32>,
    /// Only this number of connections.
    #[arg(long)]
    connections: Option<u32>,
    /// Only gateways to one disk that fail over.
    #[arg(long)]
    gateways: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Shows all that happens in the run of this seed; needs a transport, and of TCP and TLS a level and a number
    /// of connections.
    #[arg(long, value_name = "SEED")]
    trace: Option<u64>,
}

impl Arguments {
    /// The arguments for the simulator.
    fn words(&self) -> Vec<String> {
        let numbers = [
            ("--seeds", self.seeds),
            ("--first", self.first),
            ("--level", self.level.map(u64::from)),
            ("--connections", self.connections.map(u64::from)),
            ("--trace", self.trace),
        ];
        let given = numbers.into_iter().filter_map(|(name, number)| Some((name, number?)));
        let words = given.flat_map(|(name, number)| [name.to_owned(), number.to_string()]);
        let words = words.chain(self.transport.iter().flat_map(|name| ["--transport".to_owned(), name.clone()]));
        let flags = [("--json", self.json), ("--gateways", self.gateways)];
        words.chain(flags.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.to_owned())).collect()
    }
}

/// Builds the simulator and runs it. The simulator reports the faults.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let status = Command::new(programs::checked(SIMULATOR)?).args(arguments.words()).status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a few hundred seeds.
pub(crate) fn step() -> Result<()> {
    let program = programs::checked(SIMULATOR)?;
    process::run(Command::new(&program).args(["--seeds", SEEDS_OF_THE_STEP]))?;
    process::run(Command::new(&program).args(["--gateways", "--seeds", GATEWAY_SEEDS_OF_THE_STEP]))
}
