//! What opens a key file, and what a new holder will open it with.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use lunette_keys::keyfile::{Cipher, KeyFile, NewHolder, Secret, Unlocked};
use lunette_keys::{Argon2Cost, Passphrase};

use crate::failure::Failure;

/// How a holder opens a key file.
#[derive(Args)]
pub(super) struct Opening {
    /// The file that holds a holder's passphrase
    #[arg(long, value_name = "FILE")]
    pub(super) passphrase_file: Option<PathBuf>,
}

impl Opening {
    /// Unlocks a key file.
    pub(super) fn unlock(&self, file: &KeyFile) -> Result<Unlocked, Failure> {
        let Some(path) = &self.passphrase_file else {
            return Err(Failure::Usage("the key file is opened with --passphrase-file".into()));
        };
        let passphrase = read_passphrase(path)?;
        file.unlock(Secret::Passphrase(&passphrase)).map_err(Failure::configuration)
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

pub(super) fn read_passphrase(path: &std::path::Path) -> Result<Passphrase, Failure> {
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
