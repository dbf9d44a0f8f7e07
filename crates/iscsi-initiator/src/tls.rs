//! TLS to a target: whom the client trusts, and how it proves itself.

use std::fmt;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lunette_reactor::{Stream, TcpOptions};
use lunette_tls::{Fingerprint, ISCSI, Identity, Servers, TlsError, stream_client};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::engine::dial::connect_to;
use crate::portal::Portal;

/// The files of a folder, under the names that QEMU and libvirt use.
const FILES: [&str; 4] = ["ca-cert.pem", "client-cert.pem", "client-key.pem", "ca-crl.pem"];

/// How a session speaks TLS. All of its connections resume what the first has agreed on.
///
/// Clones share what was read. Files that have changed are read again for the next connection.
#[derive(Clone)]
pub struct ClientTls {
    /// The folder with `ca-cert.pem`, and with `client-cert.pem` and `client-key.pem` for a client with a certificate.
    folder: Option<PathBuf>,
    /// The certificate of the server, in the place of authorities.
    pin: Option<Fingerprint>,
    /// The name in the server's certificate; else the host of the portal.
    name: Option<String>,
    read: Arc<Mutex<Option<ReadFiles>>>,
}

/// The files as they were read last.
struct ReadFiles {
    stamps: Stamps,
    config: Arc<ClientConfig>,
}

/// The state of each file: device, inode, length and time of its last change; `None` when it is missing.
type Stamps = [Option<(u64, u64, u64, i64, i64)>; FILES.len()];

impl ClientTls {
    /// TLS with the certificates of a folder: `ca-cert.pem` names the authorities of servers, and `ca-crl.pem`, which
    /// may be missing, what they have revoked. The client has a certificate when there is `client-cert.pem`, with its
    /// key in `client-key.pem`.
    pub fn of_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), pin: None, name: None, read: Arc::default() }
    }

    /// TLS with the one server that has this certificate, whatever its name is.
    pub fn pinned(fingerprint: Fingerprint) -> Self {
        Self { folder: None, pin: Some(fingerprint), name: None, read: Arc::default() }
    }

    /// Trusts the server with this certificate alone, and still proves itself with the certificate of the folder.
    #[must_use]
    pub fn with_pin(self, fingerprint: Fingerprint) -> Self {
        Self { pin: Some(fingerprint), read: Arc::default(), ..self }
    }

    /// Expects this name in the server's certificate, rather than the host of the portal.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Reads the files, so that a mistake in them is told at once.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the files do not fit together.
    pub fn check(&self) -> Result<(), TlsError> {
        self.config().map(drop)
    }

    /// Connects to a portal and begins TLS: the reactor that adopts the stream speaks the handshake. Waits for the name
    /// and, up to `timeout`, for each of its addresses.
    ///
    /// # Errors
    ///
    /// When no address accepts, or the files cannot be used any more.
    pub fn connect(&self, portal: &Portal, timeout: Duration, options: &TcpOptions) -> io::Result<Stream> {
        self.around(connect_to(portal, timeout, options)?, portal)
    }

    /// The client's end of a connection.
    pub(crate) fn around(&self, socket: TcpStream, portal: &Portal) -> io::Result<Stream> {
        let config = self.config().map_err(io::Error::other)?;
        // A zone is of this machine, and stands in no certificate.
        let host = portal.host.split('%').next().unwrap_or_default();
        let name = self.name.as_deref().unwrap_or(host);
        let server = ServerName::try_from(name.to_owned())
            .map_err(|_| io::Error::other(format!("{name:?} can be no name in a certificate; write tls_name=NAME")))?;
        Stream::client(socket, &config, server)
    }

    fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = self.stamps();
        match &*read {
            Some(known) if known.stamps == stamps => Ok(Arc::clone(&known.config)),
            // A file that is missing for a moment takes neither the certificate away nor the list of what is revoked.
            Some(known) if known.has_lost(&stamps) => {
                tracing::warn!("a file of certificates is missing; those from before are in use");
                Ok(Arc::clone(&known.config))
            }
            known => {
                let config = match (self.read_files(stamps[1].is_some()), known) {
                    (Ok(config), _) => Arc::new(config),
                    (Err(error), Some(known)) => {
                        tracing::warn!(%error, "certificates that have changed cannot be used; those from before are in use");
                        return Ok(Arc::clone(&known.config));
                    }
                    (Err(error), None) => return Err(error),
                };
                *read = Some(ReadFiles { stamps, config: Arc::clone(&config) });
                Ok(config)
            }
        }
    }

    fn stamps(&self) -> Stamps {
        FILES.map(|name| {
            let found = fs::metadata(self.folder.as_ref()?.join(name)).ok()?;
            Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
        })
    }

    fn read_files(&self, has_certificate: bool) -> Result<ClientConfig, TlsError> {
        let folder = self.folder.clone().unwrap_or_default();
        let [authorities, certificates, key, revoked] = FILES.map(|name| folder.join(name));
        let own = has_certificate.then_some(Identity { certificates: &certificates, key: &key });
        let servers = match self.pin {
            Some(fingerprint) => Servers::Pinned(fingerprint),
            None => Servers::Unrevoked { authorities: &authorities, revoked: &revoked },
        };
        stream_client(servers, own, ISCSI)
    }
}

impl ReadFiles {
    /// Whether a file is gone that was there.
    fn has_lost(&self, now: &Stamps) -> bool {
        self.stamps.iter().zip(now).any(|(before, now)| before.is_some() && now.is_none())
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, pin, name, read: _ } = self;
        f.debug_struct("ClientTls").field("folder", folder).field("pin", pin).field("name", name).finish()
    }
}
