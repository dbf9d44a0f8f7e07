//! `lunette activate`: asks a target to make one path to a disk active/optimized.

use clap::Args;
use lunette_initiator::Portal;

use crate::commands::info::paths::PathReport;
use crate::disks::iscsi::remote::Remote;
use crate::failure::Failure;
use crate::output;

const AFTER_HELP: &str = "\
It sends SET TARGET PORT GROUPS, which targets with explicit asymmetric access (ALUA) take. What becomes of the other paths is the
target's to decide. Other initiators of the disk are sent to other paths, too.

Exit codes: 0 done, 1 other failure, 2 bad usage, 3 bad secret, 5 the target cannot be reached or refuses, 6 a request failed.";

/// Ask a target to make one path to a disk active/optimized
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    remote: Remote,
    /// The portal of the path
    #[arg(value_name = "HOST[:PORT]", value_parser = Portal::parse)]
    portal: Portal,
    /// Print the paths as a JSON list
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let initiator = arguments.remote.start()?;
    let paths = arguments.remote.activate(&initiator, &arguments.portal)?;
    let paths: Vec<PathReport> = paths.iter().map(PathReport::new).collect();
    if arguments.json {
        output::json(&paths)
    } else {
        paths.iter().try_for_each(|path| output::line(format_args!("{path}")))
    }
}
