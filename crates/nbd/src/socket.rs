//! TCP and Unix sockets behind one interface.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sendmsg, sockopt};

/// The longest wait of a read or write before time limits are checked.
const LOOK_UP: Duration = Duration::from_secs(2);

/// Bytes that a Unix socket should take before a send waits: a long reply. TCP finds out by itself.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// A socket that accepts clients.
#[derive(Debug)]
pub enum Listener {
    /// Accepts from any machine that reaches the address.
    Tcp(TcpListener),
    /// Accepts from this machine, through a file.
    Unix(UnixListener),
}

impl Listener {
    /// Listens on a TCP address.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).map(Self::Tcp)
    }

    /// Listens on a Unix socket, and replaces one that a killed server left behind.
    ///
    /// # Errors
    ///
    /// The error of the system: `AddrInUse` when another server listens there, or the path is not a socket.
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

    /// Ends `accept`, including a call that waits.
    pub(crate) fn close(&self) -> io::Result<()> {
        let fd: BorrowedFd<'_> = match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        };
        Ok(rustix::net::shutdown(fd, Shutdown::Read)?)
    }
}

/// Whether no process listens at a socket.
fn is_abandoned(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        && std::fs::symlink_metadata(path)
            .is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()))
}

/// A connection with a client.
#[derive(Debug)]
pub enum Socket {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A connection over a Unix socket.
    Unix(UnixStream),
}

impl Socket {
    /// Sets the socket up: small replies go out at once, reads and writes return now and then for time limits, and
    /// keep-alive finds idle clients whose machine is gone.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                sockopt::set_socket_keepalive(stream, true)?;
                stream.set_read_timeout(Some(LOOK_UP))?;
                stream.set_write_timeout(Some(LOOK_UP))
            }
            Self::Unix(stream) => {
                // The system gives less where its administrator says so.
                sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER_BYTES)?;
                stream.set_read_timeout(Some(LOOK_UP))?;
                stream.set_write_timeout(Some(LOOK_UP))
            }
        }
    }

    /// Shuts the socket down for reading, or in both directions.
    pub(crate) fn shut_down(&self, how: std::net::Shutdown) {
        // This fails when the client has closed the connection first.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        };
    }
}

/// The writing half of a connection.
pub trait Output: Write + Send {
    /// Writes as much as the other end takes without a wait.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when that is nothing, which is also what a writer says that cannot tell; the bytes are then written
    /// by a thread that may wait.
    fn write_now(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let _ = bytes;
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Output for &Socket {
    fn write_now(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => send_now(stream, bytes),
            Socket::Unix(stream) => send_now(stream, bytes),
        }
    }
}

/// Sends as much as the socket takes without a wait.
pub(crate) fn send_now(socket: impl AsFd, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(sendmsg(socket, bytes, &mut SendAncillaryBuffer::default(), flags)?)
}

/// For tests: whatever is written is taken.
impl Output for &mut Vec<u8> {
    fn write_now(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_vectored(bytes)
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

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).write_vectored(bytes),
            Socket::Unix(stream) => (&*stream).write_vectored(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
