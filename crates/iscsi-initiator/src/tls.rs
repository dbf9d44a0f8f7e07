//! TLS to a target: whom the client trusts, and how it proves itself.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lunette_reactor::{Stream, TcpOptions};
use lunette_tls::{Fingerprint, ISCSI, Identity, Renewed, Servers, TlsError, stream_client};
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
    read: Arc<Mutex<Option<Renewed<Arc<ClientConfig>>>>>,
}

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
        if let Some(known) = &*read {
            return Ok(known.look());
        }
        let (folder, pin) = (self.folder.clone(), self.pin);
        let files = folder.iter().flat_map(|folder| FILES.map(|name| folder.join(name))).collect();
        let known = Renewed::open(files, move || read_files(folder.as_deref(), pin).map(Arc::new))?;
        Ok(read.insert(known).now())
    }
}

fn read_files(folder: Option<&Path>, pin: Option<Fingerprint>) -> Result<ClientConfig, TlsError> {
    let [authorities, certificates, key, revoked] = FILES.map(|name| folder.unwrap_or(Path::new("")).join(name));
    let has_certificate = folder.is_some() && (certificates.exists() || key.exists());
    let own = has_certificate.then_some(Identity { certificates: &certificates, key: &key });
    let servers = match pin {
        Some(fingerprint) => Servers::Pinned(fingerprint),
        None => Servers::Unrevoked { authorities: &authorities, revoked: &revoked },
    };
    stream_client(servers, own, ISCSI)
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, pin, name, read: _ } = self;
        f.debug_struct("ClientTls").field("folder", folder).field("pin", pin).field("name", name).finish()
    }
}
