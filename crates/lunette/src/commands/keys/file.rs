//! The commands that make, change and destroy key files.

use std::path::{Path, PathBuf};

use clap::Args;
use lunette_keys::keyfile::{Cipher, EpochKey, KeyFile, Unlocked};
use lunette_keys::source::{KmipUrl, Opener};
use lunette_keys::{LockedFile, write_private};
use serde_json::json;

use super::list::hex;
use super::place::{Place, Tls};
use super::secrets::{Cost, cipher, holder, now, read_passphrase};
use super::{Opened, object};
use crate::failure::Failure;
use crate::output;
use crate::terminal::ask;

/// Make a key file for a new volume, with one holder and one epoch, or a key in a key server
#[derive(Args)]
pub(super) struct Create {
    /// The key file, which must not exist; or kmip://HOST/NAME (HOST:PORT/NAME) for a key in a key server
    #[arg(value_name = "PLACE")]
    place: Place,
    /// The file that holds the first holder's passphrase
    #[arg(long, value_name = "FILE", conflicts_with = "kmip")]
    passphrase_file: Option<PathBuf>,
    /// The first holder's key is this object of a key server, which is created when it is missing
    #[arg(long, value_name = "kmip://HOST[:PORT]/NAME")]
    kmip: Option<KmipUrl>,
    /// The first holder's name
    #[arg(long, default_value = "owner")]
    name: String,
    /// The cipher of the first epoch: aegis-256, aes-256-gcm-siv, or aegis-256x4 (the fastest on CPUs with vector AES
    /// instructions)
    #[arg(long, default_value = Cipher::Aegis256.name(), value_parser = cipher)]
    cipher: Cipher,
    #[command(flatten)]
    tls: Tls,
    #[command(flatten)]
    cost: Cost,
}

/// The secret of a new holder: a passphrase, or a key of a key server.
fn new_secret(passphrase_file: Option<&Path>, kmip: Option<&KmipUrl>, tls: &Tls) -> Result<Opener, Failure> {
    match (passphrase_file, kmip) {
        (Some(path), _) => read_passphrase(path).map(Opener::Passphrase),
        (None, Some(url)) => {
            let (object, key) = object::find_or_create(url, tls)?;
            Ok(Opener::Kmip { server: url.server.clone(), object, key })
        }
        (None, None) => {
            Err(Failure::Usage("a holder has a file with a passphrase, or a key of a key server (--kmip)".into()))
        }
    }
}

pub(super) fn create(arguments: &Create) -> Result<(), Failure> {
    let Create { place, passphrase_file, kmip, name, cipher, tls, cost } = arguments;
    let path = match place {
        Place::File(path) => path,
        Place::Kmip(url) => return object::create(url, tls),
    };
    if path.exists() {
        return Err(Failure::Configuration(format!("{}: the file exists already", path.display())));
    }
    let secret = new_secret(passphrase_file.as_deref(), kmip.as_ref(), tls)?;
    let keys = Unlocked::create(name, holder(&secret, cost), *cipher, now()).map_err(Failure::configuration)?;
    write_private(path, &keys.to_bytes()).map_err(Failure::configuration)?;
    output::line(format_args!("volume {}, epoch 1, holder {name}", hex(&keys.volume())))
}

/// Let one more holder open a key file, or one more client read an object of a key server
#[derive(Args)]
pub(super) struct Grant {
    #[command(flatten)]
    opened: Opened,
    /// The new holder's name; for an object, the name in the client's certificate
    #[arg(long)]
    name: String,
    /// The file that holds the new holder's passphrase
    #[arg(long, value_name = "FILE", conflicts_with = "kmip")]
    new_passphrase_file: Option<PathBuf>,
    /// The new holder's key is this object of a key server, which is created when it is missing
    #[arg(long, value_name = "kmip://HOST[:PORT]/NAME")]
    kmip: Option<KmipUrl>,
    #[command(flatten)]
    cost: Cost,
}

pub(super) fn grant(arguments: &Grant) -> Result<(), Failure> {
    let Grant { opened, name, new_passphrase_file, kmip, cost } = arguments;
    if let Place::Kmip(url) = &opened.place {
        return object::grant(url, &opened.opening.tls, name);
    }
    let secret = new_secret(new_passphrase_file.as_deref(), kmip.as_ref(), &opened.opening.tls)?;
    change(opened, |keys, _| keys.grant(name, holder(&secret, cost)).map_err(Failure::configuration))?;
    output::line(format_args!("holder {name} can open the key file"))
}

/// Take a holder out of a key file, or an object of a key server from a client
///
/// With its secret and an old copy of the file, the holder can still find the volume key, and with it every key in
/// later files. --new-volume-key prevents the latter. What was written so far must be rewritten (rotate, then rekey the
/// volume) before it is out of reach.
///
/// Without --name, the object of a key server is revoked for all: it can be read to decrypt, and no longer used to
/// encrypt.
#[derive(Args)]
pub(super) struct Revoke {
    #[command(flatten)]
    opened: Opened,
    /// The holder's name; for an object, the name in the client's certificate
    #[arg(long)]
    name: Option<String>,
    /// Draw another volume key, too: of all holders, only the one that opens the file stays, and others must be granted
    /// again
    #[arg(long)]
    new_volume_key: bool,
    /// The object of a key server is known to others
    #[arg(long, conflicts_with = "name")]
    compromised: bool,
    #[command(flatten)]
    cost: Cost,
}

