//! `lunette quanta format`: makes a volume.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use lunette_keys::keyfile::{Cipher, NewHolder, Unlocked};
use lunette_keys::source::{KeyPlace, KeySource};
use lunette_keys::{Argon2Cost, write_private};
use lunette_quanta::limits::{MAX_GROUP_DATA, MAX_GROUP_PARITY};
use lunette_quanta::{Group, Holes, QuantumSize};
use lunette_store::Store;
use lunette_volume::{Anchor, FormatOptions, VolumeError};

use super::blank::is_blank;
use super::progress::Bar;
use super::{HeaderReport, Keyed};
use crate::commands::keys::{cipher, now};
use crate::disks::encrypted::keys::Keys;
use crate::failure::Failure;
use crate::output;
use crate::size::Size;
use crate::terminal::ask;

/// Make an encrypted volume on a disk
///
/// The whole disk is overwritten. Blocks of 576, 1088, 2112 or 4160 bytes (lunette serve --quantum) hold a quantum
/// each, with its seal; on blocks of 512 or 4096 bytes, and in files, seals and a journal have places of their own.
///
/// A key file that is missing is made, with a holder "owner" of this passphrase. Keep a copy of it elsewhere: without
/// it the volume can never be read again. An anchor that is named is made, too.
#[derive(Args)]
pub(super) struct Format {
    #[command(flatten)]
    keyed: Keyed,
    /// Bytes of a quantum, which is a block of the encrypted disk: 512, 1024, 2048 or 4096 [default: 4096, or what the
    /// disk's blocks hold]
    #[arg(long, value_name = "BYTES", value_parser = quantum)]
    quantum: Option<QuantumSize>,
    /// The cipher of a key file that is made: aegis-256 (default), aes-256-gcm-siv, or aegis-256x4 (the fastest for
    /// requests of one quantum on CPUs with vector AES instructions)
    #[arg(long, value_parser = cipher)]
    cipher: Option<Cipher>,
    /// Seal every quantum now, so that the server cannot pretend that one was never written
    #[arg(long)]
    no_holes: bool,
    /// Bytes of the journal, on disks that need one: a multiple of 4096 from 24K to 256M [default: 1/64 of the disk,
    /// 64M at most]
    #[arg(long, value_name = "SIZE")]
    journal: Option<Size>,
    /// Give each DATA quanta PARITY more, from which as many damaged ones are repaired: 8+2. For disks of quanta
    /// (lunette serve --quantum)
    #[arg(long, value_name = "DATA+PARITY", value_parser = group)]
    parity: Option<Group>,
    /// Create the file, when it is missing
    #[arg(long, value_name = "SIZE")]
    create: Option<Size>,
    /// Do not ask before a volume or other data is destroyed
    #[arg(long)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn quantum(text: &str) -> Result<QuantumSize, String> {
    let bytes: u64 = text.parse().map_err(|_| "write a number".to_owned())?;
    QuantumSize::of_bytes(bytes).ok_or_else(|| format!("write one of {:?}", QuantumSize::ALL.map(QuantumSize::bytes)))
}

fn group(text: &str) -> Result<Group, String> {
    let parsed = text.split_once('+').and_then(|(data, parity)| Some((data.parse().ok()?, parity.parse().ok()?)));
    let (data, parity) = parsed.ok_or("write two numbers, such as 8+2")?;
    let within = |count, most| (1..=most).contains(&count);
    if !within(data, MAX_GROUP_DATA) || !within(parity, MAX_GROUP_PARITY) {
        return Err(format!("write at most {MAX_GROUP_DATA}+{MAX_GROUP_PARITY}, and at least 1+1"));
    }
    Ok(Group { data, parity })
}

pub(super) fn run(arguments: &Format) -> Result<(), Failure> {
    let Format { keyed, quantum, cipher, no_holes, journal, parity, create, yes, json } = arguments;
    let source = keyed.needed_source()?;
    let anchor = keyed.anchor()?;
    if let Some(path) = anchor.as_ref().filter(|path| path.exists()) {
        let what = "is there already; name a file that is missing, because each volume has an anchor of its own";
        return Err(Failure::Configuration(format!("{} {what}", path.display())));
    }
    let unit = keyed.unit(false, *create)?;
    let overwrite = may_overwrite(keyed, &unit, *yes)?;
    let keys = keys(source, *cipher)?.fetched;
    let options = FormatOptions {
        size: *quantum,
        holes: if *no_holes { Holes::Refused } else { Holes::Allowed },
        journal_bytes: journal.map(|Size(bytes)| bytes),
        parity: *parity,
        overwrite,
    };
    let bar = Bar::new();
    let formatted = lunette_volume::format(&unit, keys.volume, &keys.ring, &options, &mut |progress| bar.set(progress));
    drop(bar);
    let header = formatted.map_err(|error| keyed.failure(&error))?;
    if let Some(path) = anchor {
        Anchor::create(&path, &header).map_err(|error| keyed.failure(&error.into()))?;
    }
    let report = HeaderReport::new(&header);
    if *json { output::json(&report) } else { report.lines().into_iter().try_for_each(output::line) }
}

/// Asks before something is destroyed. Returns whether a volume is among it.
fn may_overwrite(keyed: &Keyed, unit: &Arc<dyn Store>, yes: bool) -> Result<bool, Failure> {
    let place = &keyed.disk.place;
    match lunette_volume::find(unit) {
        Ok(found) => {
            let volume = found.header().volume;
            ask(yes, &format!("{place} has the encrypted volume {volume}, which is destroyed with all of its data."))?;
            Ok(true)
        }
        Err(VolumeError::NoVolume) => {
            let failed = |error| Failure::Transfer(format!("{place}: {error}"));
            if is_blank(&**unit).map_err(failed)? {
                return Ok(false);
            }
            ask(yes, &format!("{place} is not empty: all of its data is destroyed.")).map(|()| false)
        }
        Err(VolumeError::Header(error)) => {
            let what = format!("{place} has a damaged encrypted volume ({error}), which is destroyed for good.");
            ask(yes, &what).map(|()| true)
        }
        Err(error) => Err(keyed.failure(&error)),
    }
}

/// The keys; a key file that is missing is made.
fn keys(source: KeySource, cipher: Option<Cipher>) -> Result<Keys, Failure> {
    if let KeyPlace::File(path) = &source.place
        && !path.exists()
    {
        make_key_file(path, &source, cipher.unwrap_or(Cipher::Aegis256))?;
    }
    let keys = Keys::of(source, None)?;
    let has = keys.fetched.ring.cipher().row();
    match cipher {
        Some(wanted) if wanted.id() != has.id => {
            Err(Failure::Usage(format!("the key file has the cipher {}; leave out --cipher", has.name)))
        }
        _ => Ok(keys),
    }
}

fn make_key_file(path: &Path, source: &KeySource, cipher: Cipher) -> Result<(), Failure> {
    let Some(passphrase) = &source.opening.passphrase else {
        return Err(Failure::Configuration(format!(
            "{}: there is no such key file; make one with lunette keys create, or give a passphrase (passphrase_file) for one that is made now",
            path.display()
        )));
    };
    let passphrase = passphrase.read().map_err(Failure::configuration)?;
    let holder = NewHolder::Passphrase { passphrase: &passphrase, cost: Argon2Cost::DEFAULT };
    let made = Unlocked::create("owner", holder, cipher, now()).map_err(Failure::configuration)?;
    write_private(path, &made.to_bytes()).map_err(Failure::configuration)?;
    output::note(format_args!("{} is the key file of the volume: keep a copy of it elsewhere", path.display()));
    Ok(())
}
