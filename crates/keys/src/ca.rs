//! A small certificate authority: certificates for one key server and its clients, and the list of those that are
//! revoked.
//!
//! All of it is in one folder: `ca-cert.pem` and `ca-key.pem`, `ca.json` with what was issued, `ca-crl.pem` with what
//! was revoked, and a folder for each name with the files that its owner needs. Keys are ECDSA P-256, which every TLS
//! library knows.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use lunette_files::Content;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType,
    SerialNumber,
};
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::files::{FileError, read_bounded, replace, write_private};
use crate::hex::{self, Hex};
use crate::secret::random;
use crate::tls::is_client_name;

/// The longest file of the authority in bytes.
const FILE: Content = Content { name: "a file of an authority", max_bytes: 16 << 20 };

/// The most certificates.
const MAX_ISSUED: usize = 65536;

/// The name of every authority in its certificate, before the digits that tell it from others.
const AUTHORITY: &str = "Lunette key authority";

/// How long the authority's own certificate and its lists are valid.
const AUTHORITY_SECONDS: i64 = 20 * 365 * 24 * 3600;

/// Clocks of clients may be behind by this.
const CLOCK_SKEW_SECONDS: i64 = 3600;

/// An authority with its key.
pub struct Authority {
    folder: PathBuf,
    key: KeyPair,
    state: State,
}

/// A certificate that was issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issued {
    /// The name of the client, or of the server's folder.
    pub name: String,
    serial: Hex<16>,
    /// The hosts of a server; empty for a client.
    pub hosts: Vec<String>,
    /// The end of its validity in seconds since 1970.
    pub until: i64,
    /// When it was revoked, in seconds since 1970.
    pub revoked: Option<i64>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    issued: Vec<Issued>,
    /// Counts the lists of revoked certificates.
    lists: u64,
}

/// Why the authority does not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The authority's files are damaged.
    #[error("{}: {reason}", path.display())]
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

impl Authority {
    /// Opens the authority in a folder, and makes it when the folder is missing or empty.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or written, or is damaged.
    pub fn open(folder: &Path, now: i64) -> Result<Self, CaError> {
        if !folder.join("ca-key.pem").exists() {
            return Self::create(folder, now);
        }
        let text = |name: &str| {
            let path = folder.join(name);
            let bytes = read_bounded(&path, FILE)?;
            let text = String::from_utf8(bytes.to_vec()).map(Zeroizing::new);
            text.map_err(|_| CaError::Damaged { path, reason: "it is no text".into() })
        };
        let damaged = |name: &str, reason: String| CaError::Damaged { path: folder.join(name), reason };
        let key = KeyPair::from_pem(&text("ca-key.pem")?).map_err(|error| damaged("ca-key.pem", error.to_string()))?;
        let state = serde_json::from_str(&text("ca.json")?).map_err(|error| damaged("ca.json", error.to_string()))?;
        Ok(Self { folder: folder.into(), key, state })
    }

    fn create(folder: &Path, now: i64) -> Result<Self, CaError> {
        make_folder(folder)?;
        let key = KeyPair::generate().map_err(unexpected)?;
        let mut parameters = authority_parameters(&key);
        (parameters.not_before, parameters.not_after) =
            (date(now - CLOCK_SKEW_SECONDS)?, date(now + AUTHORITY_SECONDS)?);
        let certificate = parameters.self_signed(&key).map_err(unexpected)?;
        let mut new = Self { folder: folder.into(), key, state: State::default() };
        replace(&folder.join("ca-cert.pem"), certificate.pem().as_bytes())?;
        new.save(now)?;
        // The key is last: without it, the authority is made again.
        write_private(&folder.join("ca-key.pem"), Zeroizing::new(new.key.serialize_pem()).as_bytes())?;
        Ok(new)
    }

    /// All certificates, in the order in which they were issued.
    pub fn issued(&self) -> &[Issued] {
        &self.state.issued
    }

    /// Issues a certificate with its key, and returns the folder with the files for its owner. A server has `hosts`,
    /// the names and addresses by which clients reach it; a client has none. It is valid until `until`, in seconds
    /// since 1970.
    ///
    /// # Errors
    ///
    /// When the name is taken or not allowed, or a file cannot be written.
    pub fn issue(&mut self, name: &str, hosts: &[String], now: i64, until: i64) -> Result<PathBuf, CaError> {
        if !is_client_name(name) || name.contains('/') || name.starts_with('.') {
            return Err(CaError::Refused(format!("{name:?} cannot be the name of a client or a folder")));
        }
        if self.state.issued.iter().any(|issued| issued.name == name && issued.revoked.is_none() && issued.until > now)
        {
            let message = format!("{name} has a valid certificate; revoke it first, or choose another name");
            return Err(CaError::Refused(message));
        }
        if self.state.issued.len() >= MAX_ISSUED {
            return Err(CaError::Refused(format!("{MAX_ISSUED} certificates were issued; make another authority")));
        }
        let mut serial = [0; 16];
        random(&mut serial);
        // Serial numbers are positive (RFC 5280, section 4.1.2.2).
        serial[0] = serial[0] & 0x7f | 0x40;
        let key = KeyPair::generate().map_err(unexpected)?;
        let parameters = parameters(name, hosts, &serial, now, until)?;
        let issuer = Issuer::new(authority_parameters(&self.key), &self.key);
        let certificate = parameters.signed_by(&key, &issuer).map_err(unexpected)?;
        // What is recorded first can be revoked whatever happens next.
        let issued = Issued { name: name.into(), serial: Hex(serial), hosts: hosts.into(), until, revoked: None };
        self.state.issued.push(issued);
        self.save(now)?;
        let folder = self.folder.join(name);
        make_folder(&folder)?;
        let side = if hosts.is_empty() { "client" } else { "server" };
        replace(&folder.join(format!("{side}-cert.pem")), certificate.pem().as_bytes())?;
        replace(&folder.join(format!("{side}-key.pem")), Zeroizing::new(key.serialize_pem()).as_bytes())?;
        self.copy("ca-cert.pem", &folder)?;
        if !hosts.is_empty() {
            self.copy("ca-crl.pem", &folder)?;
        }
        Ok(folder)
    }

