//! `lunette keys list`: what a key file says without its keys.

use std::fmt::Write;

use clap::Args;
use lunette_keys::LockedFile;
use lunette_keys::keyfile::{HolderKind, KeyFile};
use serde::Serialize;

use super::file::parse;
use super::place::Place;
use super::{Opened, object};
use crate::failure::Failure;
use crate::output;

/// Show holders and epochs of a key file, or objects of a key server
///
/// With --passphrase-file or --tls, what is shown of a key file is authenticated. Objects are those that this client
/// may read: all, or those of a name.
#[derive(Args)]
pub(super) struct List {
    #[command(flatten)]
    opened: Opened,
    /// Print JSON: one object for a key file, one a line for objects of a key server
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &List) -> Result<(), Failure> {
    let opened = &arguments.opened;
    let path = match &opened.place {
        Place::File(path) => path,
        Place::Kmip(url) => return object::list(url, &opened.opening.tls, arguments.json),
    };
    let locked = LockedFile::open(path).map_err(Failure::configuration)?;
    let file = parse(path, &locked)?;
    drop(locked);
    let authenticated = opened.opening.is_given();
    if authenticated {
        opened.opening.unlock(path, &file)?;
    }
    let report = Report::new(&file, authenticated);
    if arguments.json { output::json(&report) } else { report.lines().into_iter().try_for_each(output::line) }
}

#[derive(Serialize)]
struct Report {
    volume: String,
    generation: u64,
    authenticated: bool,
    holders: Vec<HolderReport>,
    epochs: Vec<EpochReport>,
}

#[derive(Serialize)]
struct HolderReport {
    name: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
}

#[derive(Serialize)]
struct EpochReport {
    epoch: u32,
    cipher: &'static str,
    /// Seconds since 1970.
    created: u64,
}

impl Report {
    fn new(file: &KeyFile, authenticated: bool) -> Self {
        let holder = |holder: lunette_keys::keyfile::Holder<'_>| {
            let (kind, place) = match holder.kind {
                HolderKind::Passphrase(_) => ("passphrase", None),
                HolderKind::Kmip { server, object } => ("kmip", Some((server.to_owned(), object.to_owned()))),
            };
            let (server, object) = place.unzip();
            HolderReport { name: holder.name.into(), kind, server, object }
        };
        Self {
            volume: hex(&file.volume()),
            generation: file.generation(),
            authenticated,
            holders: file.holders().map(holder).collect(),
            epochs: file
                .epochs()
                .map(|epoch| EpochReport { epoch: epoch.number, cipher: epoch.cipher.name(), created: epoch.created })
                .collect(),
        }
    }

    fn lines(&self) -> Vec<String> {
        let authenticated = if self.authenticated { "yes" } else { "no; give --passphrase-file" };
        let mut lines = vec![
            format!("volume        {}", self.volume),
            format!("generation    {}", self.generation),
            format!("authenticated {authenticated}"),
        ];
        for HolderReport { name, kind, server, object } in &self.holders {
            let place = server.iter().zip(object).map(|(server, object)| format!(" {server} {object}"));
            lines.push(format!("holder        {name} ({kind}{})", place.collect::<String>()));
        }
        let last = self.epochs.last().map(|epoch| epoch.epoch);
        for EpochReport { epoch, cipher, created } in &self.epochs {
            let current = if Some(*epoch) == last { ", current" } else { "" };
            lines.push(format!("epoch         {epoch} ({cipher}, since {created}{current})"));
        }
        lines
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all text");
        text
    })
}
