//! `lunette quanta verify`: reads a whole volume.

use clap::Args;
use lunette_volume::{JournalState, Report as Found, Verdict};
use serde::Serialize;

use super::Keyed;
use super::progress::Bar;
use crate::failure::Failure;
use crate::output;

/// Read a whole volume, and tell which quanta are not whole. Nothing is changed
///
/// With keys, what is whole was made by an owner of the keys. Without (--no-keys), checksums find damage, and no
/// forgeries. With an anchor, what is older than it was is found, too.
#[derive(Args)]
pub(super) struct Verify {
    #[command(flatten)]
    keyed: Keyed,
    /// Check checksums alone
    #[arg(long, conflicts_with_all = ["keys", "passphrase_file", "passphrase_credential", "tls", "anchor"])]
    no_keys: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
pub(super) struct Report {
    quanta: u64,
    intact: u64,
    holes: u64,
    older_epochs: u64,
    authenticated: bool,
    whole: bool,
    /// Counts by what is wrong.
    bad: std::collections::BTreeMap<&'static str, u64>,
    first_bad: Vec<Bad>,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal: Option<String>,
    missing_records: u64,
    header_copies: [bool; 2],
}

#[derive(Serialize)]
struct Bad {
    quantum: u64,
    what: &'static str,
}

/// Bad quanta that are shown to people.
const SHOWN: usize = 20;

pub(super) fn run(arguments: &Verify) -> Result<(), Failure> {
    let Verify { keyed, no_keys, json } = arguments;
    let keys = if *no_keys { None } else { Some(keyed.keys()?) };
    let unit = keyed.unit(true, None)?;
    let found = match &keys {
        Some(keys) => keys.find(&keyed.disk.place, &unit)?,
        None => keyed.find(&unit)?,
    };
    let ring = keys.as_ref().map(|keys| &keys.fetched.ring);
    let anchor = match keyed.anchor()? {
        Some(_) if *no_keys => {
            return Err(Failure::Usage(
                "an anchor is compared with what keys authenticate; leave out --no-keys".into(),
            ));
        }
        _ => keyed.open_anchor(&found)?,
    };
    let bar = Bar::new();
    let verified = lunette_volume::verify(&unit, &found, ring, anchor.as_ref(), &mut |progress| bar.set(progress));
    drop(bar);
    let report = Report::new(&verified.map_err(|error| keyed.failure(&error))?, keys.is_some());
    if *json {
        output::json(&report)?;
    } else {
        report.lines().into_iter().try_for_each(output::line)?;
    }
    report.verdict(keyed)
}

impl Report {
    pub(super) fn new(found: &Found, authenticated: bool) -> Self {
        Self {
            quanta: found.quanta,
            intact: found.intact,
            holes: found.holes,
            older_epochs: found.older_epochs,
            authenticated,
            whole: found.is_whole(),
            bad: found.bad.iter().map(|(verdict, count)| (name(*verdict), *count)).collect(),
            first_bad: found
                .first_bad
                .iter()
                .map(|bad| Bad { quantum: bad.position, what: name(bad.verdict) })
                .collect(),
            journal: found.journal.map(journal),
            missing_records: found.missing_records,
            header_copies: found.header_copies,
        }
    }

    /// The failure that the exit code tells of.
    pub(super) fn verdict(&self, keyed: &Keyed) -> Result<(), Failure> {
        if self.whole {
            return Ok(());
        }
        let bad: u64 = self.bad.values().sum();
        let what = format!("{}: {bad} of {} quanta are not whole", keyed.disk.place, self.quanta);
        let journal = self.journal.as_ref().map_or(String::new(), |journal| format!("; its journal: {journal}"));
        Err(Failure::Mismatch(format!("{what}{journal}")))
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let how = if self.authenticated { "authentic" } else { "undamaged (not authenticated)" };
        let mut lines = vec![format!("{} quanta: {} {how}, {} never written", self.quanta, self.intact, self.holes)];
        if self.older_epochs > 0 {
            lines.push(format!("{} quanta are of older epochs; lunette quanta rekey rewrites them", self.older_epochs));
        }
        lines.extend(self.journal.iter().map(|journal| format!("journal: {journal}")));
        lines.extend(missing(self.missing_records));
        lines.extend(self.bad.iter().map(|(what, count)| format!("{count} quanta: {what}")));
        lines.extend(self.first_bad.iter().take(SHOWN).map(|bad| format!("quantum {}: {}", bad.quantum, bad.what)));
        if self.first_bad.len() > SHOWN {
            lines.push("and more; --json lists the first thousand".into());
        }
        lines
    }
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Unreadable => "unreadable",
        Verdict::Damaged => "damaged",
        Verdict::Hole => "deleted",
        Verdict::UnknownEpoch => "no key of its epoch",
        Verdict::NotAuthentic => "not authentic",
        Verdict::RolledBack => "rolled back",
    }
}

/// The text on records that are missing.
pub(super) fn missing(records: u64) -> Option<String> {
    (records > 0).then(|| {
        format!(
            "{records} records of the journal are not whole: they were not flushed before a power cut, their writes failed, or they are damaged and their content is lost"
        )
    })
}

fn journal(state: JournalState) -> String {
    match state {
        JournalState::Empty => "empty".into(),
        JournalState::Quanta(quanta) => format!("{quanta} quanta, which are taken from there"),
        JournalState::RecordsLost(records) => {
            format!(
                "{records} records that had been flushed are damaged or gone; lunette quanta recover --force takes the others"
            )
        }
        JournalState::TailLost => "damaged; lunette quanta recover --force takes what can be had from it".into(),
    }
}
