//! A new connection, up to the transmission phase.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::handshake::{Agreed, Handshake};
use super::limits::{CONNECT_TIMEOUT, MAX_ADDRESSES};
use super::{NbdUrl, OpenError, Place};
use crate::limited::Limited;
use crate::limits::HANDSHAKE_TIMEOUT;
use crate::socket::Socket;

/// Connects to the server and negotiates. Waits no longer than the limits say, beside the look-up of the host.
pub(crate) fn open(url: &NbdUrl) -> Result<(Socket, Agreed), OpenError> {
    let socket = match &url.place {
        Place::Tcp { host, port } => tcp(host, *port),
        Place::Unix(path) => unix(path),
    };
    let socket = socket.map_err(OpenError::Connect)?;
    socket.prepare().map_err(OpenError::Connect)?;
    let agreed = negotiate(&socket, &url.export)?;
    Ok((socket, agreed))
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

fn negotiate(socket: &Socket, export: &str) -> Result<Agreed, OpenError> {
    let mut stream = Limited::new(socket);
    stream.start(HANDSHAKE_TIMEOUT);
    let (mut handshake, mut bytes, mut out) = (Handshake::new(export), Vec::new(), Vec::new());
    loop {
        bytes.resize(handshake.needs(), 0);
        stream.read_exact(&mut bytes).map_err(lost)?;
        out.clear();
        if let Some(agreed) = handshake.take(&bytes, &mut out)? {
            return Ok(agreed);
        }
        stream.write_all(&out).map_err(lost)?;
    }
}

/// The error of a connection that ends before it begins.
fn lost(error: io::Error) -> OpenError {
    OpenError::Lost(match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "the server has closed it"),
        _ => error,
    })
}
