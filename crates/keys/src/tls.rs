//! TLS for both sides, with certificates on both: rustls over AWS-LC.
//!
//! AWS-LC, because it is the library of all other cryptography here, and because it agrees on keys with X25519MLKEM768:
//! what is fetched from a key server today must stay secret when quantum computers exist.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lunette_files::Content;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::files::read_bounded;

/// The longest PEM file in bytes.
const PEM: Content = Content { name: "certificates or a key in PEM", max_bytes: 1 << 20 };

/// The longest name of a client in bytes.
const MAX_CLIENT_NAME_BYTES: usize = 128;

/// The files of one side, in a folder, under the names that QEMU and libvirt use.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    folder: PathBuf,
}

/// A certificate or key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing, or is no PEM.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The mistake in the file.
        reason: String,
    },
    /// The files do not fit together.
    #[error("the certificates in {} cannot be used: {reason}", folder.display())]
    Configuration {
        /// The folder.
        folder: PathBuf,
        /// The mistake in the files.
        reason: String,
    },
}

impl TlsFiles {
    /// Files in a folder: `ca-cert.pem`, and `server-cert.pem` with `server-key.pem`, or `client-cert.pem` with
    /// `client-key.pem`. The list of revoked certificates, `ca-crl.pem`, is optional.
    pub fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.into() }
    }

    /// The list of revoked certificates.
    pub(crate) fn crl(&self) -> PathBuf {
        self.folder.join("ca-crl.pem")
    }

    /// The configuration of a server that demands a certificate of each client.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the files do not fit together.
    pub fn server(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()?), provider());
        let verifier = verifier.with_crls(self.revoked()?).build().map_err(|error| self.unusable(&error))?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| self.unusable(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.certificates("server-cert.pem")?, self.key("server-key.pem")?)
            .map_err(|error| self.unusable(&error))?;
        Ok(Arc::new(config))
    }

    /// The configuration of a client.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the files do not fit together.
    pub fn client(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| self.unusable(&error))?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(self.certificates("client-cert.pem")?, self.key("client-key.pem")?)
            .map_err(|error| self.unusable(&error))?;
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates("ca-cert.pem")? {
            roots.add(certificate).map_err(|error| self.unusable(&error))?;
        }
        Ok(roots)
    }

    fn certificates(&self, name: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let (path, pem) = self.read(name)?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        match certificates {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_) => Err(TlsError::File { path, reason: "no certificate in it".into() }),
            Err(error) => Err(TlsError::File { path, reason: error.to_string() }),
        }
    }

    fn key(&self, name: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
        let (path, pem) = self.read(name)?;
        // The error of a key says nothing of its bytes.
        PrivateKeyDer::from_pem_slice(&pem).map_err(|error| TlsError::File { path, reason: error.to_string() })
    }

    fn revoked(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
        if !self.crl().exists() {
            return Ok(Vec::new());
        }
        let (path, pem) = self.read("ca-crl.pem")?;
        let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&pem).collect();
        lists.map_err(|error| TlsError::File { path, reason: error.to_string() })
    }

    fn read(&self, name: &str) -> Result<(PathBuf, zeroize::Zeroizing<Vec<u8>>), TlsError> {
        let path = self.folder.join(name);
        match read_bounded(&path, PEM) {
            Ok(pem) => Ok((path, pem)),
            Err(error) => {
                let text = error.to_string();
                let reason = text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text).to_owned();
                Err(TlsError::File { path, reason })
            }
        }
    }

    fn unusable(&self, error: &dyn std::fmt::Display) -> TlsError {
        TlsError::Configuration { folder: self.folder.clone(), reason: error.to_string() }
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The common name of a certificate's subject: the name of a client. `None` when there is none, or more than one.
pub(crate) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut found = None;
    // Name ::= SEQUENCE OF SET OF SEQUENCE { type, value }; the outermost header is not part of `subject`.
    let mut sets = certificate.subject();
    while let Some((0x31, mut set)) = element(&mut sets) {
        while let Some((0x30, mut attribute)) = element(&mut set) {
            let (kind, value) = (element(&mut attribute)?, element(&mut attribute)?);
            if kind != (0x06, &[0x55, 0x04, 0x03][..]) {
                continue;
            }
            // UTF8String or PrintableString
            let text = matches!(value.0, 0x0c | 0x13).then(|| std::str::from_utf8(value.1).ok()).flatten()?;
            if found.replace(text).is_some() {
                return None;
            }
        }
    }
    found.filter(|name| is_client_name(name)).map(Into::into)
}

/// Names of clients are shown on terminals and in logs.
pub(crate) fn is_client_name(name: &str) -> bool {
    (1..=MAX_CLIENT_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Takes the next element of DER: its tag and its content.
fn element<'a>(der: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => rest.split_first().map(|(len, rest)| (usize::from(*len), rest))?,
        0x82 => rest.split_first_chunk::<2>().map(|(len, rest)| (u16::from_be_bytes(*len).into(), rest))?,
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    *der = rest;
    Some((tag, content))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn named(names: &[(DnType, &str)]) -> Option<String> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        for (kind, name) in names {
            parameters.distinguished_name.push(kind.clone(), *name);
        }
        common_name(parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().der())
    }

    #[test]
    fn the_common_name_of_the_subject_is_the_client() {
        assert_eq!(named(&[(DnType::CommonName, "alice")]).as_deref(), Some("alice"));
        let names =
            [(DnType::OrganizationName, "Example"), (DnType::CommonName, "b\u{f6}b"), (DnType::CountryName, "AT")];
        assert_eq!(named(&names).as_deref(), Some("b\u{f6}b"));
        let long = "x".repeat(MAX_CLIENT_NAME_BYTES);
        assert_eq!(named(&[(DnType::CommonName, &long)]), Some(long));
    }

    #[test]
    fn names_that_could_deceive_are_no_names() {
        let long = "x".repeat(MAX_CLIENT_NAME_BYTES + 1);
        for name in ["", "a\nb", "a\u{1b}[0m", &long] {
            assert_eq!(named(&[(DnType::CommonName, name)]), None, "{name:?}");
        }
        assert_eq!(named(&[(DnType::OrganizationName, "alice")]), None);
        assert_eq!(common_name(&CertificateDer::from(vec![0x30, 0])), None);
    }

    #[test]
    fn elements_end_where_their_bytes_end() {
        assert_eq!(element(&mut &[0x0c, 2, 1, 2, 3][..]), Some((0x0c, &[1, 2][..])));
        assert_eq!(element(&mut &[0x0c, 0x81, 1, 9][..]), Some((0x0c, &[9][..])));
        assert_eq!(element(&mut &[0x0c, 0x82, 0, 1, 9][..]), Some((0x0c, &[9][..])));
        for der in [&[][..], &[0x0c], &[0x0c, 1], &[0x0c, 0x80], &[0x0c, 0x82, 1], &[0x0c, 0x83, 0, 0, 1, 9]] {
            assert_eq!(element(&mut &*der), None, "{der:?}");
        }
    }
}
