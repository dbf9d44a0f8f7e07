//! A small certificate authority: certificates for servers and their clients, and the list of those that are revoked.
//!
//! All of it is in one folder: `ca-cert.pem` and `ca-key.pem`, `ca.json` with what was issued, `ca-crl.pem` with what
//! was revoked, and a folder for each name with the files that its owner needs. Keys are ECDSA P-256, which every TLS
//! library knows.

mod parameters;
mod record;

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use lunette_files::{Content, FileProblem, read_secret, read_text, remedy, replace_content};
use rcgen::{Certificate, CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair};
use zeroize::Zeroizing;

use crate::folder::{AUTHORITY_CERTIFICATE, REVOKED, Side};
use crate::limits::MAX_COMMON_NAME_BYTES;
use crate::peer::is_name;
use parameters::{authority_parameters, date, owner_parameters, revoked_parameters};
pub use record::{Identities, Issued, Standing};
use record::{Serial, State};

/// A file of the authority, with its longest.
const FILE: Content = Content { name: "a file of an authority", max_bytes: 16 << 20 };

/// A private key in PEM, with its longest.
const KEY_FILE: Content = Content { name: "a private key in PEM", max_bytes: 64 << 10 };

/// The authority's private key.
const KEY: &str = "ca-key.pem";

/// The record of what was issued.
const RECORD: &str = "ca.json";

/// The most certificates.
const MAX_ISSUED: usize = 65536;

/// How long the authority's own certificate and its lists are valid.
const AUTHORITY_SECONDS: i64 = 20 * 365 * 24 * 3600;

/// Clocks of clients may be behind by this.
const CLOCK_SKEW_SECONDS: i64 = 3600;

/// An authority with its key.
///
/// Several processes may use one: each change waits for the one before, and begins with the record that it left.
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    state: State,
}

/// The certificates before a renewed one, and its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The key stays, and the certificates before are valid until they end. The file of the certificate is replaced.
    SameKey,
    /// The key is new, and the certificates before are revoked.
    NewKey,
}

/// Why the authority does not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] FileProblem),
    /// A file cannot be written.
    #[error("{}: {error}{}", path.display(), remedy(error))]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// No authority is in the folder.
    #[error("{}: there is no authority in this folder; make one, or correct the path", .0.display())]
    Missing(PathBuf),
    /// The authority's files are damaged.
    #[error("{}: {reason}; put back the file as it was, or make another authority", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The mistake in the file.
        reason: String,
    },
    /// The request is not possible.
    #[error("{0}")]
    Refused(String),
}

impl AuthorityError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Write { path: path.into(), error }
    }
}

impl Authority {
    /// Makes an authority in a folder, which is made when it is missing. `name` stands in the subject of its
    /// certificate, before digits that tell it from others. The time is in seconds since 1970.
    ///
    /// # Errors
    ///
    /// When there is one already, or a file cannot be written.
    pub fn create(folder: &Path, name: &str, now: i64) -> Result<Self, AuthorityError> {
        make_folder(folder)?;
        let _lock = lock(folder)?;
        if exists(folder)? {
            let message = format!("{}: there is an authority in this folder; choose another one", folder.display());
            return Err(AuthorityError::Refused(message));
        }
        let key = KeyPair::generate().map_err(unexpected)?;
        let certificate = authority_parameters(name, &key, now)?.self_signed(&key).map_err(unexpected)?;
        write(&folder.join(AUTHORITY_CERTIFICATE), certificate.pem().as_bytes())?;
        let issuer = issuer(folder, &certificate.pem(), key)?;
        let mut new = Self { folder: folder.into(), issuer, state: State::default() };
        new.save(now)?;
        // The key is last: without it, the authority is made again.
        write(&folder.join(KEY), Zeroizing::new(new.issuer.key().serialize_pem()).as_bytes())?;
        Ok(new)
    }

    /// Opens the authority in a folder.
    ///
    /// # Errors
    ///
    /// When there is none, or a file cannot be read or is damaged.
    pub fn open(folder: &Path) -> Result<Self, AuthorityError> {
        if !exists(folder)? {
            return Err(AuthorityError::Missing(folder.into()));
        }
        let certificate = read_text(&folder.join(AUTHORITY_CERTIFICATE), FILE)?;
        let issuer = issuer(folder, &certificate, read_key(&folder.join(KEY))?)?;
        Ok(Self { folder: folder.into(), issuer, state: State::read(folder)? })
    }

