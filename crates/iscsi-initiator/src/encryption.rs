//! Encrypted disks, opened with the keys that their names give.
//!
//! A disk holds a volume of quanta (`docs/quanta.md`), whose keys are elsewhere (`docs/keys.md`). [`connect`] does all
//! of it for a URL; [`key_source`] and [`open`] are its parts, and work over any [`Store`]. All functions wait, so none
//! is called on the thread of an event loop.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use lunette_initiator::store::{Op, Store, execute};
//! use lunette_initiator::{Initiator, Url, encryption};
//!
//! let url = "iscsi://192.0.2.1/iqn.2026-11.org.example:disk/0?keys=file:/etc/vm1.keys&passphrase_file=/etc/vm1.pass";
//! let initiator = Initiator::start()?;
//! let disk: Arc<dyn Store> = encryption::connect(&initiator, &Url::parse(url)?)?;
//! println!("{} bytes of plain text", disk.geometry().len_bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use lunette_keys::source::{KeySource, KeySourceError, Opening, PassphraseSource, VolumeKeys};
use lunette_store::Store;
use lunette_volume::{OpenOptions, Volume, VolumeError};

use crate::{Disk, Error, Initiator, KeyParameters, RemoteStore, Url, UrlError, wait};

pub use lunette_keys as keys;
pub use lunette_volume as volume;

/// Why an encrypted disk could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncryptionError {
    /// The URL is wrong, or its disk cannot be reached.
    #[error(transparent)]
    Disk(#[from] Error),
    /// The keys cannot be had.
    #[error(transparent)]
    Keys(#[from] KeySourceError),
    /// The disk has no volume that these keys open.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The keys are those of another volume.
    #[error(
        "the keys in {place} are those of volume {keys}, and the disk has volume {disk}; name the key file of this disk"
    )]
    OtherVolume {
        /// Where the keys are.
        place: String,
        /// The volume of the keys.
        keys: String,
        /// The volume on the disk.
        disk: String,
    },
}

/// Opens the disk that a URL names: as plain text when it names keys, as it is otherwise. LUN 0 when it names none.
///
/// No person is asked for a passphrase.
///
/// # Errors
///
/// [`EncryptionError`]
pub fn connect(initiator: &Initiator, url: &Url) -> Result<Arc<dyn Store>, EncryptionError> {
    let mut url = url.clone();
    let keys = url.keys.take();
    // Keys first: without them there is no need to log in.
    let keys = match &keys {
        Some(keys) => {
            let source = key_source(keys).map_err(Error::from)?;
            let fetched = source.fetch(&mut |_| None)?;
            let options = OpenOptions { anchor: keys.anchor.clone(), ..OpenOptions::default() };
            Some((source, fetched, options))
        }
        None => None,
    };
    let options = url.options().map_err(Error::from)?;
    let disk = wait(Disk::of_url(initiator, &url, options))?;
    let unit: Arc<dyn Store> = Arc::new(RemoteStore::new(disk));
    match keys {
        None => Ok(unit),
        Some((source, keys, options)) => Ok(Arc::new(open(unit, &source, keys, options)?)),
    }
}

/// The source of keys that the parameters of a name describe.
///
/// # Errors
///
/// [`UrlError`] when `keys` names neither a file nor an object of a key server.
pub fn key_source(parameters: &KeyParameters) -> Result<KeySource, UrlError> {
    let KeyParameters { keys, passphrase_file, passphrase_credential, tls, anchor: _ } = parameters;
    let place = keys.parse().map_err(|error| UrlError::new(format!("keys={keys}: {error}")))?;
    let file = passphrase_file.clone().map(PassphraseSource::File);
    let passphrase = file.or_else(|| passphrase_credential.clone().map(PassphraseSource::Credential));
    Ok(KeySource { place, opening: Opening { passphrase, tls: tls.clone() } })
}

/// Opens the volume on `unit` with `keys`, which came from `source`.
///
/// # Errors
///
/// [`EncryptionError::OtherVolume`] and [`EncryptionError::Volume`].
pub fn open(
    unit: Arc<dyn Store>,
    source: &KeySource,
    keys: VolumeKeys,
    options: OpenOptions,
) -> Result<Volume, EncryptionError> {
    let found = lunette_volume::find(&unit)?;
    check(&found, source, &keys)?;
    Ok(Volume::open(unit, &found, keys.ring, options)?)
}

/// Checks that `keys` are those of the volume that was found.
///
/// # Errors
///
/// [`EncryptionError::OtherVolume`].
pub fn check(found: &lunette_volume::Found, source: &KeySource, keys: &VolumeKeys) -> Result<(), EncryptionError> {
    let disk = found.header().volume;
    if disk == keys.volume {
        return Ok(());
    }
    let place = source.place.to_string();
    Err(EncryptionError::OtherVolume { place, keys: keys.volume.to_string(), disk: disk.to_string() })
}
