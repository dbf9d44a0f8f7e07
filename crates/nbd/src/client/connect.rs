//! A new connection, up to the transmission phase.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::connection::Connection;
use super::handshake::{Agreed, Handshake, Step};
use super::limits::{CONNECT_TIMEOUT, MAX_ADDRESSES};
use super::tls::Security;
use super::{NbdUrl, OpenError, Place};
use crate::limited::Limited;
use crate::limits::HANDSHAKE_TIMEOUT;
use crate::socket::Socket;

/// Connects to the server and negotiates, with `security` in TLS alone. Waits no longer than the limits say, beside the
/// look-up of the host.
pub(crate) fn open(url: &NbdUrl, security: Option<&Security>) -> Result<(Connection, Agreed), OpenError> {
    let socket = match &url.place {
        Place::Tcp { host, port } => tcp(host, *port),
        Place::Unix(path) => unix(path),
    };
    let socket = socket.map_err(OpenError::Connect)?;
    socket.prepare().map_err(OpenError::Connect)?;
    let mut connection = Limited::new(Connection::new(socket));
    connection.start(HANDSHAKE_TIMEOUT);
    let agreed = negotiate(&mut connection, &url.export, security)?;
    Ok((connection.into_inner(), agreed))
}

fn tcp(host: &str, port: u16) -> io::Result<Socket> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()?.take(MAX_ADDRESSES) {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(Socket::tcp(stream)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn unix(path: &str) -> io::Result<Socket> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A server that does not accept has a queue, and behind its end clients wait.
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(CONNECT_TIMEOUT))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(Socket::unix(socket))
}

fn negotiate(
    connection: &mut Limited<Connection>,
    export: &str,
    security: Option<&Security>,
) -> Result<Agreed, OpenError> {
    let (mut handshake, mut bytes, mut out) = (Handshake::new(export, security.is_some()), Vec::new(), Vec::new());
    loop {
        // No more than that: what follows may be the server's part of the handshake of TLS.
        bytes.resize(handshake.needs(), 0);
        connection.read_exact(&mut bytes).map_err(OpenError::lost)?;
        out.clear();
        match (handshake.take(&bytes, &mut out)?, security) {
            (Step::GoOn, _) => {}
            (Step::Agreed(agreed), _) => return Ok(agreed),
            (Step::Tls, Some(security)) => {
                Connection::start_tls(connection, security)?;
                handshake.go_on_in_tls(&mut out);
            }
            (Step::Tls, None) => return Err(OpenError::Protocol("TLS, which was not asked for")),
        }
        connection.write_all(&out).map_err(|error| refused(connection, error))?;
    }
}

/// The error of a server that takes nothing more: the alert of TLS that it has sent before, if there is one.
fn refused(connection: &mut Limited<Connection>, error: io::Error) -> OpenError {
    match connection.read(&mut [0]).map_err(OpenError::lost) {
        Err(OpenError::Secure(alert)) => OpenError::Secure(alert),
        _ => OpenError::lost(error),
    }
}
