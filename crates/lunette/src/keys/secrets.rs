//! What opens a key file, and what a new holder will open it with.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use lunette_keys::keyfile::{Cipher, HolderKind, KeyFile, NewHolder, Secret, Unlocked};
use lunette_keys::{Argon2Cost, Key, Passphrase};

use super::object::failure;
use super::place::Tls;
use crate::failure::Failure;

/// How a holder opens a key file.
#[derive(Args)]
pub(super) struct Opening {
    /// The file that holds a holder's passphrase
    #[arg(long, value_name = "FILE")]
    pub(super) passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) tls: Tls,
}

/// The secret that opened a key file, and opens a changed one.
pub(super) enum Opener {
    Passphrase(Passphrase),
    Kmip { server: String, object: String, key: Key },
}

impl Opening {
    /// Whether a secret is given.
    pub(super) fn is_given(&self) -> bool {
        self.passphrase_file.is_some() || self.tls.tls.is_some()
    }

    /// Unlocks a key file with the passphrase, or with a key that one of its holders has in a key server.
    pub(super) fn unlock(&self, file: &KeyFile) -> Result<(Unlocked, Opener), Failure> {
        if let Some(path) = &self.passphrase_file {
            let passphrase = read_passphrase(path)?;
            let keys = file.unlock(Secret::Passphrase(&passphrase)).map_err(Failure::configuration)?;
            return Ok((keys, Opener::Passphrase(passphrase)));
        }
        let place = file.holders().find_map(|holder| match holder.kind {
            HolderKind::Kmip { server, object } => Some((server.to_owned(), object.to_owned())),
            HolderKind::Passphrase(_) => None,
        });
        let (server, object) = match (place, &self.tls.tls) {
            (Some(place), Some(_)) => place,
            (Some(_), None) => {
                let message = "the key file is opened with --passphrase-file, or with --tls by its key server";
                return Err(Failure::Usage(message.into()));
            }
            (None, _) => return Err(Failure::Usage("the key file is opened with --passphrase-file".into())),
        };
        let key = self.tls.connect(&server)?.get_key(&object).map_err(failure)?;
        let keys = file.unlock(Secret::Kmip { object: &object, key: &key }).map_err(Failure::configuration)?;
        Ok((keys, Opener::Kmip { server, object, key }))
    }
}

impl Opener {
    /// The holder of this secret.
    pub(super) fn holder(&self, cost: &Cost) -> NewHolder<'_> {
        match self {
            Self::Passphrase(passphrase) => cost.holder(passphrase),
            Self::Kmip { server, object, key } => NewHolder::Kmip { server, object, key },
        }
    }
}

/// The cost of a guess of a new passphrase.
#[derive(Args)]
pub(super) struct Cost {
    /// Memory that Argon2id takes, in MiB
    #[arg(long, value_name = "MIB", default_value_t = Argon2Cost::DEFAULT.memory_kib >> 10,
          value_parser = clap::value_parser!(u32).range(8..=1024))]
    argon2_memory: u32,
    /// Passes of Argon2id over its memory
    #[arg(long, value_name = "N", default_value_t = Argon2Cost::DEFAULT.passes,
          value_parser = clap::value_parser!(u32).range(1..=16))]
    argon2_passes: u32,
}

impl Cost {
    fn get(&self) -> Argon2Cost {
        Argon2Cost { memory_kib: self.argon2_memory << 10, passes: self.argon2_passes, ..Argon2Cost::DEFAULT }
    }

    /// A holder with a passphrase.
    pub(super) fn holder<'a>(&self, passphrase: &'a Passphrase) -> NewHolder<'a> {
        NewHolder::Passphrase { passphrase, cost: self.get() }
    }
}

pub(super) fn read_passphrase(path: &Path) -> Result<Passphrase, Failure> {
    Passphrase::read(path).map_err(Failure::configuration)
}

/// Reads the name of a cipher.
pub(super) fn cipher(name: &str) -> Result<Cipher, String> {
    let names: Vec<_> = Cipher::all().map(Cipher::name).collect();
    Cipher::by_name(name).ok_or_else(|| format!("one of {}", names.join(", ")))
}

/// The time in seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Reads a file of exactly 32 bytes.
pub(super) fn read_key(path: &Path) -> Result<Key, Failure> {
    Key::read(path).map_err(Failure::configuration)
}
