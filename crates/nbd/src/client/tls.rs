//! TLS as a client speaks it: the files that a URI names, and the server that they lead to.

use std::path::Path;
use std::sync::Arc;

use lunette_tls::{Identity, Servers, UNNAMED, stream_client};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::{NbdUrl, OpenError, Place, Tls};
use crate::tls::{file, is_there};

/// The name of a server behind a Unix socket, where the URI gives none.
const THIS_MACHINE: &str = "localhost";

/// The certificates of a client, and the name that the server has to prove. Connections that share it resume each
/// other's sessions.
#[derive(Debug)]
pub(crate) struct Security {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl Security {
    /// Reads the files that `url` names. `None` for a URI without TLS.
    pub(crate) fn of(url: &NbdUrl) -> Result<Option<Self>, OpenError> {
        let Some(Tls { certificates, hostname, verify_peer }) = &url.tls else { return Ok(None) };
        let folder = certificates.as_deref().map(Path::new);
        let path = |name: &str| folder.map(|folder| folder.join(name));
        let authorities = path(file::AUTHORITY).zip(path(file::REVOKED));
        let servers = match &authorities {
            _ if !verify_peer => Servers::Any,
            None => return Err(OpenError::NoAuthority),
            Some((authorities, revoked)) => Servers::Unrevoked { authorities, revoked },
        };
        let own = path(file::CLIENT[0]).zip(path(file::CLIENT[1]));
        let own = own.filter(|(certificates, key)| is_there(certificates) || is_there(key));
        let own = own.as_ref().map(|(certificates, key)| Identity { certificates, key });
        let config = Arc::new(stream_client(servers, own, UNNAMED)?);
        let name = hostname.as_deref().unwrap_or(match &url.place {
            // A certificate has no zone.
            Place::Tcp { host, .. } => host.split('%').next().unwrap_or_default(),
            Place::Unix(_) => THIS_MACHINE,
        });
        let name = ServerName::try_from(name.to_owned()).map_err(|_| OpenError::Name(name.into()))?;
        Ok(Some(Self { config, name }))
    }
}