pub(super) fn revoke(arguments: &Revoke) -> Result<(), Failure> {
    let Revoke { opened, name, new_volume_key, compromised, cost } = arguments;
    if let Place::Kmip(url) = &opened.place {
        return object::revoke(url, &opened.opening.tls, name.as_deref(), *compromised);
    }
    let name = name.as_ref().ok_or_else(|| Failure::Usage("name the holder with --name".into()))?;
    let mut removed = vec![name.clone()];
    change(opened, |keys, opener| {
        keys.revoke(name).map_err(Failure::configuration)?;
        if !new_volume_key {
            return Ok(());
        }
        let stays = keys.opened_by().to_owned();
        if stays == *name {
            return Err(Failure::Usage("--name is the holder that opens the key file; open it as another one".into()));
        }
        removed.extend(keys.holders().map(|holder| holder.name.to_owned()).filter(|name| *name != stays));
        keys.replace_volume_key(&stays, holder(opener, cost)).map_err(Failure::configuration)
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
    let epoch = change(&arguments.opened, |keys, _| {
        let cipher = arguments.cipher.unwrap_or(keys.current().cipher());
        keys.rotate(cipher, now()).map_err(Failure::configuration)
    })?;
    output::line(format_args!("epoch {epoch} is current"))
}

/// Put a key file into a key server, from where keys=kmip://HOST/NAME takes it
///
/// It stays as it is: a reader of the object still needs what opens it, such as the object of its holder. After each
/// change of the key file publish it again: the old object is destroyed then, and its users are those of the new one.
#[derive(Args)]
pub(super) struct Publish {
    /// The key file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The object to put it in
    #[arg(value_name = "kmip://HOST[:PORT]/NAME")]
    object: KmipUrl,
    #[command(flatten)]
    tls: Tls,
}

pub(super) fn publish(arguments: &Publish) -> Result<(), Failure> {
    let Publish { file, object: url, tls } = arguments;
    let locked = LockedFile::open(file).map_err(Failure::configuration)?;
    parse(file, &locked)?;
    let bytes = locked.read().map_err(Failure::configuration)?;
    object::publish(url, tls, &bytes)
}

/// Destroy the key of an epoch, a whole key file (crypto-erase), or an object of a key server
///
/// Without --epoch the file is overwritten and removed, for which no passphrase is needed. Copies of the file are not
/// reached.
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
    let Destroy { opened, epoch, yes } = arguments;
    let path = match &opened.place {
        Place::File(path) => path,
        Place::Kmip(url) => return object::destroy(url, &opened.opening.tls, *yes),
    };
    if let Some(epoch) = *epoch {
        ask(*yes, &format!("Data of epoch {epoch} that was not rewritten can never be read again, by anyone."))?;
        change(opened, |keys, _| keys.destroy_epoch(epoch).map_err(Failure::configuration))?;
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
    ask(*yes, &what)?;
    locked.destroy().map_err(Failure::configuration)?;
    output::line(format_args!("the keys of volume {volume} are destroyed; destroy copies of the file, too"))
}

/// Write all data keys, or the key of an object, unencrypted to a file: the way to other programs, or into a safe
#[derive(Args)]
pub(super) struct Export {
    #[command(flatten)]
    opened: Opened,
    /// The file to write, which must not exist; only its owner can read it
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
}

pub(super) fn export(arguments: &Export) -> Result<(), Failure> {
    let Export { opened, to } = arguments;
    match &opened.place {
        Place::Kmip(url) => object::export(url, &opened.opening.tls, to)?,
        Place::File(path) => {
            let (keys, _) =
                opened.opening.unlock(path, &parse(path, &LockedFile::open(path).map_err(Failure::configuration)?)?)?;
            let epoch = |key: &EpochKey| json!({ "epoch": key.epoch(), "cipher": key.cipher().name(), "key": hex(key.key().expose()) });
            let epochs: Vec<_> = keys.epochs().iter().map(epoch).collect();
            let text = format!("{:#}\n", json!({ "volume": hex(&keys.volume()), "epochs": epochs }));
            write_private(to, text.as_bytes()).map_err(Failure::configuration)?;
        }
    }
    output::note(format_args!(
        "{} holds keys unencrypted: whoever can read it can read what they encrypt",
        to.display()
    ));
    Ok(())
}

/// Opens a key file, changes it and writes it back, while no other process can.
fn change<T>(opened: &Opened, change: impl FnOnce(&mut Unlocked, &Opener) -> Result<T, Failure>) -> Result<T, Failure> {
    let Place::File(path) = &opened.place else {
        return Err(Failure::Usage("this works on a key file; make another key for a new object".into()));
    };
    let locked = LockedFile::open(path).map_err(Failure::configuration)?;
    let (mut keys, opener) = opened.opening.unlock(path, &parse(path, &locked)?)?;
    let outcome = change(&mut keys, &opener)?;
    locked.replace(&keys.to_bytes()).map_err(Failure::configuration)?;
    Ok(outcome)
}

pub(super) fn parse(path: &Path, locked: &LockedFile) -> Result<KeyFile, Failure> {
    let bytes = locked.read().map_err(Failure::configuration)?;
    KeyFile::parse(&bytes).map_err(|error| Failure::Configuration(format!("{}: {error}", path.display())))
}
