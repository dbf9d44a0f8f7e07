//! Sockets that the service manager has opened (sd_listen_fds(3)). A portal or a place of the API at the address of one
//! uses it; so the configuration says what is served where, and names of descriptors say nothing.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;

use listenfd::ListenFd;
use rustix::net::sockopt;

use crate::failure::Failure;

/// The sockets that were passed, and those of them that were taken.
#[derive(Default)]
pub(crate) struct Sockets {
    tcp: Vec<TcpListener>,
    unix: Vec<UnixListener>,
    are_left: bool,
}

impl Sockets {
    /// The sockets of `LISTEN_FDS`, which must be streams.
    pub(crate) fn passed() -> Result<Self, Failure> {
        let mut passed = ListenFd::from_env();
        let mut sockets = Self::default();
        for index in 0..passed.len() {
            if let Ok(Some(socket)) = passed.take_unix_listener(index) {
                sockets.unix.push(socket);
            } else {
                let unusable = |error| Failure::Address(format!("socket {index} of LISTEN_FDS: {error}"));
                sockets.tcp.extend(passed.take_tcp_listener(index).and_then(checked).map_err(unusable)?);
            }
        }
        Ok(sockets)
    }

    /// The sockets that an earlier process has left.
    pub(crate) fn left(tcp: Vec<TcpListener>, unix: Vec<UnixListener>) -> Self {
        Self { tcp, unix, are_left: true }
    }

    /// Gives the sockets at these addresses.
    pub(crate) fn take_portals(&mut self, addresses: &[SocketAddr]) -> Vec<TcpListener> {
        self.tcp.extract_if(.., |socket| socket.local_addr().is_ok_and(|own| addresses.contains(&own))).collect()
    }

    /// Gives the socket at this path.
    pub(crate) fn take_path(&mut self, path: &Path) -> Option<UnixListener> {
        let is_there = |socket: &UnixListener| socket.local_addr().is_ok_and(|own| own.as_pathname() == Some(path));
        let index = self.unix.iter().position(is_there)?;
        Some(self.unix.swap_remove(index))
    }

    /// Gives the socket at this address.
    pub(crate) fn take_address(&mut self, address: SocketAddr) -> Option<TcpListener> {
        self.take_portals(&[address]).pop()
    }

    /// Closes sockets that nothing in the configuration is at: their clients would wait without an end.
    ///
    /// The service manager keeps those that it has passed open, so they are warned of.
    pub(crate) fn close_unused(self) {
        if self.are_left {
            return;
        }
        let tcp = self.tcp.iter().filter_map(|socket| Some(socket.local_addr().ok()?.to_string()));
        let unix = self
            .unix
            .iter()
            .filter_map(|socket| Some(format!("unix:{}", socket.local_addr().ok()?.as_pathname()?.display())));
        for address in tcp.chain(unix) {
            tracing::warn!(
                address,
                "a socket of LISTEN_FDS is not used: add its address to listen, or take it out of lunette.socket"
            );
        }
    }
}

/// Portals of IPv6 serve IPv6 alone, so that hosts are told apart by the addresses that they have.
fn checked(socket: Option<TcpListener>) -> io::Result<Option<TcpListener>> {
    if let Some(socket) = &socket
        && socket.local_addr()?.is_ipv6()
        && !sockopt::ipv6_v6only(socket)?
    {
        return Err(io::Error::other("it takes IPv4, too; write BindIPv6Only=ipv6-only into lunette.socket"));
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_taken_once_by_what_has_their_address() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let mut sockets = Sockets { tcp: vec![tcp], unix: vec![UnixListener::bind(&path).unwrap()], are_left: false };
        assert!(sockets.take_address("127.0.0.1:1".parse().unwrap()).is_none());
        assert_eq!((sockets.take_portals(&[address]).len(), sockets.take_portals(&[address]).len()), (1, 0));
        assert!(sockets.take_path(Path::new("/other")).is_none());
        assert!(sockets.take_path(&path).is_some() && sockets.take_path(&path).is_none());
    }

    #[test]
    fn a_socket_for_both_families_is_refused() {
        // The standard library leaves it to the system, whose default takes IPv4, too.
        let Ok(socket) = TcpListener::bind("[::]:0") else { return };
        if sockopt::ipv6_v6only(&socket).unwrap() {
            return;
        }
        assert!(checked(Some(socket)).unwrap_err().to_string().contains("BindIPv6Only"));
    }
}
