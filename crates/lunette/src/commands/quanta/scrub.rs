//! `lunette quanta scrub`: looks after the parity of a volume.

use clap::Args;
use serde_json::json;

use super::Keyed;
use super::progress::Bar;
use crate::failure::Failure;
use crate::output;

/// Repair what is damaged, and bring parity up to date that an interrupted write has left behind
///
/// Reads the whole volume. A volume without parity (lunette quanta format --parity) has nothing to repair from.
#[derive(Args)]
pub(super) struct Scrub {
    #[command(flatten)]
    keyed: Keyed,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Scrub) -> Result<(), Failure> {
    let Scrub { keyed, json } = arguments;
    let keys = keyed.keys()?;
    let volume = keys.open(&keyed.disk.place, keyed.unit(false, None)?, false)?;
    if volume.header().group.is_none() {
        return Err(Failure::Usage(format!("{} has no parity; lunette quanta verify checks it", keyed.disk.place)));
    }
    let bar = Bar::new();
    let scrubbed = lunette_volume::scrub(&volume, &mut |progress| bar.set(progress));
    drop(bar);
    let scrubbed = scrubbed.map_err(|error| keyed.failure(&error))?;
    if *json {
        output::json(&json!({
            "groups": scrubbed.groups,
            "repaired": scrubbed.repaired,
            "encoded": scrubbed.encoded,
            "lost": scrubbed.lost,
        }))?;
    } else {
        output::line(format_args!(
            "{} groups: {} quanta repaired, parity of {} groups brought up to date, {} quanta lost",
            scrubbed.groups, scrubbed.repaired, scrubbed.encoded, scrubbed.lost
        ))?;
    }
    match scrubbed.lost {
        0 => Ok(()),
        lost => Err(Failure::Mismatch(format!("{}: {lost} quanta could not be repaired", keyed.disk.place))),
    }
}
