//! Key files: the keys of one volume, and the holders that may have them.
//!
//! A key file lists *epochs* and *holders*. Each epoch has a data key, which encrypts what is written while the epoch
//! is the last one. The data keys are wrapped by the volume key, and the volume key is wrapped once for each holder, so
//! holders come and go without a change of the data keys. `docs/keys.md` is the specification of the format.
//!
//! The file is authenticated as a whole (HMAC-SHA256 by a key that is made from the volume key): an epoch or a holder
//! that is removed, added, reordered or taken from another volume's file is refused when the file is unlocked. An old
//! copy of the whole file is valid for ever, as it is with LUKS headers: `generation` tells which of two files is the
//! newer one.
//!
//! ```
//! use lunette_keys::keyfile::{Cipher, KeyFile, NewHolder, Secret, Unlocked};
//! use lunette_keys::{Argon2Cost, Passphrase};
//!
//! let passphrase = Passphrase::new(b"correct horse".to_vec()).expect("long enough");
//! let cost = Argon2Cost { memory_kib: 8192, passes: 1, lanes: 1 };
//! let mut keys = Unlocked::create("alice", NewHolder::Passphrase { passphrase: &passphrase, cost }, Cipher::Aegis256, 0)?;
//! keys.rotate(Cipher::Aegis256, 60)?;
//! let bytes = keys.to_bytes();
//!
//! let keys = KeyFile::parse(&bytes)?.unlock(Secret::Passphrase(&passphrase))?;
//! assert_eq!(keys.current().epoch(), 2);
//! assert_eq!(keys.epochs().len(), 2);
//! # Ok::<(), lunette_keys::keyfile::KeyFileError>(())
//! ```

mod cipher;
mod format;
mod holder;
pub mod limits;
#[cfg(test)]
mod tests;
mod unlocked;

pub use cipher::Cipher;
pub use holder::{NewHolder, Secret};
pub use unlocked::{EpochKey, Unlocked};

use format::{Document, Lock};
use unlocked::mac_key;

use crate::passphrase::Argon2Cost;
use crate::seal;

/// A key file that was read and not unlocked: nothing in it is authenticated yet.
#[derive(Debug, Clone)]
pub struct KeyFile {
    document: Document,
    bytes: Vec<u8>,
    authenticated: usize,
}

/// A holder, as anyone can see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder<'a> {
    /// The name.
    pub name: &'a str,
    /// Where its key comes from.
    pub kind: HolderKind<'a>,
}

/// Where a holder's key comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HolderKind<'a> {
    /// From a passphrase, at this cost.
    Passphrase(Argon2Cost),
    /// From an object of a key server.
    Kmip {
        /// The server, as `HOST:PORT`.
        server: &'a str,
        /// The object's unique identifier.
        object: &'a str,
    },
}

/// An epoch, as anyone can see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    /// The number, from 1.
    pub number: u32,
    /// The cipher of its data key.
    pub cipher: Cipher,
    /// When it began, in seconds since 1970.
    pub created: u64,
}

impl KeyFile {
    /// Reads a key file and checks its form.
    ///
    /// # Errors
    ///
    /// When the bytes are no key file of a version that is known, or exceed one of the [`limits`].
    pub fn parse(bytes: &[u8]) -> Result<Self, KeyFileError> {
        let (document, authenticated) = Document::parse(bytes)?;
        Ok(Self { document, bytes: bytes.into(), authenticated })
    }

    /// The number of the volume.
    pub fn volume(&self) -> [u8; 16] {
        self.document.volume.0
    }

    /// How many times the file was changed.
    pub fn generation(&self) -> u64 {
        self.document.generation
    }

    /// The holders.
    pub fn holders(&self) -> impl Iterator<Item = Holder<'_>> {
        holders(&self.document)
    }

    /// The epochs, the current one last.
    pub fn epochs(&self) -> impl Iterator<Item = Epoch> {
        epochs(&self.document)
    }

    /// Unwraps the keys, and authenticates the file. A passphrase is tried for each holder that has one, at the cost
    /// that the file says.
    ///
    /// # Errors
    ///
    /// When the secret is no holder's, or the file was altered.
    pub fn unlock(&self, secret: Secret<'_>) -> Result<Unlocked, KeyFileError> {
        let volume = &self.document.volume.0;
        let mut holders = self.document.holders.iter();
        let found = holders.find_map(|record| Some((record, holder::unwrap(volume, record, secret)?)));
        let (record, volume_key) = found.ok_or_else(|| match secret {
            Secret::Passphrase(_) => KeyFileError::WrongPassphrase,
            Secret::Kmip { object, .. } => KeyFileError::WrongObject(object.into()),
        })?;
        let text = &self.bytes[..self.authenticated];
        if !seal::mac_is(&mac_key(volume, &volume_key), text, self.document.mac()) {
            return Err(KeyFileError::Altered);
        }
        Unlocked::open(self.document.clone(), volume_key, record.name.clone())
    }
}

fn holders(document: &Document) -> impl Iterator<Item = Holder<'_>> {
    document.holders.iter().map(|record| Holder {
        name: &record.name,
        kind: match &record.lock {
            Lock::Passphrase { cost, .. } => HolderKind::Passphrase(*cost),
            Lock::Kmip { server, object } => HolderKind::Kmip { server, object },
        },
    })
}

fn epochs(document: &Document) -> impl Iterator<Item = Epoch> {
    let epoch =
        |record: &format::EpochRecord| Epoch { number: record.epoch, cipher: record.cipher(), created: record.created };
    document.epochs.iter().map(epoch)
}

/// Why a key file cannot be used or changed. Messages name the remedy where there is one, and no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The bytes end too early.
    #[error("the key file is cut off: it ends in the middle; restore it from a copy")]
    Truncated,
    /// The bytes are no key file.
    #[error("this is no key file: {0}")]
    Malformed(String),
    /// The key file is of a later version.
    #[error("the key file has version {0}, and this program knows version 1; use a later program")]
    Version(u32),
    /// No holder has this passphrase.
    #[error("no holder of the key file has this passphrase")]
    WrongPassphrase,
    /// No holder has this object of a key server.
    #[error("the object {0} of the key server opens no holder's part of the key file")]
    WrongObject(String),
    /// A holder's part opens, and the rest does not belong to it.
    #[error("the key file was altered: its authentication code is wrong; restore it from a copy")]
    Altered,
    /// A change that is not possible.
    #[error("{0}")]
    Refused(String),
}
