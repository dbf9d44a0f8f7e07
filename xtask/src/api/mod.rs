//! `cargo xtask api`: the API of a running server against its own description, by schemathesis, and its times at scale.

mod scale;
mod schemathesis;
mod server;

use std::process::ExitCode;

use anyhow::Result;

use crate::{packages, programs};
use server::Server;

/// Cases for each operation, in `cargo xtask test`.
const EXAMPLES_OF_THE_STEP: u32 = 25;

/// The default number of examples.
const EXAMPLES: u32 = 300;

/// A target of the main file, which no request removes: what is read of it is there.
const MAIN: &str = r#"
[[target]]
name = "iqn.2026-11.org.example:main"
lun = [{ number = 0, disk = "mem:1M" }, { number = 1, disk = "mem:1M", read_only = true }]
host = [{ name = "a", networks = ["192.0.2.0/24"], lun = [{ number = 1, as = 0 }] }, { name = "b" }]
"#;

/// Requests that follow from the description of the API, right ones and wrong ones, and checks of all answers.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Cases for each operation.
    #[arg(long, value_name = "N", default_value_t = EXAMPLES)]
    examples: u32,
    /// Repeats the run of this seed.
    #[arg(long)]
    seed: Option<u128>,
    /// Instead: the times of a change of 1,000 targets, and what reads notice of it.
    #[arg(long, conflicts_with_all = ["examples", "seed"])]
    scale: bool,
}

/// Builds the command and tries its API.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.scale {
        return scale::run();
    }
    attack(arguments.examples, arguments.seed)?;
    Ok(ExitCode::SUCCESS)
}

/// Tries the API for some seconds.
pub(crate) fn step() -> Result<()> {
    attack(EXAMPLES_OF_THE_STEP, None)
}

fn attack(examples: u32, seed: Option<u128>) -> Result<()> {
    packages::provide_for_api()?;
    programs::build()?;
    let place = tempfile::tempdir()?;
    let server = Server::start(place.path(), MAIN)?;
    schemathesis::run(&server, examples, seed)?;
    server.stop()
}
