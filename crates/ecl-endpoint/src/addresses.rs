//! Addresses as the reactor has them, and as associations do.

use std::net::{Ipv4Addr, SocketAddr};

use lunette_ecl::path::Address;
use lunette_reactor::{Address as SocketAddress, DatagramPath};

/// The peer of a path.
pub(crate) fn peer_of(path: &DatagramPath) -> Address {
    match path.peer {
        SocketAddress::Udp(address) => Address::Udp(address),
        SocketAddress::Ethernet(station) => Address::Ethernet(station.mac),
    }
}

/// The path from the same end to `peer`.
pub(crate) fn path_to(path: &DatagramPath, peer: &Address) -> DatagramPath {
    let peer = match (peer, path.peer) {
        (Address::Udp(address), _) => SocketAddress::Udp(*address),
        (Address::Ethernet(mac), SocketAddress::Ethernet(station)) => {
            SocketAddress::Ethernet(lunette_reactor::EthernetAddress { mac: *mac, ..station })
        }
        (Address::Ethernet(_), udp) => udp,
    };
    DatagramPath { peer, ..*path }
}

/// An address as handlers of streams know them. A station on an Ethernet has none.
pub(crate) fn socket_address(address: &SocketAddress) -> SocketAddr {
    match address {
        SocketAddress::Udp(address) => *address,
        SocketAddress::Ethernet(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
    }
}
