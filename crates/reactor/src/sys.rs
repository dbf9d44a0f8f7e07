//! The system calls on sockets.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use lunette_buffer::FileSlice;
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType,
    acceptfrom_with, bind, listen, recv, recvmsg, sendmsg, socket_with, sockopt,
};

use rustix::param::page_size;

use crate::gather::Gather;
use crate::tcp::TCP_INFO_LEN;

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

/// Has short segments leave at once. A stream that is not TCP, such as one end of a socket pair, never delays them.
pub(crate) fn set_no_delay(stream: &TcpStream) -> io::Result<()> {
    match sockopt::set_tcp_nodelay(stream, true) {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The result of one attempt to accept.
pub(crate) enum Accepted {
    Connection {
        stream: TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
    },
    /// The connection is lost; the next may be fine.
    Lost,
    /// No thread waits.
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

/// The result for a connection that a ring accepted.
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

/// The result of one attempt to send or receive.
#[derive(Debug)]
pub(crate) enum Moved {
    Bytes(usize),
    /// The socket has nothing to read or no room to write.
    WouldBlock,
    Failed(io::Error),
}

/// Receives once, into `first` (it may be empty) and then into `second`. Zero bytes mean that the peer closed, for
/// `second` is never empty.
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

/// Sends once, without a signal for a broken pipe; what lies in a file by a call of its own.
pub(crate) fn send(socket: BorrowedFd<'_>, list: &Gather<'_>) -> Moved {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let Some(file) = list.file() else { return send_slices(socket, list, flags) };
    if list.slices().is_empty() {
        return send_file(socket, file);
    }
    match send_slices(socket, list, flags | SendFlags::MORE) {
        Moved::Bytes(sent) if sent + file.len() == list.len_bytes() => match send_file(socket, file) {
            Moved::Bytes(more) => Moved::Bytes(sent + more),
            // A failure comes again when the file is the first in the list.
            Moved::WouldBlock | Moved::Failed(_) => Moved::Bytes(sent),
        },
        moved => moved,
    }
}

fn send_slices(socket: BorrowedFd<'_>, list: &Gather<'_>, flags: SendFlags) -> Moved {
    retry(|| sendmsg(socket, list.slices(), &mut SendAncillaryBuffer::default(), flags))
}

fn send_file(socket: BorrowedFd<'_>, slice: &FileSlice) -> Moved {
    let mut offset = slice.offset();
    match retry(|| sendfile(socket, slice.file(), Some(&mut offset), slice.len())) {
        // The file was cut short. The peer waits for these bytes, and there are no others for it.
        Moved::Bytes(0) => Moved::Failed(io::ErrorKind::UnexpectedEof.into()),
        moved => moved,
    }
}

/// Whether the system has all of the slice in memory, so that sending it waits for no medium.
#[expect(unsafe_code, reason = "there is no wrapper for this system call")]
pub fn is_in_page_cache(slice: &FileSlice) -> bool {
    let page_len = page_size() as u64;
    let end = slice.offset() + slice.len() as u64;
    let pages = end.div_ceil(page_len) - slice.offset() / page_len;
    let range = [slice.offset(), slice.len() as u64];
    // Pages in the cache, and of these dirty, under writeback, evicted, and recently evicted.
    let mut counts = [0_u64; 5];
    // SAFETY: both structures are as long as cachestat(2) says, and outlive the call.
    let result =
        unsafe { libc::syscall(CACHESTAT, slice.file().as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0_u32) };
    // Before Linux 6.5 there is no such call.
    result == 0 && counts[0] == pages
}

/// `SO_RCVLOWAT` of socket(7): poll, epoll and io_uring report received bytes once that many are there. The system
/// lowers it when they do not fit into its memory.
#[expect(unsafe_code, reason = "there is no wrapper for this option")]
pub(crate) fn set_low_water(stream: &TcpStream, bytes: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option is an int, and it outlives the call.
    let result = unsafe {
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const value).cast(), len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Fills `info` with what the system knows of a TCP connection, and gives the number of bytes that it has.
#[expect(unsafe_code, reason = "there is no wrapper for this option")]
pub(crate) fn tcp_info(stream: &TcpStream, info: &mut [u8; TCP_INFO_LEN]) -> io::Result<usize> {
    let mut len = TCP_INFO_LEN as libc::socklen_t;
    // SAFETY: the system writes no more than `len` bytes, which `info` has, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut len)
    };
    if result == 0 { Ok((len as usize).min(TCP_INFO_LEN)) } else { Err(io::Error::last_os_error()) }
}

/// The number of cachestat(2), the same for all architectures of Linux that are younger than 2011 and for x86-64.
const CACHESTAT: libc::c_long = 451;

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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// A file in the page cache.
    fn file(bytes: &[u8]) -> (tempfile::NamedTempFile, Arc<File>) {
        let mut named = tempfile::NamedTempFile::new().unwrap();
        named.write_all(bytes).unwrap();
        let file = Arc::new(named.reopen().unwrap());
        (named, file)
    }

    #[test]
    fn slices_and_the_file_behind_them_leave_in_order() {
        let (near, mut far) = pair();
        let (_named, file) = file(b"0123456789");
        let mut list = Gather::new();
        list.push(b"head");
        list.push_file(&FileSlice::new(file, 3, 5));
        assert!(matches!(send(near.as_fd(), &list), Moved::Bytes(9)));
        let mut bytes = [0; 9];
        far.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"head34567");
    }

    #[test]
    fn a_file_that_became_shorter_is_a_failure() {
        let (near, _far) = pair();
        let (_named, file) = file(b"0123456789");
        let mut list = Gather::new();
        list.push_file(&FileSlice::new(file, 10, 5));
        let moved = send(near.as_fd(), &list);
        assert!(matches!(&moved, Moved::Failed(error) if error.kind() == io::ErrorKind::UnexpectedEof), "{moved:?}");
    }

    #[test]
    fn what_a_file_does_not_have_is_not_in_the_page_cache() {
        let bytes = vec![7; 3 * page_size()];
        let (_named, file) = file(&bytes);
        // On systems before Linux 6.5 nothing is.
        let known = is_in_page_cache(&FileSlice::new(Arc::clone(&file), 0, bytes.len()));
        for (offset, len, cached) in
            [(0, bytes.len(), known), (100, bytes.len() - 100, known), (0, bytes.len() + 1, false)]
        {
            assert_eq!(is_in_page_cache(&FileSlice::new(Arc::clone(&file), offset, len)), cached, "{offset}+{len}");
        }
    }
}
