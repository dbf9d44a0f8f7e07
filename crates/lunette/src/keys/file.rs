//! The commands that make, change and destroy key files.

use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use lunette_keys::keyfile::limits::MAX_KEY_FILE_BYTES;
use lunette_keys::keyfile::{Cipher, KeyFile, Unlocked};
use lunette_keys::{LockedFile, write_private};
use serde_json::json;

use super::Opened;
use super::list::hex;
use super::secrets::{Cost, cipher, now, read_passphrase};
use crate::failure::Failure;
use crate::output;

/// Make a key file for a new volume, with one holder and one epoch
#[derive(Args)]
pub(super) struct Create {
    /// The key file, which must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The file that holds the first holder's passphrase
    #[arg(long, value_name = "FILE")]
    passphrase_file: PathBuf,
    /// The first holder's name
    #[arg(long, default_value = "owner")]
    name: String,
    /// The cipher of the first epoch: aegis-256 or aes-256-gcm-siv
    #[arg(long, default_value = Cipher::Aegis256.name(), value_parser = cipher)]
    cipher: Cipher,
    #[command(flatten)]
    cost: Cost,
}

pub(super) fn create(arguments: &Create) -> Result<(), Failure> {
    let passphrase = read_passphrase(&arguments.passphrase_file)?;
    let holder = arguments.cost.holder(&passphrase);
    let keys = Unlocked::create(&arguments.name, holder, arguments.cipher, now()).map_err(Failure::configuration)?;
    write_private(&arguments.file, &keys.to_bytes()).map_err(Failure::configuration)?;
    output::line(format_args!("volume {}, epoch 1, holder {}", hex(&keys.volume()), arguments.name))
}

/// Let one more holder open a key file
#[derive(Args)]
pub(super) struct Grant {
    #[command(flatten)]
    opened: Opened,
    /// The new holder's name
    #[arg(long)]
    name: String,
    /// The file that holds the new holder's passphrase
    #[arg(long, value_name = "FILE")]
    new_passphrase_file: PathBuf,
    #[command(flatten)]
    cost: Cost,
}

pub(super) fn grant(arguments: &Grant) -> Result<(), Failure> {
    let passphrase = read_passphrase(&arguments.new_passphrase_file)?;
    let holder = arguments.cost.holder(&passphrase);
    change(&arguments.opened, |keys| keys.grant(&arguments.name, holder).map_err(Failure::configuration))?;
    output::line(format_args!("holder {} can open the key file", arguments.name))
}

/// Take a holder out of a key file
///
/// With the passphrase and an old copy of the file, the holder can still find the volume key, and with it every key in later
/// files. --new-volume-key prevents the latter. What was written so far must be rewritten (rotate, then rekey the volume) before it
/// is out of the holder's reach.
#[derive(Args)]
pub(super) struct Revoke {
    #[command(flatten)]
    opened: Opened,
    /// The holder's name
    #[arg(long)]
    name: String,
    /// Draw another volume key, too: of all holders, only the one whose passphrase is given stays, and the others must be granted again
    #[arg(long)]
    new_volume_key: bool,
    #[command(flatten)]
    cost: Cost,
}

pub(super) fn revoke(arguments: &Revoke) -> Result<(), Failure> {
    let mut removed = vec![arguments.name.clone()];
    change(&arguments.opened, |keys| {
        keys.revoke(&arguments.name).map_err(Failure::configuration)?;
        if !arguments.new_volume_key {
            return Ok(());
        }
        let opener = keys.opened_by().to_owned();
        if opener == arguments.name {
            return Err(Failure::Usage("the holder who opens the key file cannot be the one who is removed".into()));
        }
        let path = arguments.opened.opening.passphrase_file.as_ref();
        let path = path.ok_or_else(|| Failure::Usage("--new-volume-key needs --passphrase-file".into()))?;
        let passphrase = read_passphrase(path)?;
        removed.extend(keys.holders().map(|holder| holder.name.to_owned()).filter(|name| *name != opener));
        keys.replace_volume_key(&opener, arguments.cost.holder(&passphrase)).map_err(Failure::configuration)
    })?;
    output::line(format_args!("removed: {}", removed.join(", ")))
}

/// Begin an epoch: what is written from now on has a new key
#[derive(Args)]
pub(super) struct Rotate {
    #[command(flatten)]
    opened: Opened,
    /// The cipher of the new epoch; that of the last one unless given
    #[arg(long, value_parser = cipher)]
    cipher: Option<Cipher>,
}

