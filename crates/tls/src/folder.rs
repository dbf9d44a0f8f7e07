//! The files of one side in a folder, under the names that QEMU and libvirt use.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::{ClientConfig, ServerConfig};

use crate::{Clients, Identity, TlsError, client, server};

/// The certificate of the authority.
pub(crate) const AUTHORITY_CERTIFICATE: &str = "ca-cert.pem";

/// The list of revoked certificates.
pub(crate) const REVOKED: &str = "ca-crl.pem";

/// A side of a connection, which has files of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

impl Side {
    /// The file of its certificate.
    pub(crate) fn certificate(self) -> &'static str {
        match self {
            Self::Server => "server-cert.pem",
            Self::Client => "client-cert.pem",
        }
    }

    /// The file of its private key.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Server => "server-key.pem",
            Self::Client => "client-key.pem",
        }
    }
}

/// The files of one side, in a folder.
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

    /// The list of revoked certificates. The authority replaces it after a server's certificate, so a new one of
    /// either shows there.
    pub fn crl(&self) -> PathBuf {
        self.folder.join(REVOKED)
    }

    /// The configuration of a server that demands a certificate of each client.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the files do not fit together.
    pub fn server(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let [authorities, certificates, key] = self.of(Side::Server);
        let clients = Clients { authorities: &authorities, revoked: &self.crl() };
        server(Identity { certificates: &certificates, key: &key }, Some(clients)).map(Arc::new)
    }

    /// The configuration of a client.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the files do not fit together.
    pub fn client(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let [authorities, certificates, key] = self.of(Side::Client);
        client(&authorities, Some(Identity { certificates: &certificates, key: &key })).map(Arc::new)
    }

    /// The authority's certificate, the side's own, and its key.
    fn of(&self, side: Side) -> [PathBuf; 3] {
        [AUTHORITY_CERTIFICATE, side.certificate(), side.key()].map(|name| self.folder.join(name))
    }
}
