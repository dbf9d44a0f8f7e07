//! TLS for both sides, with certificates on both, and the names of clients in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use lunette_tls::TlsError;
use lunette_tls::{Clients, Identity};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};

/// The longest name of a client in bytes.
const MAX_CLIENT_NAME_BYTES: usize = 128;

/// The files of one side, in a folder, under the names that QEMU and libvirt use.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    folder: PathBuf,
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
        let [authorities, certificates, key] =
            ["ca-cert.pem", "server-cert.pem", "server-key.pem"].map(|name| self.folder.join(name));
        let clients = Clients { authorities: &authorities, revoked: &self.crl() };
        lunette_tls::server(Identity { certificates: &certificates, key: &key }, Some(clients)).map(Arc::new)
    }

    /// The configuration of a client.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the files do not fit together.
    pub fn client(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let [authorities, certificates, key] =
            ["ca-cert.pem", "client-cert.pem", "client-key.pem"].map(|name| self.folder.join(name));
        lunette_tls::client(&authorities, Some(Identity { certificates: &certificates, key: &key })).map(Arc::new)
    }
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
