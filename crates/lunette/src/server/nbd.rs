//! The disks of a server by NBD, too.
//!
//! A client of NBD is an initiator, for which this room speaks iSCSI with the target, over a pair of sockets. So the
//! rules for hosts, reservations, the commands of administrators and the numbers are those of any session, and no rule
//! exists twice. The price is a copy, and the work of an initiator.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use lunette_api::{Cause, Health, Subject};
use lunette_initiator::{
    Connector, Disk, Error, Initiator, Lun, Options, Portal, RemoteStore, Session, discover, wait,
};
use lunette_nbd::limits::MAX_LISTED_TARGETS;
use lunette_nbd::{Client, Export, Exports, Listener, Server, ServerTls, Stopper};
use lunette_session::iscsi_target::is_node_name;
use lunette_store::InlineIo;
use lunette_target::{Adopted, Control};

use crate::config::Config;
use crate::config::nbd::Nbd;
use crate::failure::Failure;
use crate::server::certificates::{self, Use};
use crate::system;

/// The time for which a session that the target has ended is begun again. Then the requests of the client fail.
const RECONNECT_FOR: Duration = Duration::from_secs(10);

/// The servers that run, one for each address.
#[derive(Default)]
pub(crate) struct Running {
    uris: Vec<String>,
    stoppers: Vec<Stopper>,
    threads: Vec<JoinHandle<()>>,
}

/// Serves the disks of the target that `control` is of, where the configuration says. In a strict one all places are
/// open, or it fails.
pub(crate) fn start(config: &Config, control: &Control, health: &Health) -> Result<Running, Failure> {
    let Some(nbd) = &config.nbd else { return Ok(Running::default()) };
    serve(nbd, control).or_else(|failure| {
        if config.strict {
            return Err(failure);
        }
        tracing::error!("NBD: {failure}");
        health.report(Subject::Api("NBD".into()), Cause::NotOpened, failure.to_string());
        Ok(Running::default())
    })
}

fn serve(nbd: &Nbd, control: &Control) -> Result<Running, Failure> {
    let Nbd { listen, tls, initiator: name } = nbd;
    let (tls, scheme) = (tls.as_deref().map(server_tls).transpose()?, if tls.is_some() { "nbds" } else { "nbd" });
    let open = |address: &SocketAddr| Listener::tcp(*address).map_err(|error| system::listen_failure(*address, &error));
    let listeners = listen.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let initiator = Initiator::start().map_err(Failure::other)?;
    let disks: Arc<dyn Exports> = Arc::new(Disks { control: control.clone(), initiator, name: name.clone() });
    let mut running = Running::default();
    for listener in listeners {
        let server = Server::new(Arc::clone(&disks), Arc::new(InlineIo));
        let server = match &tls {
            Some(tls) => server.with_tls(tls.clone()),
            None => server,
        };
        running.uris.extend(listener.address().map(|address| format!("{scheme}://{address}")));
        running.stoppers.push(server.stopper(&listener).map_err(Failure::other)?);
        let thread = thread::Builder::new().name("lunette-nbd".into()).spawn(move || server.run(&listener));
        running.threads.push(thread.map_err(Failure::no_thread)?);
    }
    Ok(running)
}

impl Running {
    /// The URIs of the places, to which the name of an export is added.
    pub(crate) fn uris(&self) -> Vec<String> {
        self.uris.clone()
    }

    /// Gives a function that stops these servers and then, when their sessions have logged out, calls `stop`. It does
    /// not wait.
    pub(crate) fn before(self, stop: impl Fn() + Send + Sync + 'static) -> impl Fn() + Send {
        let (running, stop) = (Mutex::new(Some(self)), Arc::new(stop));
        move || {
            let running = running.lock().unwrap_or_else(PoisonError::into_inner).take();
            let stopping = Arc::clone(&stop);
            let work = move || {
                running.into_iter().for_each(Self::stop);
                stopping();
            };
            if thread::Builder::new().name("lunette-nbd-stop".into()).spawn(work).is_err() {
                stop();
            }
        }
    }

    /// Answers what has come, and ends all connections. The sessions behind them log out.
    fn stop(self) {
        self.stoppers.iter().for_each(Stopper::stop);
        for thread in self.threads {
            // A thread that has panicked has said so.
            let _ = thread.join();
        }
    }
}

fn server_tls(folder: &Path) -> Result<ServerTls, Failure> {
    let source = certificates::source(Use::Nbd, folder).map_err(Failure::Configuration)?;
    Ok(ServerTls::of(move || source()))
}

/// The disks that clients find: each logical unit that the target lets them see.
struct Disks {
    control: Control,
    initiator: Initiator,
    /// The iSCSI name of clients that have not proven another one.
    name: String,
}

