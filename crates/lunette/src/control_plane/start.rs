//! The sockets of the API, as the configuration has them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use lunette_api::{AuditLog, Listener, Place as Open, Server, TokenFile, serve_with};
use lunette_console::Console;
use lunette_files::Content;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::ControlPlane;
use crate::config::Config;
use crate::config::api::{Api, Place, Tls};
use crate::config::metrics::Metrics;
use crate::failure::Failure;
use crate::systemd::Sockets;

/// The files that the table `tls` names.
const CERTIFICATES: Content = Content { name: "certificates in PEM", max_bytes: 1 << 20 };
const PRIVATE_KEY: Content = Content { name: "a private key in PEM", max_bytes: 64 << 10 };

/// Opens the places of the API, or takes `sockets` for them, before anything is served.
pub(crate) fn open(config: &Config, sockets: &mut Sockets) -> Result<Vec<Listener>, Failure> {
    let mut listeners = Vec::new();
    if let Some(api) = &config.api {
        open_api(api, sockets, &mut listeners)?;
    }
    for address in config.metrics.iter().flat_map(|metrics| &metrics.listen) {
        let networks = config.metrics.as_ref().map(Metrics::networks).unwrap_or_default();
        let place = Open::Metrics { address: *address, networks };
        let failed = |error| Failure::Address(format!("metrics at {address}: {error}"));
        let listener = Listener::open(place).map_err(failed)?;
        tracing::info!(address = listener.address().map(tracing::field::display), "metrics can be read at {address}");
        listeners.push(listener);
    }
    Ok(listeners)
}

fn open_api(api: &Api, sockets: &mut Sockets, listeners: &mut Vec<Listener>) -> Result<(), Failure> {
    let group = api.group.as_deref().map(group).transpose()?;
    let tls = api.tls.as_ref().map(server_config).transpose()?;
    let tokens = match &api.tokens {
        Some(path) => Some(TokenFile::open(path.clone()).map_err(|error| failed(path, error))?),
        None => None,
    };
    for place in &api.listen {
        let wanted = match (place, &tls, &tokens) {
            (Place::Unix(path), ..) => Open::Unix { path: path.clone(), group, listener: sockets.take_path(path) },
            (Place::Tcp(address), Some(tls), Some(tokens)) => {
                let listener = sockets.take_address(*address);
                Open::Tcp { address: *address, listener, tls: Arc::clone(tls), tokens: tokens.clone() }
            }
            (Place::Tcp(_), ..) => return Err(Failure::configuration("api: a place on TCP needs tls and tokens")),
        };
        let listener = Listener::open(wanted).map_err(|error| Failure::Address(format!("API at {place}: {error}")))?;
        tracing::info!(address = listener.address().map(tracing::field::display), "the API listens at {place}");
        listeners.push(listener);
    }
    Ok(())
}

/// The audit log beside the state. Without a file for the state it ends with the process, as it does when its own file cannot be opened.
pub(crate) fn audit(config: &Config) -> AuditLog {
    let Some(state) = config.state.as_ref().filter(|_| config.api.is_some()) else { return AuditLog::default() };
    let mut path = state.as_os_str().to_owned();
    path.push(".audit");
    AuditLog::open(Path::new(&path)).unwrap_or_else(|problem| {
        tracing::error!("changes are kept in memory alone: {problem}");
        AuditLog::default()
    })
}

/// Serves the API and the console on a thread of their own.
pub(crate) fn start(listeners: Vec<Listener>, control_plane: ControlPlane) -> Result<(), Failure> {
    let server: Arc<dyn Server> = Arc::new(control_plane);
    serve_with(listeners, Arc::clone(&server), &Console::new(server)).map_err(Failure::other)
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::configuration(format!("{}: {error}", path.display()))
}

fn server_config(tls: &Tls) -> Result<Arc<ServerConfig>, Failure> {
    let of_chain = |error: &dyn std::fmt::Display| failed(&tls.certificates, error);
    let chain = lunette_files::read(&tls.certificates, CERTIFICATES).map_err(Failure::configuration)?;
    let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| of_chain(&error))?;
    let key = lunette_files::read_secret(&tls.key, PRIVATE_KEY).map_err(Failure::configuration)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| failed(&tls.key, error))?;
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).map_err(|error| of_chain(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The number of a group, which the system's file of groups names.
fn group(name: &str) -> Result<u32, Failure> {
    let groups = fs::read_to_string("/etc/group").map_err(|error| failed(Path::new("/etc/group"), error))?;
    find_group(&groups, name).or_else(|| name.parse().ok()).ok_or_else(|| {
        Failure::configuration(format!("api: there is no group {name:?} in /etc/group; write its number"))
    })
}

fn find_group(groups: &str, name: &str) -> Option<u32> {
    let fields = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields.into_iter().find(|fields| fields.first() == Some(&name)).and_then(|fields| fields.get(2)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_the_number_of_its_line() {
        let groups = "root:x:0:\ndisk:x:6:a,b\n";
        assert_eq!(
            (find_group(groups, "disk"), find_group(groups, "dis"), find_group("disk", "disk")),
            (Some(6), None, None)
        );
        assert_eq!(group("4711").ok(), Some(4711));
    }
}
