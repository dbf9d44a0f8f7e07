//! TCP and Unix sockets behind one face.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::net::{Shutdown, sockopt};

/// How long a read or write waits before time limits are looked at.
const LOOK_UP: Duration = Duration::from_secs(2);

/// Where clients come in.
#[derive(Debug)]
pub enum Listener {
    /// From any machine that reaches the address.
    Tcp(TcpListener),
    /// From this machine, through a file.
    Unix(UnixListener),
}

impl Listener {
    /// Listens on a TCP address.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).map(Self::Tcp)
    }

    /// Listens on a Unix socket. One that a server left behind when it was killed is replaced.
    ///
    /// # Errors
    ///
    /// What the system says: `AddrInUse` when another server listens there, or the path is no socket.
    pub fn unix(path: &Path) -> io::Result<Self> {
        match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            other => other,
        }
        .map(Self::Unix)
    }

    /// The TCP address that was bound.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Socket::Tcp(stream)),
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Socket::Unix(stream)),
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(listener) => listener.try_clone().map(Self::Tcp),
            Self::Unix(listener) => listener.try_clone().map(Self::Unix),
        }
    }

    /// Ends `accept`, also one that waits.
    pub(crate) fn close(&self) -> io::Result<()> {
        let fd: BorrowedFd<'_> = match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        };
        Ok(rustix::net::shutdown(fd, Shutdown::Read)?)
    }
}

/// A socket at which nobody listens.
fn is_abandoned(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        && std::fs::symlink_metadata(path)
            .is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()))
}

/// A connection with a client.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// Unix.
    Unix(UnixStream),
}

impl Socket {
    /// Small replies go out at once, reads and writes look up for time limits, and the system finds out when an idle client's
    /// machine is gone.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                sockopt::set_socket_keepalive(stream, true)?;
                stream.set_read_timeout(Some(LOOK_UP))?;
                stream.set_write_timeout(Some(LOOK_UP))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(LOOK_UP))?;
                stream.set_write_timeout(Some(LOOK_UP))
            }
        }
    }

    /// No more bytes in, or in neither direction.
    pub(crate) fn shut_down(&self, how: std::net::Shutdown) {
        // The client may have been quicker.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        };
    }
}

impl Read for &Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).read(into),
            Socket::Unix(stream) => (&*stream).read(into),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).write(bytes),
            Socket::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
