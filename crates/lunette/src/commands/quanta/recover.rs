//! `lunette quanta recover`: brings a packed volume to rest.

use clap::Args;
use lunette_volume::TailLoss;
use serde_json::json;

use super::{Keyed, verify::missing};
use crate::failure::Failure;
use crate::output;

/// Move what the journal of a volume holds to its places
///
/// Every command that opens a volume takes what is in its journal, so this is only needed when the journal is damaged.
/// With an anchor, what is older than it was takes no place.
#[derive(Args)]
pub(super) struct Recover {
    #[command(flatten)]
    keyed: Keyed,
    /// Take what can be had from a journal that is damaged: quanta that were written last may be older than they were
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Recover) -> Result<(), Failure> {
    let Recover { keyed, force, json } = arguments;
    let keys = keyed.keys()?;
    let unit = keyed.unit(false, None)?;
    let found = keys.find(&keyed.disk.place, &unit)?;
    let anchor = keyed.open_anchor(&found)?;
    let tail_loss = if *force { TailLoss::Force } else { TailLoss::Refuse };
    let recovered = lunette_volume::recover(&unit, &found, &keys.fetched.ring, anchor.as_ref(), tail_loss);
    let recovered = recovered.map_err(|error| keyed.failure(&error))?;
    if *json {
        return output::json(&json!({
            "moved": recovered.moved,
            "tail_lost": recovered.tail_lost,
            "missing_records": recovered.missing_records,
        }));
    }
    output::line(format_args!("{} quanta moved from the journal to their places", recovered.moved))?;
    missing(recovered.missing_records).map_or(Ok(()), output::line)
}
