//! How datagram sockets are opened, and the MTU of the interface that leads to a peer.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

use super::calls::Ends;
use super::{Address, DatagramConfig, EthernetAddress, Offloads, SocketBuffers, ethernet, route};

/// Options of IPv4 sockets: level, name, value.
const IPV4_OPTIONS: [[libc::c_int; 3]; 3] = [
    [libc::IPPROTO_IP, libc::IP_RECVTOS, 1],
    [libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE],
    [libc::IPPROTO_IP, libc::IP_TOS, ECT_0],
];

/// Options of IPv6 sockets, which serve IPv6 alone, as listeners do.
const IPV6_OPTIONS: [[libc::c_int; 3]; 4] = [
    [libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1],
    [libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1],
    [libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE],
    [libc::IPPROTO_IPV6, libc::IPV6_TCLASS, ECT_0],
];

/// To be told to which address of ours a message came.
const IPV4_LOCAL: [libc::c_int; 3] = [libc::IPPROTO_IP, libc::IP_PKTINFO, 1];
const IPV6_LOCAL: [libc::c_int; 3] = [libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1];

/// The ECN field of what is sent.
const ECT_0: libc::c_int = super::Ecn::Ect0 as libc::c_int;

/// A socket that was opened.
pub(super) struct Opened {
    pub(super) fd: OwnedFd,
    pub(super) ends: Ends,
    /// Whether the socket may send neighbours as one.
    pub(super) joins: bool,
}

/// Opens a UDP socket at `local`, or at a free port towards `peer`; gives its own address, too.
pub(super) fn open_udp(
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    config: &DatagramConfig,
) -> io::Result<(Opened, SocketAddr)> {
    let is_ipv4 = local.or(peer).is_some_and(|address| address.is_ipv4());
    let family = if is_ipv4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    let options = if is_ipv4 { &IPV4_OPTIONS[..] } else { &IPV6_OPTIONS };
    for &[level, name, value] in options {
        set_option(&fd, level, name, value)?;
    }
    // A socket with one address of its own need not be told of it with each message.
    if local.is_some_and(|local| local.ip().is_unspecified()) {
        let [level, name, value] = if is_ipv4 { IPV4_LOCAL } else { IPV6_LOCAL };
        set_option(&fd, level, name, value)?;
    }
    set_buffers(&fd, config)?;
    let mut joins = false;
    if config.offloads == Offloads::On {
        // Linux 4.18 and 5.0; without them datagrams come and go one by one.
        joins = set_option(&fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        if let Err(error) = set_option(&fd, libc::SOL_UDP, libc::UDP_GRO, 1) {
            tracing::debug!(%error, "no UDP_GRO");
        }
    }
    if let Some(local) = local {
        bind(&fd, &local)?;
    }
    if let Some(peer) = peer {
        connect(&fd, &peer)?;
    }
    let socket = UdpSocket::from(fd);
    let address = socket.local_addr()?;
    let ends = Ends { local: address.into(), peer: peer.map(Address::from) };
    Ok((Opened { fd: socket.into(), ends, joins }, address))
}

/// Asks for the buffers of `config`: beyond the administrator's limit where that is allowed, else up to it.
pub(super) fn set_buffers(fd: &OwnedFd, config: &DatagramConfig) -> io::Result<()> {
    if let Some(bytes) = config.receive_buffer_bytes {
        let bytes = bytes as usize;
        sockopt::set_socket_recv_buffer_size_force(fd, bytes)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, bytes))?;
    }
    if let Some(bytes) = config.send_buffer_bytes {
        let bytes = bytes as usize;
        sockopt::set_socket_send_buffer_size_force(fd, bytes)
            .or_else(|_| sockopt::set_socket_send_buffer_size(fd, bytes))?;
    }
    Ok(())
}

/// The buffers as the system made them. It doubles what it is asked for, for its own bookkeeping (socket(7)).
pub(super) fn buffers(fd: &OwnedFd) -> io::Result<SocketBuffers> {
    Ok(SocketBuffers {
        receive_bytes: sockopt::socket_recv_buffer_size(fd)? / 2,
        send_bytes: sockopt::socket_send_buffer_size(fd)? / 2,
    })
}

/// The longest IP packet, in bytes, that the interface takes which leads to `peer`; on Ethernet the longest datagram.
/// What the system has heard of the path behind it does not count: anyone can send it ICMP messages.
///
/// # Errors
///
/// When there is no way to `peer`.
pub fn interface_mtu(peer: Address) -> io::Result<u32> {
    ethernet::mtu(match peer {
        Address::Udp(peer) => route::interface_to(peer)?,
        Address::Ethernet(EthernetAddress { interface, .. }) => interface,
    })
}

/// Sets an option that is an int.
#[expect(unsafe_code, reason = "there are no wrappers for most of these options")]
pub(super) fn set_option(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option is an int, and it outlives the call.
    let result = unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