    /// Opens the authority in a folder, or makes it like [`create`](Self::create).
    ///
    /// # Errors
    ///
    /// When a file cannot be read or written, or is damaged.
    pub fn open_or_create(folder: &Path, name: &str, now: i64) -> Result<Self, AuthorityError> {
        if exists(folder)? { Self::open(folder) } else { Self::create(folder, name, now) }
    }

    /// All certificates, in the order in which they were issued.
    pub fn issued(&self) -> &[Issued] {
        &self.state.issued
    }

    /// Whether a certificate of this authority counts.
    pub fn standing(&self, issued: &Issued, now: i64) -> Standing {
        self.state.standing(issued, now)
    }

    /// Issues a certificate with its key, and returns the folder with the files for its owner. Times are in seconds
    /// since 1970.
    ///
    /// # Errors
    ///
    /// When the name is taken or not allowed, or a file cannot be written.
    pub fn issue(
        &mut self,
        name: &str,
        identities: &Identities,
        now: i64,
        until: i64,
    ) -> Result<PathBuf, AuthorityError> {
        let _lock = self.begin()?;
        let folder = self.folder.join(name);
        let is_path = name.contains('/') || name.starts_with('.') || folder.is_file();
        if !is_name(name, MAX_COMMON_NAME_BYTES) || is_path {
            return Err(AuthorityError::Refused(format!("{name:?} cannot be the name of a client or a folder")));
        }
        if self.issued().iter().any(|issued| issued.name == name && issued.revoked.is_none() && issued.until > now) {
            let message = format!("{name} has a valid certificate; revoke it first, or choose another name");
            return Err(AuthorityError::Refused(message));
        }
        let key = KeyPair::generate().map_err(unexpected)?;
        let certificate = self.sign(name, identities, &key, now, until)?;
        make_folder(&folder)?;
        let side = identities.side();
        write(&folder.join(side.key()), Zeroizing::new(key.serialize_pem()).as_bytes())?;
        write(&folder.join(side.certificate()), certificate.pem().as_bytes())?;
        self.copy(AUTHORITY_CERTIFICATE, &folder)?;
        self.give_list(side, &folder)?;
        Ok(folder)
    }

    /// Issues another certificate with the identities of a name's last one, in its place in the owner's folder, which
    /// is returned. Programs that read the folder have a whole certificate at any time.
    ///
    /// # Errors
    ///
    /// When the name has no certificate, its last one was revoked, or a file cannot be read or written.
    pub fn renew(&mut self, name: &str, renewal: Renewal, now: i64, until: i64) -> Result<PathBuf, AuthorityError> {
        let _lock = self.begin()?;
        let Some(last) = self.issued().iter().rfind(|issued| issued.name == name) else {
            return Err(AuthorityError::Refused(format!("{name} has no certificate; issue one")));
        };
        if last.revoked.is_some() {
            return Err(AuthorityError::Refused(format!("the certificate of {name} was revoked; issue another one")));
        }
        let (identities, folder) = (last.identities(), self.folder.join(name));
        let side = identities.side();
        let key_file = folder.join(side.key());
        let key = match renewal {
            Renewal::SameKey => read_key(&key_file)?,
            Renewal::NewKey => {
                self.state.revoke(name, now);
                KeyPair::generate().map_err(unexpected)?
            }
        };
        let certificate = self.sign(name, &identities, &key, now, until)?;
        make_folder(&folder)?;
        match renewal {
            Renewal::SameKey => {
                write(&folder.join(side.certificate()), certificate.pem().as_bytes())?;
                self.give_list(side, &folder)?;
            }
            Renewal::NewKey => {
                write(&key_file, Zeroizing::new(key.serialize_pem()).as_bytes())?;
                write(&folder.join(side.certificate()), certificate.pem().as_bytes())?;
                self.publish()?;
            }
        }
        Ok(folder)
    }

    /// Revokes the certificates of a name, and gives each server in this folder the new list.
    ///
    /// # Errors
    ///
    /// When the name has no certificate that could be revoked, or a file cannot be written.
    pub fn revoke(&mut self, name: &str, now: i64) -> Result<(), AuthorityError> {
        let _lock = self.begin()?;
        if !self.state.revoke(name, now) {
            return Err(AuthorityError::Refused(format!("{name} has no certificate that could be revoked")));
        }
        self.save(now)?;
        self.publish()
    }

