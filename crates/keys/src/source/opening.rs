//! The means that open a key file.

use std::path::{Component, Path, PathBuf};

use super::KeySourceError;
use crate::client::ClientError;
use crate::keyfile::{HolderKind, KeyFile, KeyFileError, Secret, Unlocked};
use crate::secret::{Key, Passphrase};

/// The means that open a key file: a passphrase, or a key server to which a certificate gives access. The passphrase
/// counts when both are given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opening {
    /// Where the passphrase of a holder is.
    pub passphrase: Option<PassphraseSource>,
    /// The folder with `ca-cert.pem`, `client-cert.pem` and `client-key.pem`, for key servers.
    pub tls: Option<PathBuf>,
}

/// Where a passphrase is. It is never an argument itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassphraseSource {
    /// In a file.
    File(PathBuf),
    /// In the systemd credential of this name.
    Credential(String),
}

/// The secret that opened a key file, and opens a changed one.
#[derive(Debug)]
pub enum Opener {
    /// A passphrase.
    Passphrase(Passphrase),
    /// The key that an object of a key server holds.
    Kmip {
        /// The server, as `HOST:PORT`.
        server: String,
        /// The object's unique identifier.
        object: String,
        /// The key of the client.
        key: Key,
    },
}

impl Opening {
    /// Unlocks the key file `name` with the passphrase, or with the key that one of its holders has in a key server.
    /// `ask` asks a person for the passphrase when neither is given.
    ///
    /// # Errors
    ///
    /// [`KeySourceError`]
    pub fn unlock(
        &self,
        name: &str,
        file: &KeyFile,
        ask: &mut dyn FnMut(&str) -> Option<Passphrase>,
    ) -> Result<(Unlocked, Opener), KeySourceError> {
        let error = |error| KeySourceError::KeyFile { place: name.into(), error };
        let passphrase = match (&self.passphrase, &self.tls) {
            (Some(source), _) => Some(source.read()?),
            (None, None) if has_passphrase(file) => ask(name),
            (None, _) => None,
        };
        if let Some(passphrase) = passphrase {
            let keys = file.unlock(Secret::Passphrase(&passphrase)).map_err(error)?;
            return Ok((keys, Opener::Passphrase(passphrase)));
        }
        self.unlock_by_server(name, file)
    }

    /// Tries the key servers of all holders. The error is the last one.
    fn unlock_by_server(&self, name: &str, file: &KeyFile) -> Result<(Unlocked, Opener), KeySourceError> {
        let mut last = KeySourceError::NoSecret { place: name.into(), remedy: remedy(file, self.tls.is_some()) };
        if self.tls.is_none() {
            return Err(last);
        }
        for holder in file.holders() {
            let HolderKind::Kmip { server, object } = holder.kind else { continue };
            // Of the objects of other clients, a server says that they do not exist.
            let key = match self.connect(server).and_then(|mut client| Ok(client.get_key(object)?)) {
                Ok(key) => key,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            match file.unlock(Secret::Kmip { object, key: &key }) {
                Ok(keys) => return Ok((keys, Opener::Kmip { server: server.into(), object: object.into(), key })),
                Err(error) => last = KeySourceError::KeyFile { place: name.into(), error },
            }
        }
        Err(last)
    }
}

impl PassphraseSource {
    /// Reads the passphrase.
    ///
    /// # Errors
    ///
    /// [`KeySourceError::Passphrase`] and [`KeySourceError::Credential`].
    pub fn read(&self) -> Result<Passphrase, KeySourceError> {
        Ok(match self {
            Self::File(path) => Passphrase::read(path)?,
            Self::Credential(name) => Passphrase::read(&credential(name)?)?,
        })
    }
}

/// The file in which systemd gives a credential to this process.
///
/// # Errors
///
/// [`KeySourceError::Credential`] when systemd gives none, or the name is that of no file in its folder.
pub fn credential(name: &str) -> Result<PathBuf, KeySourceError> {
    let missing = || KeySourceError::Credential(name.into());
    let folder = std::env::var_os("CREDENTIALS_DIRECTORY").ok_or_else(missing)?;
    let is_file_name = matches!(Path::new(name).components().collect::<Vec<_>>()[..], [Component::Normal(_)]);
    if is_file_name { Ok(Path::new(&folder).join(name)) } else { Err(missing()) }
}

fn has_passphrase(file: &KeyFile) -> bool {
    file.holders().any(|holder| matches!(holder.kind, HolderKind::Passphrase(_)))
}

fn remedy(file: &KeyFile, tls: bool) -> &'static str {
    let kmip = file.holders().any(|holder| matches!(holder.kind, HolderKind::Kmip { .. }));
    match (has_passphrase(file), kmip) {
        (true, false) if tls => {
            "no holder of the key file is in a key server; give the file of a passphrase (passphrase_file)"
        }
        (true, false) => "give the file of the passphrase that opens the key file (passphrase_file)",
        (false, _) => "give the folder of the certificate for the key server that opens the key file (tls)",
        (true, true) => {
            "give what opens the key file: a passphrase (passphrase_file), or the certificate for its key server (tls)"
        }
    }
}

impl KeySourceError {
    /// Whether it may help to try again later: the key server is away.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Server(ClientError::Unreachable { .. } | ClientError::Lost { .. }))
    }

    /// Whether the secret was wrong, rather than missing or out of reach.
    pub fn is_wrong_secret(&self) -> bool {
        matches!(self, Self::KeyFile { error: KeyFileError::WrongPassphrase | KeyFileError::WrongObject(_), .. })
    }
}