pub(super) fn rotate(arguments: &Rotate) -> Result<(), Failure> {
    let epoch = change(&arguments.opened, |keys| {
        let cipher = arguments.cipher.unwrap_or(keys.current().cipher());
        keys.rotate(cipher, now()).map_err(Failure::configuration)
    })?;
    output::line(format_args!("epoch {epoch} is current"))
}

/// Destroy the key of an epoch, or a whole key file (crypto-erase)
///
/// Without --epoch the file is overwritten and removed, for which no passphrase is needed. Copies of the file are not reached.
#[derive(Args)]
pub(super) struct Destroy {
    #[command(flatten)]
    opened: Opened,
    /// Destroy the key of this epoch alone; its data must have been rewritten
    #[arg(long, value_name = "N")]
    epoch: Option<u32>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(super) fn destroy(arguments: &Destroy) -> Result<(), Failure> {
    let path = &arguments.opened.file;
    if let Some(epoch) = arguments.epoch {
        ask(
            arguments.yes,
            &format!("Data of epoch {epoch} that was not rewritten can never be read again, by anyone."),
        )?;
        change(&arguments.opened, |keys| keys.destroy_epoch(epoch).map_err(Failure::configuration))?;
        return output::line(format_args!("the key of epoch {epoch} is destroyed"));
    }
    let locked = LockedFile::open(path).map_err(Failure::configuration)?;
    let file = parse(path, &locked)?;
    let volume = hex(&file.volume());
    let what = format!(
        "Volume {volume} can never be read again, by anyone: {} is its key file, and all {} keys in it are destroyed.",
        path.display(),
        file.epochs().count()
    );
    ask(arguments.yes, &what)?;
    locked.destroy().map_err(Failure::configuration)?;
    output::line(format_args!("the keys of volume {volume} are destroyed; destroy copies of the file, too"))
}

/// Write all data keys, unencrypted, to a file: the way to other programs, or into a safe
#[derive(Args)]
pub(super) struct Export {
    #[command(flatten)]
    opened: Opened,
    /// The file to write, which must not exist; only its owner can read it
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
}

pub(super) fn export(arguments: &Export) -> Result<(), Failure> {
    let locked = LockedFile::open(&arguments.opened.file).map_err(Failure::configuration)?;
    let keys = arguments.opened.opening.unlock(&parse(&arguments.opened.file, &locked)?)?;
    let epoch = |key: &lunette_keys::keyfile::EpochKey| json!({ "epoch": key.epoch(), "cipher": key.cipher().name(), "key": hex(key.key().expose()) });
    let epochs: Vec<_> = keys.epochs().iter().map(epoch).collect();
    let text = format!("{:#}\n", json!({ "volume": hex(&keys.volume()), "epochs": epochs }));
    write_private(&arguments.to, text.as_bytes()).map_err(Failure::configuration)?;
    eprintln!("{} holds the keys unencrypted: whoever can read it can read the volume", arguments.to.display());
    Ok(())
}

/// Opens a key file, changes it and writes it back, while no other process can.
fn change<T>(opened: &Opened, change: impl FnOnce(&mut Unlocked) -> Result<T, Failure>) -> Result<T, Failure> {
    let locked = LockedFile::open(&opened.file).map_err(Failure::configuration)?;
    let mut keys = opened.opening.unlock(&parse(&opened.file, &locked)?)?;
    let outcome = change(&mut keys)?;
    locked.replace(&keys.to_bytes()).map_err(Failure::configuration)?;
    Ok(outcome)
}

pub(super) fn parse(path: &Path, locked: &LockedFile) -> Result<KeyFile, Failure> {
    let bytes = locked.read(MAX_KEY_FILE_BYTES).map_err(Failure::configuration)?;
    KeyFile::parse(&bytes).map_err(|error| Failure::Configuration(format!("{}: {error}", path.display())))
}

/// Says what will be lost, and asks when there is a person to ask.
fn ask(yes: bool, what: &str) -> Result<(), Failure> {
    eprintln!("{what}");
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage("nothing was destroyed: add --yes to do it".into()));
    }
    eprint!("Type yes to do it: ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failure::other)?;
    if answer.trim() == "yes" { Ok(()) } else { Err(Failure::Other("nothing was destroyed".into())) }
}
