//! Encrypted disks: the keys that a name gives, and the volume that they open.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use lunette_initiator::KeyParameters;
use lunette_initiator::encryption::{self, EncryptionError};
use lunette_keys::source::{KeySource, KeySourceError, VolumeKeys};
use lunette_store::Store;
use lunette_volume::{Found, OpenOptions, Volume, VolumeError};

use crate::disks::encrypted::volumes;
use crate::disks::iscsi::failure::remote_failure;
use crate::failure::Failure;
use crate::system::protect_secrets;
use crate::terminal;

/// The keys of a volume, where they came from, and the file of its anchor.
pub(crate) struct Keys {
    source: KeySource,
    pub(crate) fetched: VolumeKeys,
    anchor: Option<PathBuf>,
}

impl Keys {
    /// Fetches the keys. From here on, this process leaves no core dump.
    pub(crate) fn fetch(parameters: &KeyParameters) -> Result<Self, Failure> {
        let source = encryption::key_source(parameters).map_err(|error| Failure::Usage(error.to_string()))?;
        Self::of(source, parameters.anchor.clone())
    }

    /// Fetches the keys of a source.
    pub(crate) fn of(source: KeySource, anchor: Option<PathBuf>) -> Result<Self, Failure> {
        protect_secrets();
        let fetched = source.fetch(&mut terminal::passphrase).map_err(key_failure)?;
        Ok(Self { source, fetched, anchor })
    }

    /// Finds the volume that these keys are for on the unit `name`.
    pub(crate) fn find(&self, name: &dyn Display, unit: &Arc<dyn Store>) -> Result<Found, Failure> {
        let found = lunette_volume::find(unit).map_err(|error| volume_failure(name, &error))?;
        match encryption::check(&found, &self.source, &self.fetched) {
            Ok(()) => Ok(found),
            Err(error) => Err(encryption_failure(name, error)),
        }
    }

    /// Opens the volume on the unit `name`.
    pub(crate) fn open(
        self,
        name: &dyn Display,
        unit: Arc<dyn Store>,
        read_only: bool,
    ) -> Result<Arc<Volume>, Failure> {
        self.open_with(name, unit, OpenOptions { read_only, ..OpenOptions::default() })
    }

    fn open_with(
        self,
        name: &dyn Display,
        unit: Arc<dyn Store>,
        mut options: OpenOptions,
    ) -> Result<Arc<Volume>, Failure> {
        options.anchor = self.anchor;
        let opened = encryption::open(unit, &self.source, self.fetched, options);
        opened.map(Arc::new).map_err(|error| encryption_failure(name, error))
    }
}

impl Keys {
    /// Opens the volume on the unit `name` for a server: its keys are kept up to date, and [`volumes::close`] closes
    /// it.
    pub(crate) fn serve(
        self,
        name: &dyn Display,
        unit: Arc<dyn Store>,
        read_only: bool,
    ) -> Result<Arc<Volume>, Failure> {
        let (source, generation) = (self.source.clone(), self.fetched.generation);
        let volume =
            self.open_with(name, unit, OpenOptions { read_only, await_keys: true, ..OpenOptions::default() })?;
        volumes::add(name.to_string(), source, generation, &volume)?;
        Ok(volume)
    }
}

/// The encrypted volume on a unit that is opened without keys, in words. `None` when there is none.
///
/// # Errors
///
/// The first blocks of the disk cannot be read.
pub(crate) fn volume_on(name: &dyn Display, unit: &Arc<dyn Store>) -> Result<Option<String>, Failure> {
    match lunette_volume::find(unit) {
        Ok(found) => Ok(Some(format!("the encrypted volume {}", found.header().volume))),
        Err(VolumeError::Header(error)) => Ok(Some(format!("a damaged encrypted volume ({error})"))),
        Err(VolumeError::NoVolume) => Ok(None),
        Err(error) => Err(volume_failure(name, &error)),
    }
}

fn encryption_failure(name: &dyn Display, error: EncryptionError) -> Failure {
    match error {
        EncryptionError::Disk(error) => remote_failure(error),
        EncryptionError::Keys(error) => key_failure(error),
        EncryptionError::Volume(error) => volume_failure(name, &error),
        error => Failure::Configuration(format!("{name}: {error}")),
    }
}

/// Keys that cannot be had, as the exit code tells it.
#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
pub(crate) fn key_failure(error: KeySourceError) -> Failure {
    match error {
        KeySourceError::NoSecret { .. } | KeySourceError::NoCertificate(_) => Failure::Usage(error.to_string()),
        KeySourceError::Server(lunette_keys::client::ClientError::Refused(_)) => Failure::Other(error.to_string()),
        _ => Failure::Configuration(error.to_string()),
    }
}

/// A volume that cannot be used, as the exit code tells it.
pub(crate) fn volume_failure(name: &dyn Display, error: &VolumeError) -> Failure {
    let text = format!("{name}: {error}");
    match error {
        VolumeError::Unit { .. } => Failure::Transfer(text),
        VolumeError::OtherCipher { .. } | VolumeError::OldKeys { .. } | VolumeError::Anchor(_) => {
            Failure::Configuration(text)
        }
        VolumeError::Random(_) | VolumeError::Thread(_) => Failure::Other(text),
        _ => Failure::Disk(text),
    }
}
