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
    AdditionalSense, Connector, Disk, Error, Initiator, Lun, Options, Portal, RemoteStore, Session, SessionEvent,
    wait_at_most,
};
use lunette_nbd::{Client, Export, Exports, Listener, Server, ServerTls, Stopper};
use lunette_session::iscsi_target::is_node_name;
use lunette_store::InlineIo;
use lunette_target::{Adopted, Control, Seen, Viewer};

use crate::address::reachable;
use crate::config::nbd::Nbd;
use crate::config::{Config, check_initiator_name};
use crate::failure::Failure;
use crate::server::certificates::{self, Use};
use crate::system;

/// The time that target and disk have to answer the login of a client, and the questions before its first request.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);

/// The time limit of a request. The disk is in this process: a request waits for it like the one of any initiator, and
/// is not given up for a reset of the logical unit, which others would feel.
const REQUEST_TIMEOUT: Duration = Duration::from_hours(24 * 365);

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
    let (control, name) = (control.clone(), name.clone());
    let disks = Arc::new(Disks { control, initiator, name, listing: Mutex::new(()) });
    // One server: its bounds are those of all addresses together.
    let server = Server::new(disks, Arc::new(InlineIo));
    let server = match tls {
        Some(tls) => server.with_tls(tls),
        None => server,
    };
    let mut running = Running::default();
    for listener in listeners {
        let uri = listener.address().map(|address| format!("{scheme}://{}", reachable(address)));
        running.uris.extend(uri);
        running.stoppers.push(server.stopper(&listener).map_err(Failure::other)?);
        let server = server.clone();
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
    /// Held for a list. Clients that ask for many take the target's event loop for one of them at a time.
    listing: Mutex<()>,
}

impl Exports for Disks {
    fn names(&self, client: &Client) -> Vec<String> {
        self.find_all(client)
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
        let opening = async {
            let session = Session::connect(&self.initiator, &place(client), target, self.options(client)).await?;
            Disk::open(session, lun).await
        };
        let refused = |why: &dyn fmt::Display| {
            tracing::info!(client = Asker(client).to_string(), name, %why, "NBD: an export is refused");
        };
        let Some(opened) = wait_at_most(OPEN_TIMEOUT, opening) else {
            refused(&format_args!("it does not answer within {OPEN_TIMEOUT:?}"));
            return None;
        };
        let disk: Disk = opened.inspect_err(|error: &Error| refused(error)).ok()?;
        let store = Arc::new(RemoteStore::new(disk));
        Export::new(name, store, false).inspect_err(|error| tracing::info!(name, "NBD: {error}")).ok()
    }
}

impl Disks {
    /// The exports that a client may use: `TARGET/LUN`.
    fn find_all(&self, client: &Client) -> Vec<String> {
        let peer = client.addresses.map_or(NOWHERE, |(peer, _)| peer).ip();
        let viewer = Viewer { initiator: self.name_of(client), peer, certificate: client.certificate.clone() };
        let listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = self.control.view(viewer).unwrap_or_else(|error| {
            tracing::warn!(client = Asker(client).to_string(), %error, "NBD: the exports of a client cannot be listed");
            Vec::new()
        });
        drop(listing);
        let can_be_expressed = |seen: &Seen| seen.unit.block_size().is_power_of_two();
        seen.iter().filter(|seen| can_be_expressed(seen)).map(|seen| format!("{}/{}", seen.target, seen.lun)).collect()
    }

    /// The export of a client that has one alone.
    fn only_one(&self, client: &Client) -> Option<String> {
        let names = self.find_all(client);
        let [only] = &*names else { return None };
        Some(only.clone())
    }

    /// A session that ends for good takes the connection of its client along, as does a disk in the place of another: a
    /// client that comes again shows its certificate again, and sees what the disk is then.
    fn options(&self, client: &Client) -> Options {
        let mut options = Options::new(self.name_of(client));
        options.reconnect_for = Duration::ZERO;
        options.request_timeout = REQUEST_TIMEOUT;
        options.connector = Some(self.connector(client));
        let ending = client.ending.clone();
        options.listener = Some(Arc::new(move |event: &SessionEvent| match event {
            SessionEvent::Over(_) => ending.end(),
            SessionEvent::UnitAttention { sense, .. } if sense.code == AdditionalSense::INQUIRY_DATA_CHANGED => {
                ending.end();
            }
            _ => {}
        }));
        options
    }

    /// The first iSCSI name in the certificate of a client. Without one the name of all others, with the first DNS name
    /// of its certificate behind it.
    fn name_of(&self, client: &Client) -> String {
        let Some(certificate) = &client.certificate else { return self.name.clone() };
        if let Some(uri) = certificate.uris.iter().find(|uri| is_node_name(uri)) {
            return uri.clone();
        }
        let of_dns = certificate.dns_names.first().map(|name| format!("{}:{}", self.name, name.to_ascii_lowercase()));
        of_dns.filter(|name| check_initiator_name(name).is_ok()).unwrap_or_else(|| self.name.clone())
    }

    /// Connects to the target itself, whatever address it names.
    fn connector(&self, client: &Client) -> Connector {
        let (control, certificate) = (self.control.clone(), client.certificate.clone());
        let (peer, local) = client.addresses.unwrap_or((NOWHERE, NOWHERE));
        Arc::new(move |portal| {
            if *portal != portal_at(local) {
                return Err(io::Error::other(format!("the target redirects to {portal}; connect there")));
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
