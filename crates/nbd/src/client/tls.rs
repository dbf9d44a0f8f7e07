//! TLS as a client speaks it: the files that a URI names, and the server that they lead to.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lunette_tls::{Identity, Renewed, Servers, TlsError, UNNAMED, stream_client};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::{NbdUrl, OpenError, Place, Tls};
use crate::tls::{file, is_there};

/// The name of a server behind a Unix socket, where the URI gives none.
const THIS_MACHINE: &str = "localhost";

/// The certificates of a client, and the name that the server has to prove. Connections that share it resume each
/// other's sessions.
pub(crate) struct Security {
    config: Renewed<Arc<ClientConfig>>,
    pub(crate) name: ServerName<'static>,
}

impl Security {
    /// Reads the files that `url` names. `None` for a URI without TLS.
    pub(crate) fn of(url: &NbdUrl) -> Result<Option<Self>, OpenError> {
        let Some(Tls { certificates, hostname, verify_peer }) = &url.tls else { return Ok(None) };
        if certificates.is_none() && *verify_peer {
            return Err(OpenError::NoAuthority);
        }
        let (folder, verify_peer) = (certificates.as_ref().map(PathBuf::from), *verify_peer);
        let names = [file::AUTHORITY, file::REVOKED, file::CLIENT[0], file::CLIENT[1]];
        let files = folder.iter().flat_map(|folder| names.map(|name| folder.join(name))).collect();
        let config = Renewed::open(files, move || read(folder.as_deref(), verify_peer).map(Arc::new))?;
        let name = hostname.as_deref().unwrap_or(match &url.place {
            // A certificate has no zone.
            Place::Tcp { host, .. } => host.split('%').next().unwrap_or_default(),
            Place::Unix(_) => THIS_MACHINE,
        });
        let name = ServerName::try_from(name.to_owned()).map_err(|_| OpenError::Name(name.into()))?;
        Ok(Some(Self { config, name }))
    }

    /// The configuration of the files as they are now.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.config.look()
    }
}

/// Reads the files of a folder. Without one, any server is trusted.
fn read(folder: Option<&Path>, verify_peer: bool) -> Result<ClientConfig, TlsError> {
    let path = |name: &str| folder.map(|folder| folder.join(name));
    let authorities = path(file::AUTHORITY).zip(path(file::REVOKED)).filter(|_| verify_peer);
    let servers = match &authorities {
        Some((authorities, revoked)) => Servers::Unrevoked { authorities, revoked },
        None => Servers::Any,
    };
    let own = path(file::CLIENT[0]).zip(path(file::CLIENT[1]));
    let own = own.filter(|(certificates, key)| is_there(certificates) || is_there(key));
    let own = own.as_ref().map(|(certificates, key)| Identity { certificates, key });
    stream_client(servers, own, UNNAMED)
}
