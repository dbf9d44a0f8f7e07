//! `lunette upgrade`: the program at the path of a running server takes its place, and sessions go on.

use clap::Args;

use crate::failure::Failure;
use crate::output;
use crate::server::handover::{Outcome, ask, servers};

/// Let the installed program take the place of a running server; sessions go on
///
/// The server starts the program that has its path now, with its arguments. So this is for a new build, and for
/// settings that a running server cannot change. When the new process cannot go on with the sessions, the old one does.
///
/// Exit codes: 0 taken over; 1 the server goes on as it was; 2 usage.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's process; not needed where one runs
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Do nothing if the program at the server's path is the one that runs
    #[arg(long)]
    if_replaced: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let outcome = ask(arguments.pid.map_or_else(only, Ok)?, arguments.if_replaced)?;
    match &outcome {
        Outcome::Refused { reason } => Err(Failure::other(format!("the server goes on as it was: {reason}"))),
        Outcome::Taken { .. } | Outcome::NotReplaced if arguments.json => output::json(&outcome),
        Outcome::Taken { .. } | Outcome::NotReplaced => output::line(&outcome),
    }
}

/// The server of this machine.
fn only() -> Result<u32, Failure> {
    match servers().map_err(Failure::other)?[..] {
        [pid] => Ok(pid),
        [] => Err(Failure::other("no server runs here that can be upgraded")),
        ref pids => {
            let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
            Err(Failure::Usage(format!("several servers run here; choose one with --pid: {}", pids.join(", "))))
        }
    }
}
