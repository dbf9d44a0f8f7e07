//! Sockets that accept clients, and connections with peers, over TCP or through a file.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, accept_with, getpeername, getsockname, recv,
    sendmsg, shutdown,
};

use crate::stream::Output;

/// The longest wait of a read or write before time limits are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Bytes that a Unix socket should take before a send waits: a long reply. TCP finds out by itself.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// A socket that accepts clients.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    /// The address of one that listens on TCP.
    address: Option<SocketAddr>,
}

impl Listener {
    /// Listens on a TCP address.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        Ok(Self { address: Some(listener.local_addr()?), socket: listener.into() })
    }

    /// Listens on a Unix socket, and replaces one that a killed server left behind.
    ///
    /// # Errors
    ///
    /// The error of the system: `AddrInUse` when another server listens there, or the path is not a socket.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            other => other,
        };
        Ok(Self { socket: listener?.into(), address: None })
    }

    /// The TCP address that was bound.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    pub(crate) fn accept(&self) -> io::Result<Socket> {
        let accepted = retry_on_intr(|| accept_with(&self.socket, SocketFlags::CLOEXEC))?;
        Ok(Socket { socket: accepted, is_tcp: self.address.is_some() })
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, address: self.address })
    }

    /// Ends `accept`, including a call that waits.
    pub(crate) fn close(&self) -> io::Result<()> {
        Ok(shutdown(&self.socket, Shutdown::Read)?)
    }
}

/// Whether no process listens at a socket.
fn is_abandoned(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        && std::fs::symlink_metadata(path)
            .is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()))
}

/// A connection with a peer. Both of its halves are references to it.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: OwnedFd,
    is_tcp: bool,
}

impl Socket {
    /// A connection that was made over TCP.
    pub(crate) fn tcp(stream: TcpStream) -> Self {
        Self { socket: stream.into(), is_tcp: true }
    }

    /// A connection that was made over a Unix socket.
    pub(crate) fn unix(socket: OwnedFd) -> Self {
        Self { socket, is_tcp: false }
    }

    /// The addresses of the peer and of this side; `None` on a Unix socket.
    pub(crate) fn addresses(&self) -> io::Result<Option<(SocketAddr, SocketAddr)>> {
        if !self.is_tcp {
            return Ok(None);
        }
        let ends =
            (getpeername(&self.socket)?.map(SocketAddr::try_from), SocketAddr::try_from(getsockname(&self.socket)?));
        Ok(match ends {
            (Some(Ok(peer)), Ok(local)) => Some((peer, local)),
            _ => None,
        })
    }

    /// Receives what is there. `WouldBlock` when that is nothing.
    pub(crate) fn read_now(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.socket, into, RecvFlags::DONTWAIT)?.0)
    }

    /// Sets the socket up: small replies go out at once, reads and writes return now and then for time limits, and
    /// keep-alive finds idle peers whose machine is gone.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        if self.is_tcp {
            sockopt::set_tcp_nodelay(&self.socket, true)?;
            sockopt::set_socket_keepalive(&self.socket, true)?;
        } else {
            // The system gives less where its administrator says so.
            sockopt::set_socket_send_buffer_size(&self.socket, SEND_BUFFER_BYTES)?;
        }
        sockopt::set_socket_timeout(&self.socket, Timeout::Recv, Some(CHECK_INTERVAL))?;
        Ok(sockopt::set_socket_timeout(&self.socket, Timeout::Send, Some(CHECK_INTERVAL))?)
    }

    /// Shuts the socket down for reading, or in both directions.
    pub(crate) fn shut_down(&self, how: Shutdown) {
        // This fails when the peer has closed the connection first.
        let _ = shutdown(&self.socket, how);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Output for &Socket {
    fn write_now(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        send(&self.socket, bytes, SendFlags::DONTWAIT)
    }
}

impl Read for &Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.socket, into, RecvFlags::empty())?.0)
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        send(&self.socket, bytes, SendFlags::empty())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends what the socket takes. A peer that has gone is an error, and no signal.
pub(crate) fn send(socket: impl AsFd, bytes: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
    Ok(sendmsg(socket, bytes, &mut SendAncillaryBuffer::default(), flags | SendFlags::NOSIGNAL)?)
}

#[cfg(test)]
impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self { socket: stream.into(), is_tcp: false }
    }
}
