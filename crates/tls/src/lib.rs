//! TLS: certificates and keys in PEM files as configurations, and connections without a socket.
//!
//! Layer 1: over files; under csi, iscsi-initiator, iscsi-target, keys, lunette, nbd, reactor.
//!
//! - `authority` issues, renews and revokes certificates, with the feature of that name.
//! - [`folder`] makes configurations from a folder with the names of QEMU and libvirt.
//! - [`peer`] has the identities in the certificate of the other side.
//!
//! All cryptography is that of AWS-LC, which also agrees on keys with X25519MLKEM768: what is recorded today must stay
//! secret when quantum computers exist. Errors name the file and the reason.
//!
//! rustls speaks the handshake ([`Handshake`]). The records behind it are sealed and opened here ([`Outgoing`],
//! [`Incoming`]). A piece of data is read once when it is sealed, and can be opened where it belongs. The two
//! directions may be on different threads.

#![forbid(unsafe_code)]

#[cfg(feature = "authority")]
pub mod authority;
mod channel;
mod ends;
mod fingerprint;
pub mod folder;
mod handshake;
mod handshakes;
pub mod limits;
pub mod peer;
mod record;
mod renewed;
mod sealed;
mod streams;
mod web;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lunette_files::{Content, FileProblem};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

pub use channel::{ChannelError, Incoming, Opened, Outgoing};
pub use ends::{end_of_certificates, next_list};
pub use fingerprint::{Fingerprint, NoFingerprint};
pub use handshake::{Established, Handshake};
pub use handshakes::{Handshakes, Source};
pub use peer::Peer;
pub use renewed::Renewed;
pub use sealed::Sealed;
pub use streams::{ISCSI, Servers, UNNAMED, stream_client, stream_server, strict_stream_server};
pub use web::{WebClients, web_client, web_server};

/// The files, with the longest that is read.
const CERTIFICATES: Content = Content { name: "certificates in PEM", max_bytes: 1 << 20 };
const REVOKED: Content = Content { name: "a list of revoked certificates in PEM", max_bytes: 1 << 20 };
const PRIVATE_KEY: Content = Content { name: "a private key in PEM", max_bytes: 64 << 10 };

/// The files by which one side proves itself.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// The certificate of the side, and those up to its authority.
    pub certificates: &'a Path,
    /// The private key of the certificate.
    pub key: &'a Path,
}

/// The clients that a server admits.
#[derive(Debug, Clone, Copy)]
pub struct Clients<'a> {
    /// The authorities that have signed their certificates.
    pub authorities: &'a Path,
    /// The certificates that count no longer, in a file that may be missing.
    pub revoked: &'a Path,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileProblem),
    /// The content is not what it should be, or does not fit that of another file.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The mistake.
        reason: String,
    },
    /// The cryptography of this program.
    #[error("TLS cannot be configured: {0}")]
    Provider(rustls::Error),
}

impl TlsError {
    fn at(path: &Path, reason: impl Display) -> Self {
        Self::Content { path: path.into(), reason: reason.to_string() }
    }
}

/// The configuration of a server. With `clients` each client needs a certificate, without none is asked for one.
///
/// # Errors
///
/// When a file cannot be read, or the files do not fit together.
pub fn server(own: Identity<'_>, clients: Option<Clients<'_>>) -> Result<ServerConfig, TlsError> {
    let unusable = |error: rustls::Error| TlsError::at(own.certificates, error);
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(unusable)?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(Clients { authorities, revoked }) => {
            let trusted = Arc::new(roots(authorities)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(trusted, provider());
            let verifier = verifier.with_crls(read_revoked(revoked)?).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| TlsError::at(authorities, error))?)
        }
    };
    let (chain, key) = own.read()?;
    builder.with_single_cert(chain, key).map_err(|error| own.unusable(&error))
}

/// The configuration of a client that trusts `authorities`, which may also be the servers' own certificates. With `own`
/// it proves itself.
///
/// # Errors
///
/// When a file cannot be read, or the files do not fit together.
pub fn client(authorities: &Path, own: Option<Identity<'_>>) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| TlsError::at(authorities, error))?;
    let builder = builder.with_root_certificates(roots(authorities)?);
    match own {
        None => Ok(builder.with_no_client_auth()),
        Some(own) => {
            let (chain, key) = own.read()?;
            builder.with_client_auth_cert(chain, key).map_err(|error| own.unusable(&error))
        }
    }
}

impl Identity<'_> {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let chain = certificates(self.certificates)?;
        let pem = lunette_files::read_secret(self.key, PRIVATE_KEY)?;
        // The error of a key says nothing of its bytes.
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| TlsError::at(self.key, error))?;
        Ok((chain, key))
    }

    fn unusable(&self, error: &rustls::Error) -> TlsError {
        TlsError::at(self.certificates, format!("cannot be used with the key {}: {error}", self.key.display()))
    }
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| TlsError::at(path, error))?;
    }
    Ok(roots)
}

/// The certificates in a PEM file, at least one: the first is that of the side, others lead to its authority.
///
/// # Errors
///
/// When the file cannot be read, or has no certificate or a damaged one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = lunette_files::read(path, CERTIFICATES)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(TlsError::at(path, "there is no certificate in it")),
        certificates => certificates.map_err(|error| TlsError::at(path, error)),
    }
}

fn read_revoked(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let pem = match lunette_files::read(path, REVOKED) {
        Err(problem) if problem.is_missing() => return Ok(Vec::new()),
        read => read?,
    };
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&pem).collect();
    match lists {
        // Empty, half written or in DER: without its list every revoked client would be let in.
        Ok(lists) if lists.is_empty() => {
            Err(TlsError::at(path, "there is no revocation list in it; write one in PEM, or remove the file"))
        }
        lists => lists.map_err(|error| TlsError::at(path, error)),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

#[cfg(test)]
mod tests;
