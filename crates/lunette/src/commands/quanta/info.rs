//! `lunette quanta info`: what a volume says of itself.

use clap::Args;
use lunette_quanta::{Header, Holes, Placement};
use lunette_volume::Anchor;
use serde::Serialize;

use super::Keyed;
use crate::disks::encrypted::keys::Keys;
use crate::failure::Failure;
use crate::output;

/// Show what a volume says of itself. Without keys it is believed; with keys it is authenticated, and an anchor must be
/// that of the volume
#[derive(Args)]
pub(super) struct Info {
    #[command(flatten)]
    keyed: Keyed,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The header of a volume.
#[derive(Serialize)]
pub(crate) struct HeaderReport {
    volume: String,
    placement: &'static str,
    quantum: u64,
    quanta: u64,
    bytes: u64,
    cipher: &'static str,
    holes: bool,
    first_epoch: u32,
    newest_epoch: u32,
    generation: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parity: Option<(u16, u16)>,
}

impl HeaderReport {
    pub(crate) fn new(header: &Header) -> Self {
        let (placement, journal_bytes) = match header.placement {
            Placement::Native => ("native", None),
            Placement::Packed { journal_len, .. } => ("packed", Some(journal_len)),
        };
        let quantum = header.size.bytes() as u64;
        Self {
            volume: header.volume.to_string(),
            placement,
            quantum,
            quanta: header.quanta,
            bytes: header.quanta * quantum,
            cipher: header.cipher.row().name,
            holes: header.holes == Holes::Allowed,
            first_epoch: header.first_epoch,
            newest_epoch: header.newest_epoch,
            generation: header.generation,
            journal_bytes,
            parity: header.group.map(|group| (group.data, group.parity)),
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.rows().into_iter().map(|(name, value)| format!("{name:<14}{value}")).collect()
    }

    /// The values for people, with their names.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![
            ("volume", self.volume.clone()),
            ("placement", self.placement.into()),
            ("size", format!("{} bytes, {} quanta of {}", self.bytes, self.quanta, self.quantum)),
            ("cipher", self.cipher.into()),
            ("holes", if self.holes { "read as zeroes" } else { "are refused" }.into()),
            ("epochs", format!("{} to {}", self.first_epoch, self.newest_epoch)),
            ("header", format!("generation {}", self.generation)),
        ];
        rows.extend(self.journal_bytes.map(|bytes| ("journal", format!("{bytes} bytes"))));
        rows.extend(self.parity.map(|(data, parity)| ("parity", format!("{parity} for each {data} quanta"))));
        rows
    }
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    header: HeaderReport,
    authenticated: bool,
    /// Which of the two copies of the header are whole.
    header_copies: [bool; 2],
    /// Quanta whose version the anchor knows, when one is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    anchored: Option<u64>,
}

pub(super) fn run(arguments: &Info) -> Result<(), Failure> {
    let Info { keyed, json } = arguments;
    let keys = keyed.source()?.map(|source| Keys::of(source, None)).transpose()?;
    let unit = keyed.unit(true, None)?;
    let found = match &keys {
        Some(keys) => keys.find(&keyed.disk.place, &unit)?,
        None => keyed.find(&unit)?,
    };
    let header = match &keys {
        Some(keys) => found.authenticate(&keys.fetched.ring).map_err(|error| keyed.failure(&error))?,
        None => *found.header(),
    };
    let anchor = keyed.open_anchor(&found)?;
    let report = Report {
        header: HeaderReport::new(&header),
        authenticated: keys.is_some(),
        header_copies: [0, 1].map(|copy: usize| found.copies()[copy].is_ok()),
        anchored: anchor.as_ref().map(Anchor::known),
    };
    if *json {
        return output::json(&report);
    }
    report.header.lines().into_iter().try_for_each(output::line)?;
    let copies = report.header_copies.iter().filter(|whole| **whole).count();
    output::line(format_args!("{:<14}{copies} of 2 whole", "copies"))?;
    if let Some(known) = report.anchored {
        output::line(format_args!("{:<14}of this volume, knows {known} of its quanta", "anchor"))?;
    }
    output::line(format_args!(
        "{:<14}{}",
        "authenticated",
        if report.authenticated { "yes" } else { "no; give --keys" }
    ))
}
