//! The secrets that open a key file, and those of a new holder.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use lunette_keys::keyfile::{Cipher, KeyFile, NewHolder, Unlocked};
use lunette_keys::source::{self, Opener, PassphraseSource};
use lunette_keys::{Argon2Cost, Key, Passphrase};

use super::place::Tls;
use crate::disks::encrypted::keys::key_failure;
use crate::failure::Failure;
use crate::terminal;

/// How a holder opens a key file.
#[derive(Args)]
pub(super) struct Opening {
    /// The file that holds a holder's passphrase
    #[arg(long, value_name = "FILE")]
    pub(super) passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) tls: Tls,
}

impl Opening {
    /// Whether a secret is given.
    pub(super) fn is_given(&self) -> bool {
        self.passphrase_file.is_some() || self.tls.tls.is_some()
    }

    /// Unlocks a key file with the passphrase, or with a key that one of its holders has in a key server.
    pub(super) fn unlock(&self, path: &Path, file: &KeyFile) -> Result<(Unlocked, Opener), Failure> {
        let passphrase = self.passphrase_file.clone().map(PassphraseSource::File);
        let opening = source::Opening { passphrase, tls: self.tls.tls.clone() };
        opening.unlock(&path.display().to_string(), file, &mut terminal::passphrase).map_err(key_failure)
    }
}

/// The holder that an opener is.
pub(super) fn holder<'a>(opener: &'a Opener, cost: &Cost) -> NewHolder<'a> {
    match opener {
        Opener::Passphrase(passphrase) => cost.holder(passphrase),
        Opener::Kmip { server, object, key } => NewHolder::Kmip { server, object, key },
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
pub(crate) fn cipher(name: &str) -> Result<Cipher, String> {
    let names: Vec<_> = Cipher::all().map(Cipher::name).collect();
    Cipher::by_name(name).ok_or_else(|| format!("one of {}", names.join(", ")))
}

/// The time in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Reads a file of exactly 32 bytes.
pub(super) fn read_key(path: &Path) -> Result<Key, Failure> {
    Key::read(path).map_err(Failure::configuration)
}
