//! From the words that a user writes to the keys of a volume.
//!
//! A [`KeySource`] says where the key file of a volume is, and what opens it; the parameters `keys`, `passphrase_file`,
//! `passphrase_credential` and `tls` of a disk's URL are one. [`KeySource::fetch`] reads the key file, unwraps its keys
//! and gives them as a [`KeyRing`]. It waits: for Argon2id, for files, and for key servers.
//!
//! ```no_run
//! use lunette_keys::source::{KeySource, Opening, PassphraseSource};
//!
//! let source = KeySource {
//!     place: "file:/etc/lunette/vm1.keys".parse()?,
//!     opening: Opening { passphrase: Some(PassphraseSource::Credential("vm1".into())), tls: None },
//! };
//! let keys = source.fetch(&mut |_| None)?;
//! println!("volume {}, epoch {}", keys.volume, keys.ring.newest_epoch());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod opening;
mod place;
mod published;
#[cfg(test)]
mod tests;

use lunette_quanta::{DataKey, KeyRing, VolumeId};
use lunette_tls::folder::TlsFiles;

use crate::client::Client;
use crate::files::{KEY_FILE, read_bounded};
use crate::keyfile::{EpochKey, KeyFile, Unlocked};
use crate::secret::Passphrase;

pub use error::KeySourceError;
pub use opening::{Opener, Opening, PassphraseSource, credential};
pub use place::{KeyPlace, KmipUrl, PlaceError};
pub use published::publish;

/// Where the key file of a volume is, and what opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySource {
    /// Where the key file is.
    pub place: KeyPlace,
    /// The means that open the file.
    pub opening: Opening,
}

/// The keys of a volume, ready for use.
#[derive(Debug, Clone)]
pub struct VolumeKeys {
    /// The volume that the keys are for.
    pub volume: VolumeId,
    /// The data keys of all epochs.
    pub ring: KeyRing,
    /// How many times the key file was changed: of two copies, the one with the higher number is the newer one.
    pub generation: u64,
}

impl KeySource {
    /// Reads the key file and unwraps its keys. `ask` is called with the key file's name when nothing else opens it,
    /// and asks a person for the passphrase; `None` means that there is no person to ask.
    ///
    /// # Errors
    ///
    /// [`KeySourceError`] says what is wrong, where, and what to do.
    pub fn fetch(&self, ask: &mut dyn FnMut(&str) -> Option<Passphrase>) -> Result<VolumeKeys, KeySourceError> {
        let name = self.place.to_string();
        let file = self.read()?;
        let (keys, _) = self.opening.unlock(&name, &file, ask)?;
        let ring = ring(&keys).map_err(|reason| KeySourceError::Ring { place: name, reason })?;
        Ok(VolumeKeys { volume: VolumeId(keys.volume()), ring, generation: keys.generation() })
    }

    /// Reads the key file. Nothing in it is authenticated yet.
    ///
    /// # Errors
    ///
    /// [`KeySourceError`]
    pub fn read(&self) -> Result<KeyFile, KeySourceError> {
        match &self.place {
            KeyPlace::File(path) => {
                let bytes = read_bounded(path, KEY_FILE)?;
                let error = |error| KeySourceError::KeyFile { place: self.place.to_string(), error };
                KeyFile::parse(&bytes).map_err(error)
            }
            KeyPlace::Kmip { server, name } => {
                let mut client = self.opening.connect(server)?;
                Ok(published::fetch(&mut client, name)?)
            }
        }
    }
}

impl Opening {
    /// Connects to a key server.
    ///
    /// # Errors
    ///
    /// [`KeySourceError::NoCertificate`] and [`KeySourceError::Server`].
    pub fn connect(&self, server: &str) -> Result<Client, KeySourceError> {
        let folder = self.tls.as_ref().ok_or_else(|| KeySourceError::NoCertificate(server.into()))?;
        Ok(Client::connect(server, &TlsFiles::in_folder(folder))?)
    }
}

/// The data keys as they seal and open quanta. A volume has one cipher.
fn ring(keys: &Unlocked) -> Result<KeyRing, String> {
    let first = keys.epochs().first().expect("a key file has one epoch at least");
    let cipher = first.cipher();
    let data_key = |key: &EpochKey| DataKey::new(*key.key().expose());
    let known = lunette_quanta::Cipher::of_id(cipher.id());
    let known = known.ok_or_else(|| format!("the cipher {} is not known here", cipher.name()))?;
    let refused = |error: lunette_quanta::KeyRingError| error.to_string();
    let mut ring = KeyRing::new(known, first.epoch(), &data_key(first)).map_err(refused)?;
    for key in &keys.epochs()[1..] {
        if key.cipher() != cipher {
            return Err(format!(
                "epoch {} has the cipher {} and epoch {} has {}, but all epochs of a volume have one cipher; rotate to it, and \
                 destroy the epoch of the other one",
                first.epoch(),
                cipher.name(),
                key.epoch(),
                key.cipher().name()
            ));
        }
        ring.add(key.epoch(), &data_key(key)).map_err(refused)?;
    }
    Ok(ring)
}