    /// Revokes the certificates of a name, and gives each server in this folder the new list.
    ///
    /// # Errors
    ///
    /// When the name has no certificate that could be revoked, or a file cannot be written.
    pub fn revoke(&mut self, name: &str, now: i64) -> Result<(), CaError> {
        let mut found = false;
        for issued in self.state.issued.iter_mut().filter(|issued| issued.name == name && issued.revoked.is_none()) {
            issued.revoked = Some(now);
            found = true;
        }
        if !found {
            return Err(CaError::Refused(format!("{name} has no certificate that could be revoked")));
        }
        self.save(now)?;
        for server in self.state.issued.iter().filter(|issued| !issued.hosts.is_empty()) {
            let folder = self.folder.join(&server.name);
            if folder.is_dir() {
                self.copy("ca-crl.pem", &folder)?;
            }
        }
        Ok(())
    }

    /// Writes what was issued, and the list of what was revoked.
    fn save(&mut self, now: i64) -> Result<(), CaError> {
        self.state.lists += 1;
        let state = serde_json::to_string_pretty(&self.state).expect("the state is JSON");
        replace(&self.folder.join("ca.json"), state.as_bytes())?;
        let revoked = self.state.issued.iter().filter_map(|issued| Some((issued, issued.revoked?)));
        let revoked = revoked.map(|(issued, time)| {
            Ok(RevokedCertParams {
                serial_number: SerialNumber::from_slice(&issued.serial.0),
                revocation_time: date(time)?,
                reason_code: None,
                invalidity_date: None,
            })
        });
        let list = CertificateRevocationListParams {
            this_update: date(now - CLOCK_SKEW_SECONDS)?,
            next_update: date(now + AUTHORITY_SECONDS)?,
            crl_number: SerialNumber::from(self.state.lists),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect::<Result<_, CaError>>()?,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let issuer = Issuer::new(authority_parameters(&self.key), &self.key);
        let list = list.signed_by(&issuer).and_then(|list| list.pem()).map_err(unexpected)?;
        replace(&self.folder.join("ca-crl.pem"), list.as_bytes())?;
        Ok(())
    }

    fn copy(&self, name: &str, to: &Path) -> Result<(), CaError> {
        let bytes = read_bounded(&self.folder.join(name), FILE)?;
        Ok(replace(&to.join(name), &bytes)?)
    }
}

/// The authority's subject and rights, without which it cannot sign. The subject depends on the key: with one name for
/// all, a certificate of another authority would look forged instead of unknown.
fn authority_parameters(key: &KeyPair) -> CertificateParams {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.public_key_raw());
    let digits = hex::encode(&digest.as_ref()[..8]);
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = common_name(&format!("{AUTHORITY} {digits}"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

fn parameters(name: &str, hosts: &[String], serial: &[u8], now: i64, until: i64) -> Result<CertificateParams, CaError> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = common_name(name);
    parameters.serial_number = Some(SerialNumber::from_slice(serial));
    (parameters.not_before, parameters.not_after) = (date(now - CLOCK_SKEW_SECONDS)?, date(until)?);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.use_authority_key_identifier_extension = true;
    let usage =
        if hosts.is_empty() { ExtendedKeyUsagePurpose::ClientAuth } else { ExtendedKeyUsagePurpose::ServerAuth };
    parameters.extended_key_usages = vec![usage];
    for host in hosts {
        let refused = || CaError::Refused(format!("{host:?} is neither an address nor the name of a host"));
        let name = match ServerName::try_from(host.as_str()).map_err(|_| refused())? {
            ServerName::IpAddress(address) => SanType::IpAddress(address.into()),
            _ => SanType::DnsName(host.as_str().try_into().map_err(|_| refused())?),
        };
        parameters.subject_alt_names.push(name);
    }
    Ok(parameters)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn date(seconds: i64) -> Result<OffsetDateTime, CaError> {
    OffsetDateTime::from_unix_timestamp(seconds)
        .map_err(|_| CaError::Refused(format!("the date {seconds} is out of the range of certificates")))
}

fn make_folder(folder: &Path) -> Result<(), FileError> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(FileError::at(folder))
}

#[expect(clippy::needless_pass_by_value, reason = "it ends the error")]
fn unexpected(error: rcgen::Error) -> CaError {
    CaError::Refused(format!("the certificate cannot be made: {error}"))
}
