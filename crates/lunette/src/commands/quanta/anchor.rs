//! `lunette quanta anchor`: takes what is on a volume now for what must not get older.

use clap::Args;
use lunette_volume::Anchor;

use super::Keyed;
use super::progress::Bar;
use super::verify::Report;
use crate::failure::Failure;
use crate::output;

/// Make the anchor of a volume that has none, from what is there now
///
/// Reads the whole volume, and notes the version of each quantum in the file that --anchor names, which must be
/// missing. What was rolled back before is not found. Do it also after a volume was restored from a backup, or written
/// by another client that unmaps.
#[derive(Args)]
pub(super) struct MakeAnchor {
    #[command(flatten)]
    keyed: Keyed,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &MakeAnchor) -> Result<(), Failure> {
    let MakeAnchor { keyed, json } = arguments;
    let path = keyed.anchor()?.ok_or_else(|| Failure::Usage("say which file to make: --anchor FILE".into()))?;
    let keys = keyed.keys()?;
    // Writable, so that no other command of this machine writes to a file meanwhile.
    let unit = keyed.unit(false, None)?;
    let found = keys.find(&keyed.disk.place, &unit)?;
    let header = found.authenticate(&keys.fetched.ring).map_err(|error| keyed.failure(&error))?;
    let anchor = Anchor::create(&path, &header).map_err(|error| keyed.failure(&error.into()))?;
    let bar = Bar::new();
    let ring = Some(&keys.fetched.ring);
    let verified = lunette_volume::verify(&unit, &found, ring, Some(&anchor), &mut |progress| bar.set(progress));
    drop(bar);
    let report = Report::new(&verified.map_err(|error| keyed.failure(&error))?, true);
    anchor.save(&*unit).map_err(|error| Failure::Transfer(format!("{}: {error}", keyed.disk.place)))?;
    if *json {
        output::json(&report)?;
    } else {
        report.lines().into_iter().try_for_each(output::line)?;
    }
    report.verdict(keyed)
}
