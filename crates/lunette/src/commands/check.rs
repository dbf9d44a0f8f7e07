//! `lunette check`: all mistakes of configuration files, before they are used.

use std::path::PathBuf;

use clap::Args;

use crate::config::check::machine::Machine;
use crate::config::check::{Severity, of_file, unreadable};
use crate::failure::Failure;
use crate::output;
use crate::server::this_machine::ThisMachine;

const AFTER_HELP: &str = "\
Severities: \"error\" keeps the server from starting; \"degraded\" is not served, and all else is, unless the file says strict = true; \"note\" is no mistake, but
seldom meant, such as an address that another program listens on now. The server names errors and what is degraded itself when it starts.

Exit codes: 0 no mistakes, 1 other failure, 2 bad usage, 3 an error: the server would refuse the file, 5 the server would start without what is degraded (0 with
--allow-degraded).";

/// Find all mistakes of configuration files, and what of them this machine lacks
///
/// Each FILE is read as `lunette serve --config FILE` reads it, with conf.d beside it. Disks in Ceph and of other
/// targets are not asked for.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The main file of a configuration
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Look at the texts alone, not at what this machine has: for files of another machine
    #[arg(long)]
    text_only: bool,
    /// Exit with 0 when the server would start, whatever it could not serve
    #[arg(long)]
    allow_degraded: bool,
    /// Print the notes alone, which the server does not log, and exit with 0 when the files can be read
    #[arg(long, conflicts_with = "allow_degraded")]
    notes: bool,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut all = Vec::new();
    for file in &arguments.files {
        let this_machine = ThisMachine;
        let machine: Option<&dyn Machine> = if arguments.text_only { None } else { Some(&this_machine) };
        all.extend(of_file(file, machine).unwrap_or_else(|failure| vec![unreadable(file, &failure)]));
    }
    if arguments.notes {
        all.retain(|mistake| mistake.severity == Severity::Note);
    }
    if arguments.json {
        output::json(&all)?;
    } else {
        for mistake in &all {
            output::note(mistake);
        }
    }
    let count = |severity| all.iter().filter(|mistake| mistake.severity == severity).count();
    match (count(Severity::Error), count(Severity::Degraded)) {
        (0, 0) if arguments.json || arguments.notes => Ok(()),
        (0, 0) => output::line("no mistakes"),
        (0, degraded) if arguments.allow_degraded => {
            tracing::warn!("the server would start, and not serve all: {degraded} degraded");
            Ok(())
        }
        (0, degraded) => Err(Failure::Disk(format!("the server would start, and not serve all: {degraded} degraded"))),
        (errors, _) => Err(Failure::Configuration(format!("the server would refuse this: {errors} errors"))),
    }
}
