//! The files by which a server proves itself, and what was read of them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lunette_tls::{
    Clients, ISCSI, Identity, TlsError, UNNAMED, WebClients, end_of_certificates, next_list, stream_server, web_server,
};
use rustls::ServerConfig;

use super::ends::{End, Kind};
use crate::systemd::credentials;

/// The place that a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// A portal of iSCSI.
    Portal,
    /// The disks by NBD.
    Nbd,
    /// The API and the console.
    Api,
    /// The adapter for Ceph's dashboard.
    Dashboard,
}

impl Use {
    /// The name of the use in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Portal => "portal",
            Self::Nbd => "nbd",
            Self::Api => "api",
            Self::Dashboard => "dashboard",
        }
    }
}

/// The files of a server. They are its certificate and key, the authorities of clients, and the list of what is
/// revoked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Files {
    certificates: PathBuf,
    key: PathBuf,
    /// The authorities, and the list. Both may be missing.
    clients: Option<[PathBuf; 2]>,
}

/// The content of the files.
pub(crate) struct Read {
    pub(crate) config: Arc<ServerConfig>,
    /// The clients with certificates, where they are asked for some with each request.
    pub(crate) clients: Option<WebClients>,
    pub(super) ends: Vec<End>,
}

impl Files {
    /// The files of a folder, under the names that QEMU and libvirt use. It may be a credential of systemd.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        let file = |name: &str| credentials::in_folder(folder, name);
        Self {
            certificates: file("server-cert.pem"),
            key: file("server-key.pem"),
            clients: Some(["ca-cert.pem", "ca-crl.pem"].map(file)),
        }
    }

    /// The certificate and the key alone. Clients are not asked for certificates.
    pub(crate) fn without_clients(self) -> Self {
        Self { clients: None, ..self }
    }

    /// A certificate and a key.
    pub(crate) fn alone(certificates: PathBuf, key: PathBuf) -> Self {
        Self { certificates, key, clients: None }
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<PathBuf> {
        [&self.certificates, &self.key].into_iter().chain(self.clients.iter().flatten()).cloned().collect()
    }

    /// Reads them. Clients are asked for certificates when there is a file with their authorities.
    pub(super) fn read(&self, of: Use) -> Result<Arc<Read>, TlsError> {
        let own = Identity { certificates: &self.certificates, key: &self.key };
        // A link that leads nowhere is a mistake, and not the wish to ask no client.
        let is_there =
            |file: &PathBuf| !file.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let clients = self.clients.as_ref().filter(|[authorities, _]| is_there(authorities));
        let asked = clients.map(|[authorities, revoked]| Clients { authorities, revoked });
        let (config, web_clients) = match of {
            Use::Portal => (stream_server(own, asked, ISCSI)?, None),
            Use::Nbd => (stream_server(own, asked, UNNAMED)?, None),
            Use::Api | Use::Dashboard => web_server(own, asked)?,
        };
        let end = |kind, file: &PathBuf, at_seconds| End { of, kind, file: file.clone(), at_seconds };
        // What TLS can use and the reader of ends cannot has no end that is known, and serves all the same.
        let unread = |error: &TlsError| tracing::warn!(%error, "the end of a certificate or list is not known");
        let certificate = end_of_certificates(&self.certificates).inspect_err(unread).ok();
        let mut ends: Vec<End> =
            certificate.map(|at_seconds| end(Kind::Certificate, &self.certificates, at_seconds)).into_iter().collect();
        if let Some([_, revoked]) = clients {
            let list = next_list(revoked).inspect_err(unread).ok().flatten();
            ends.extend(list.map(|at_seconds| end(Kind::List, revoked, at_seconds)));
        }
        Ok(Arc::new(Read { config: Arc::new(config), clients: web_clients, ends }))
    }
}
