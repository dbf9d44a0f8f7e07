//! The sockets of the API, as the configuration has them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lunette_api::{AuditLog, Listener, Place as Open, Server, Subject, TokenFile, serve_with};
use lunette_console::Console;

use super::ControlPlane;
use super::clients::Clients;
use crate::config::Config;
use crate::config::api::{Api, Place, Tls};
use crate::config::metrics::Metrics;
use crate::failure::Failure;
use crate::server::certificates::{Certificates, Files, Use};
use crate::systemd::{Sockets, credentials as credentials_of_systemd};

/// A place at which the control plane can be reached.
#[derive(Debug, Clone)]
pub(crate) enum Door {
    /// A place of the API.
    Api(Place),
    /// For metrics alone.
    Metrics(SocketAddr),
}

/// The doors of a configuration.
#[derive(Default)]
pub(crate) struct Places {
    pub(crate) open: Vec<Listener>,
    /// The places that cannot be opened, and the reasons.
    pub(crate) closed: Vec<(Door, String)>,
}

impl Door {
    /// The name of the door in the list of troubles.
    pub(crate) fn subject(&self) -> Subject {
        match self {
            Self::Api(place) => Subject::Api(place.to_string()),
            Self::Metrics(address) => Subject::Api(format!("{address} (metrics)")),
        }
    }
}

/// Opens the doors, or takes `sockets` for them, before anything is served. In a strict configuration all of them are
/// open, or it fails.
pub(crate) fn open(config: &Config, sockets: &mut Sockets) -> Result<Places, Failure> {
    let of_api = config.api.iter().flat_map(|api| &api.listen).cloned().map(Door::Api);
    let of_metrics = config.metrics.iter().flat_map(|metrics| &metrics.listen).copied().map(Door::Metrics);
    let mut places = Places::default();
    for door in of_api.chain(of_metrics) {
        match open_door(config, &door, sockets) {
            Ok(listener) => places.open.push(listener),
            Err(failure) if config.strict => return Err(failure),
            Err(failure) => places.closed.push((door, failure.to_string())),
        }
    }
    Ok(places)
}

/// Opens one door, or takes one of `sockets` for it.
pub(crate) fn open_door(config: &Config, door: &Door, sockets: &mut Sockets) -> Result<Listener, Failure> {
    let (place, name) = match (door, &config.api) {
        (Door::Metrics(address), _) => {
            let networks = config.metrics.as_ref().map(Metrics::networks).unwrap_or_default();
            let listener = sockets.take_address(*address);
            (Open::Metrics { address: *address, listener, networks }, format!("metrics at {address}"))
        }
        (Door::Api(place), Some(api)) => (of_api(api, place, sockets)?, format!("API at {place}")),
        (Door::Api(place), None) => return Err(Failure::configuration(format!("{place}: there is no table api"))),
    };
    let listener = Listener::open(place).map_err(|error| Failure::Address(format!("{name}: {error}")))?;
    tracing::info!(address = listener.address().map(tracing::field::display), "the {name} is open");
    Ok(listener)
}

fn of_api(api: &Api, place: &Place, sockets: &mut Sockets) -> Result<Open, Failure> {
    match place {
        Place::Unix(path) => {
            let group = api.group.as_deref().map(group).transpose()?;
            Ok(Open::Unix { path: path.clone(), group, listener: sockets.take_path(path) })
        }
        Place::Tcp(address) => {
            let (clients, tokens) = credentials(api)?;
            let (certificates, listener) = (Arc::new(clients), sockets.take_address(*address));
            Ok(Open::Tcp { address: *address, listener, certificates, tokens })
        }
    }
}

/// The certificates and the tokens of places on TCP.
pub(crate) fn credentials(api: &Api) -> Result<(Clients, Option<TokenFile>), Failure> {
    let Some(tls) = &api.tls else {
        return Err(Failure::configuration("api: a place on TCP needs tls"));
    };
    let files = files(tls)?;
    // A browser that has a certificate asks its user which one to show.
    let files = if api.clients.is_empty() { files.without_clients() } else { files };
    let certificates = Certificates::open(Use::Api, files).map_err(Failure::configuration)?;
    let clients = Clients::new(certificates, api.clients.clone())?;
    let open = |tokens: &PathBuf| {
        let tokens = found(tokens)?;
        TokenFile::open(tokens.clone()).map_err(|error| failed(&tokens, error))
    };
    Ok((clients, api.tokens.as_ref().map(open).transpose()?))
}

/// The audit log beside the state. Without a file for the state it ends with the process, as it does when its own file
/// cannot be opened.
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

fn found(path: &Path) -> Result<PathBuf, Failure> {
    credentials_of_systemd::found(path).map_err(Failure::Configuration)
}

/// The files of a port.
pub(crate) fn files(tls: &Tls) -> Result<Files, Failure> {
    match tls {
        Tls::Folder(folder) => Ok(Files::in_folder(folder)),
        Tls::Files(files) => Ok(Files::alone(found(&files.certificates)?, found(&files.key)?)),
    }
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
