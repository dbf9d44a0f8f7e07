//! `lunette quanta rekey`: rewrites what has older keys.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use serde::Serialize;

use super::Keyed;
use super::progress::Bar;
use crate::failure::Failure;
use crate::{output, system};

/// Seal everything with the newest key, so that older ones can be destroyed
///
/// Begin an epoch first: lunette keys rotate. Quanta of the newest epoch are not written again, so after an
/// interruption the same command goes on. Others must not write to the disk meanwhile, except through this process's
/// volume.
#[derive(Args)]
pub(super) struct Rekey {
    #[command(flatten)]
    keyed: Keyed,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    rewritten: u64,
    refused: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_refused: Option<u64>,
    newest_epoch: u32,
    /// Keys of epochs before this one are not needed any more.
    first_epoch: u32,
    finished: bool,
}

pub(super) fn run(arguments: &Rekey) -> Result<(), Failure> {
    let Rekey { keyed, json } = arguments;
    let keys = keyed.keys()?;
    let newest_epoch = keys.fetched.ring.newest_epoch();
    let volume = keys.open(&keyed.disk.place, keyed.unit(false, None)?, false)?;
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    system::stop_on_signals(move || stop.store(true, Ordering::Relaxed)).map_err(Failure::other)?;
    let bar = Bar::new();
    let rekeyed = lunette_volume::rekey(&volume, 0, &mut |progress| {
        bar.set(progress);
        if stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    drop(bar);
    let rekeyed = rekeyed.map_err(|error| keyed.failure(&error))?;
    volume.close().map_err(|error| keyed.failure(&error))?;
    let report = Report {
        rewritten: rekeyed.rewritten,
        refused: rekeyed.refused,
        first_refused: rekeyed.first_refused,
        newest_epoch,
        first_epoch: rekeyed.first_epoch,
        finished: rekeyed.next.is_none(),
    };
    if *json {
        output::json(&report)?;
    } else {
        report.lines().into_iter().try_for_each(output::line)?;
    }
    match report {
        Report { finished: false, .. } => {
            Err(Failure::Other("stopped before the end; the same command goes on".into()))
        }
        Report { refused: 1.., first_refused, .. } => Err(Failure::Mismatch(format!(
            "{}: {} quanta could not be opened, the first of them {}; they are as they were, and their keys are still needed",
            keyed.disk.place,
            report.refused,
            first_refused.unwrap_or_default()
        ))),
        _ => Ok(()),
    }
}

impl Report {
    fn lines(&self) -> Vec<String> {
        let mut lines =
            vec![format!("{} quanta rewritten with the key of epoch {}", self.rewritten, self.newest_epoch)];
        if self.finished && self.refused == 0 && self.first_epoch > 1 {
            lines.push(format!("keys before epoch {} are not needed: lunette keys destroy --epoch", self.first_epoch));
        }
        lines
    }
}
