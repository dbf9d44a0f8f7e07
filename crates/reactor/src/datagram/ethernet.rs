//! Datagrams without IP and UDP: frames of one EtherType on one interface (packet(7)).
#![expect(unsafe_code, reason = "there are no wrappers for the addresses of packet(7) and for these ioctls")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::calls::Ends;
use super::names::Name;
use super::open::{Opened, set_buffers};
use super::{Address, DatagramConfig, EthernetAddress, Mac};

/// The index of an interface of this network namespace.
///
/// # Errors
///
/// When there is no such interface; the error names it.
pub fn interface_index(interface: &str) -> io::Result<u32> {
    let fd = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    name_to_index(&fd, interface)
        .map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("there is no interface {interface}")))
}

/// Opens a socket for the frames of our EtherType on an interface; gives its own address, too.
pub(super) fn open(interface: u32, config: &DatagramConfig) -> io::Result<(Opened, EthernetAddress)> {
    // Without a protocol it receives nothing until it is bound.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None).map_err(|error| match error {
        Errno::PERM => {
            io::Error::new(io::ErrorKind::PermissionDenied, "sockets below IP need CAP_NET_RAW: run this as root")
        }
        error => error.into(),
    })?;
    set_buffers(&fd, config)?;
    config.only.map_or(Ok(()), |word| word.choose(&fd))?;
    bind(&fd, &EthernetAddress { interface, mac: Mac([0; 6]) })?;
    // The loopback interface has one of zeroes.
    let own = own_name(&fd)?.address();
    let Some(local @ Address::Ethernet(address)) =
        own.filter(|own| !matches!(own, Address::Ethernet(own) if own.mac == Mac::default()))
    else {
        return Err(io::Error::other("it has no MAC address, so it is no Ethernet"));
    };
    Ok((Opened { fd, ends: Ends { local, peer: None }, joins: false }, address))
}

fn bind(socket: &OwnedFd, address: &EthernetAddress) -> io::Result<()> {
    let (name, len) = Name::of(&Address::Ethernet(*address));
    // SAFETY: the name has that many bytes and outlives the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), len as libc::socklen_t) })
}

fn own_name(socket: &OwnedFd) -> io::Result<Name> {
    let mut name = Name::default();
    let mut len = Name::BYTES as libc::socklen_t;
    // SAFETY: the system writes no more than `len` bytes, which the name has, and both outlive the call.
    check(unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut name).cast(), &raw mut len) })?;
    Ok(name)
}

/// The longest datagram that `interface` takes, or IP packet.
pub(super) fn mtu(interface: u32) -> io::Result<u32> {
    let fd = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let name = index_to_name(&fd, interface)?;
    let answer = ask(&fd, &name, libc::SIOCGIFMTU)?;
    // SAFETY: the system has filled this member.
    let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(io::Error::other)
}

/// Whether an interface of this network namespace is there and up, so that frames may come and go.
pub fn interface_is_up(interface: &str) -> bool {
    let flags = || {
        let fd = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let answer = ask(&fd, interface, libc::SIOCGIFFLAGS)?;
        // SAFETY: the system has filled this member.
        io::Result::Ok(libc::c_int::from(unsafe { answer.ifr_ifru.ifru_flags }))
    };
    flags().is_ok_and(|flags| flags & libc::IFF_UP != 0)
}

/// Asks the system about an interface (netdevice(7)).
fn ask(fd: &OwnedFd, interface: &str, question: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: all zeroes is a valid request, without a name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    let places = request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1);
    places.zip(interface.bytes()).for_each(|(place, byte)| *place = byte.cast_signed());
    // SAFETY: the request has an interface's name, and outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), question, &raw mut request) })?;
    Ok(request)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