impl Exports for Disks {
    fn names(&self, client: &Client) -> Vec<String> {
        self.find_all(client).unwrap_or_else(|error| {
            tracing::warn!(client = Asker(client).to_string(), %error, "NBD: the exports of a client cannot be listed");
            Vec::new()
        })
    }

    fn open(&self, client: &Client, name: &str) -> Option<Export> {
        let only;
        let name = match name {
            "" => {
                only = self.only_one(client)?;
                &only
            }
            name => name,
        };
        let (target, lun) = parse(name)?;
        let opened = self.open_disk(client, target, lun).map_err(|error| {
            tracing::info!(client = Asker(client).to_string(), name, %error, "NBD: an export is refused");
        });
        let store = Arc::new(RemoteStore::new(opened.ok()?));
        let export = Export::new(name, store, false).inspect_err(|error| tracing::warn!(name, "NBD: {error}"));
        export.ok()
    }
}

impl Disks {
    /// The exports that a client may use: `TARGET/LUN`.
    fn find_all(&self, client: &Client) -> Result<Vec<String>, Error> {
        let options = self.options(client);
        let targets = wait(discover(&self.initiator, &place(client), options.clone()))?;
        let mut names = Vec::new();
        for target in targets.iter().take(MAX_LISTED_TARGETS) {
            // A target that wants CHAP is not for clients of NBD.
            let Ok(session) = self.connect(client, &target.name) else { continue };
            let luns = wait(session.luns()).unwrap_or_default();
            names.extend(luns.into_iter().map(|lun| format!("{}/{lun}", target.name)));
        }
        Ok(names)
    }

    /// The export of a client that has one alone.
    fn only_one(&self, client: &Client) -> Option<String> {
        let names = self.names(client);
        let [only] = &*names else { return None };
        Some(only.clone())
    }

    fn open_disk(&self, client: &Client, target: &str, lun: Lun) -> Result<Disk, Error> {
        wait(Disk::open(self.connect(client, target)?, lun))
    }

    fn connect(&self, client: &Client, target: &str) -> Result<Session, Error> {
        wait(Session::connect(&self.initiator, &place(client), target, self.options(client)))
    }

    fn options(&self, client: &Client) -> Options {
        let mut options = Options::new(self.name_of(client));
        options.reconnect_for = RECONNECT_FOR;
        options.connector = Some(self.connector(client));
        options
    }

    /// The first iSCSI name in the certificate of a client, or the name of all others.
    fn name_of(&self, client: &Client) -> String {
        let uris = client.certificate.iter().flat_map(|certificate| &certificate.uris);
        uris.into_iter().find(|uri| is_node_name(uri)).unwrap_or(&self.name).clone()
    }

    /// Connects to the target itself, whatever address it names.
    fn connector(&self, client: &Client) -> Connector {
        let (control, certificate) = (self.control.clone(), client.certificate.clone());
        let (peer, local) = client.addresses.unwrap_or((NOWHERE, NOWHERE));
        Arc::new(move |portal| {
            if *portal != portal_at(local) {
                return Err(io::Error::other(format!(
                    "the target redirects to {portal}, where NBD is not served from here"
                )));
            }
            let (ours, theirs) = UnixStream::pair()?;
            let [ours, theirs] = [ours, theirs].map(|socket| TcpStream::from(OwnedFd::from(socket)));
            let adopted = Adopted { stream: theirs, peer, local, certificate: certificate.clone() };
            control.adopt(adopted).map_err(io::Error::other)?;
            Ok(ours)
        })
    }
}

/// The address of what has none.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The portal of the target, as the session of a client knows it.
fn place(client: &Client) -> Portal {
    portal_at(client.addresses.map_or(NOWHERE, |(_, local)| local))
}

fn portal_at(address: SocketAddr) -> Portal {
    Portal { host: address.ip().to_string(), port: address.port() }
}

/// The target and the number of the logical unit in the name of an export.
fn parse(name: &str) -> Option<(&str, Lun)> {
    let (target, lun) = name.rsplit_once('/')?;
    Some((target, Lun::new(lun.parse().ok()?)?))
}

/// A client, for the log.
struct Asker<'a>(&'a Client);

impl fmt::Display for Asker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.addresses {
            Some((peer, _)) => peer.fmt(f),
            None => f.write_str("on a Unix socket"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_export_is_a_target_and_a_number() {
        assert_eq!(parse("iqn.2026-11.org.example:db/7"), Some(("iqn.2026-11.org.example:db", Lun::new(7).unwrap())));
        for name in ["", "iqn.a", "iqn.a/", "iqn.a/x", "iqn.a/-1", "iqn.a/99999999"] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
