//! Makes TCP connections. Each attempt has a thread of its own, because name lookup and connect may block for long.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lunette_reactor::{Address, EthernetAddress, TcpOptions, connect, interface_index};

use super::env::Env;
use super::host::{Dialer, Host, RandomBytes, Report, Wire};
use super::message::{Message, SessionKey};
use crate::error::Error;
use crate::options::{Options, Transport};
use crate::portal::Portal;

/// Begins to connect to `portal`. [`Message::Dialed`] brings the result.
pub(super) fn dial(env: &Env<'_, '_>, session: SessionKey, attempt: u64, portal: Portal, options: &Options) {
    let (queue, name) = (Arc::clone(env.queue), portal.to_string());
    let report = move |result: io::Result<Wire>| {
        let result = result.map_err(|source| Error::Connect { portal: name, source: Arc::new(source) });
        queue.push(Message::Dialed { session, attempt, result });
    };
    env.host.dialer.dial(portal, options, Box::new(report));
}

impl Host {
    /// Threads that connect, and the random numbers of the system.
    pub(crate) fn system() -> Self {
        let entropy: RandomBytes = Arc::new(|bytes| getrandom::fill(bytes).map_err(io::Error::other));
        Self { dialer: Arc::new(ThreadDialer), entropy }
    }
}

/// Connects on a thread for each attempt.
pub(crate) struct ThreadDialer;

impl Dialer for ThreadDialer {
    fn dial(&self, portal: Portal, options: &Options, report: Report) {
        // Shared, for a thread that cannot start does not give back what it was to run.
        let report = Arc::new(Mutex::new(Some(report)));
        let tell = |report: &Mutex<Option<Report>>, result| {
            if let Some(report) = report.lock().unwrap_or_else(PoisonError::into_inner).take() {
                report(result);
            }
        };
        let of_thread = Arc::clone(&report);
        let (timeout, tcp) = (options.connect_timeout, options.tcp.clone());
        let (transport, tls, connector) = (options.transport, options.tls.clone(), options.connector.clone());
        let connect = move |portal: &Portal| match connector {
            Some(connector) => connector(portal),
            None => connect_to(portal, timeout, &tcp),
        };
        let work = move || {
            let result = match transport {
                Transport::Tcp => connect(&portal).and_then(|socket| match tls {
                    Some(tls) => tls.around(socket, &portal).map(Wire::Tcp),
                    None => Ok(Wire::Tcp(socket.into())),
                }),
                Transport::Ecl if tls.is_some() => Err(no_tls()),
                Transport::Ecl => first_address(&portal).map(Wire::Ecl),
            };
            tell(&of_thread, result);
        };
        if let Err(error) = thread::Builder::new().name("lunette-connect".into()).spawn(work) {
            tell(&report, Err(error));
        }
    }
}

/// TLS is for TCP: the Effective Cross Layer encrypts by itself.
fn no_tls() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "options with TLS, and the Effective Cross Layer; leave one of them out",
    )
}

/// Connects to the first address of the portal that accepts.
pub(crate) fn connect_to(portal: &Portal, timeout: Duration, options: &TcpOptions) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (portal.host.as_str(), portal.port).to_socket_addrs()? {
        match connect(address, timeout, options) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The first address of the portal. Whether it answers is seen by the handshake.
fn first_address(portal: &Portal) -> io::Result<Address> {
    if let Some((interface, mac)) = portal.station() {
        return Ok(Address::Ethernet(EthernetAddress { interface: interface_index(interface)?, mac }));
    }
    let mut addresses = (portal.host.as_str(), portal.port).to_socket_addrs()?;
    let first = addresses.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))?;
    Ok(Address::Udp(first))
}
