//! The system calls on sockets.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType,
    acceptfrom_with, bind, listen, recv, recvmsg, sendmsg, socket_with, sockopt,
};

use crate::gather::Gather;

/// Connections that the kernel completes while we are busy. The system caps it by `net.core.somaxconn`.
const BACKLOG: i32 = 1024;

/// Opens a listening socket that does not block.
pub(crate) fn open_listener(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        // The same port on IPv4 is another portal, with a listener of its own.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    let listener = TcpListener::from(socket);
    let actual = listener.local_addr()?;
    Ok((listener, actual))
}

/// What came of one attempt to accept.
pub(crate) enum Accepted {
    Connection {
        stream: TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
    },
    /// This connection is lost; the next may be fine.
    Lost,
    /// Nobody waits.
    None,
    /// The system has no descriptors or memory for a connection, or does not allow one.
    Exhausted(io::Error),
}

pub(crate) fn accept(listener: &TcpListener) -> Accepted {
    match acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok((socket, peer)) => {
            let stream = TcpStream::from(socket);
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            match (peer, stream.local_addr()) {
                (Some(peer), Ok(local)) => Accepted::Connection { stream, peer, local },
                _ => Accepted::Lost,
            }
        }
        Err(error) => refused(error),
    }
}

/// The same of a connection that a ring accepted.
pub(crate) fn accepted(result: io::Result<OwnedFd>) -> Accepted {
    match result {
        Ok(socket) => {
            let stream = TcpStream::from(socket);
            match (stream.peer_addr(), stream.local_addr()) {
                (Ok(peer), Ok(local)) => Accepted::Connection { stream, peer, local },
                _ => Accepted::Lost,
            }
        }
        Err(error) => refused(Errno::from_io_error(&error).unwrap_or(Errno::INVAL)),
    }
}

fn refused(error: Errno) -> Accepted {
    match error {
        Errno::AGAIN => Accepted::None,
        // accept(2): errors of the network that were pending on the new socket come out of accept.
        Errno::INTR
        | Errno::CONNABORTED
        | Errno::PERM
        | Errno::NETDOWN
        | Errno::PROTO
        | Errno::NOPROTOOPT
        | Errno::HOSTDOWN
        | Errno::NONET
        | Errno::HOSTUNREACH
        | Errno::OPNOTSUPP
        | Errno::NETUNREACH => Accepted::Lost,
        error => Accepted::Exhausted(error.into()),
    }
}

/// What came of one attempt to send or receive.
#[derive(Debug)]
pub(crate) enum Moved {
    Bytes(usize),
    /// The socket has nothing to read or no room to write.
    WouldBlock,
    Failed(io::Error),
}

/// Receives once, into `first` (it may be empty) and then into `second`. Zero bytes mean that the peer closed, for `second`
/// is never empty.
pub(crate) fn receive(stream: &TcpStream, first: &mut [u8], second: &mut [u8]) -> Moved {
    debug_assert!(!second.is_empty());
    if first.is_empty() {
        return retry(|| recv(stream, &mut *second, RecvFlags::DONTWAIT).map(|(len, _)| len));
    }
    let slices = &mut [IoSliceMut::new(first), IoSliceMut::new(second)];
    retry(|| {
        let control = &mut RecvAncillaryBuffer::default();
        recvmsg(stream, slices, control, RecvFlags::DONTWAIT).map(|received| received.bytes)
    })
}

/// Sends once, without a signal for a broken pipe.
pub(crate) fn send(socket: BorrowedFd<'_>, list: &Gather<'_>) -> Moved {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry(|| sendmsg(socket, list.slices(), &mut SendAncillaryBuffer::default(), flags))
}

/// The error that waits on the socket, or that the connection is gone without one.
pub(crate) fn pending_error(stream: &TcpStream) -> io::Error {
    match sockopt::socket_error(stream) {
        Ok(Err(errno)) | Err(errno) => errno.into(),
        Ok(Ok(())) => io::ErrorKind::ConnectionReset.into(),
    }
}

fn retry(mut call: impl FnMut() -> rustix::io::Result<usize>) -> Moved {
    loop {
        match call() {
            Ok(len) => return Moved::Bytes(len),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Moved::WouldBlock,
            Err(error) => return Moved::Failed(error.into()),
        }
    }
}