    /// Keeps others from changing the authority until the file is dropped, and reads what they have changed.
    fn begin(&mut self) -> Result<File, AuthorityError> {
        let lock = lock(&self.folder)?;
        self.state = State::read(&self.folder)?;
        Ok(lock)
    }

    /// Signs a certificate after it is recorded: what is recorded can be revoked whatever happens next.
    fn sign(
        &mut self,
        name: &str,
        identities: &Identities,
        key: &KeyPair,
        now: i64,
        until: i64,
    ) -> Result<Certificate, AuthorityError> {
        if self.issued().len() >= MAX_ISSUED {
            return Err(AuthorityError::Refused(format!(
                "{MAX_ISSUED} certificates were issued; make another authority"
            )));
        }
        let serial = Serial::random();
        let parameters = owner_parameters(name, identities, &serial, now, until)?;
        let certificate = parameters.signed_by(key, &self.issuer).map_err(unexpected)?;
        self.state.issued.push(Issued::new(name, identities, serial, until));
        self.save(now)?;
        Ok(certificate)
    }

    /// Writes what was issued, and the list of what was revoked.
    fn save(&mut self, now: i64) -> Result<(), AuthorityError> {
        self.state.lists += 1;
        let list = CertificateRevocationListParams {
            this_update: date(now - CLOCK_SKEW_SECONDS)?,
            next_update: date(now + AUTHORITY_SECONDS)?,
            crl_number: self.state.lists.into(),
            issuing_distribution_point: None,
            revoked_certs: self.state.issued.iter().filter_map(revoked_parameters).collect::<Result<_, _>>()?,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).and_then(|list| list.pem()).map_err(unexpected)?;
        self.state.write(&self.folder)?;
        write(&self.folder.join(REVOKED), list.as_bytes())
    }

    /// Gives each server in this folder the list of what was revoked.
    fn publish(&self) -> Result<(), AuthorityError> {
        let servers = self.issued().iter().filter(|issued| !issued.hosts.is_empty());
        // A name stands there once for each renewal.
        for name in servers.map(|server| &server.name).collect::<BTreeSet<_>>() {
            let folder = self.folder.join(name);
            if folder.is_dir() {
                self.give_list(Side::Server, &folder)?;
            }
        }
        Ok(())
    }

    /// Gives a server the list of what was revoked. Clients have none.
    fn give_list(&self, side: Side, folder: &Path) -> Result<(), AuthorityError> {
        match side {
            Side::Server => self.copy(REVOKED, folder),
            Side::Client => Ok(()),
        }
    }

    fn copy(&self, name: &str, to: &Path) -> Result<(), AuthorityError> {
        let bytes = lunette_files::read(&self.folder.join(name), FILE)?;
        write(&to.join(name), &bytes)
    }
}

/// Whether there is an authority in a folder.
fn exists(folder: &Path) -> Result<bool, AuthorityError> {
    let key = folder.join(KEY);
    key.try_exists().map_err(AuthorityError::at(&key))
}

/// Waits until no other process changes the authority in a folder.
fn lock(folder: &Path) -> Result<File, AuthorityError> {
    let lock = File::open(folder).and_then(|file| file.lock().map(|()| file));
    lock.map_err(AuthorityError::at(folder))
}

fn make_folder(folder: &Path) -> Result<(), AuthorityError> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(AuthorityError::at(folder))
}

fn issuer(folder: &Path, certificate: &str, key: KeyPair) -> Result<Issuer<'static, KeyPair>, AuthorityError> {
    Issuer::from_ca_cert_pem(certificate, key).map_err(|error| AuthorityError::Damaged {
        path: folder.join(AUTHORITY_CERTIFICATE),
        reason: error.to_string(),
    })
}

fn read_key(path: &Path) -> Result<KeyPair, AuthorityError> {
    let damaged = |reason: String| AuthorityError::Damaged { path: path.into(), reason };
    let pem = read_secret(path, KEY_FILE)?;
    let text = str::from_utf8(&pem).map_err(|_| damaged("it is no text".into()))?;
    KeyPair::from_pem(text).map_err(|error| damaged(error.to_string()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), AuthorityError> {
    replace_content(path, bytes).map_err(AuthorityError::at(path))
}

#[expect(clippy::needless_pass_by_value, reason = "it ends the error")]
fn unexpected(error: rcgen::Error) -> AuthorityError {
    AuthorityError::Refused(format!("the certificate cannot be made: {error}"))
}

#[cfg(test)]
mod tests;
