//! Addresses as the reactor has them, and as associations do.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use lunette_ecl::path::Address;
use lunette_reactor::{Address as SocketAddress, DatagramPath, EthernetAddress, Mac};

/// The peer of a path.
pub(crate) fn peer_of(path: &DatagramPath) -> Address {
    match path.peer {
        SocketAddress::Udp(address) => Address::Udp(address),
        SocketAddress::Ethernet(station) => Address::Ethernet(station.mac.0),
    }
}

/// The path from the same end to `peer`.
pub(crate) fn path_to(path: &DatagramPath, peer: &Address) -> DatagramPath {
    let peer = match (peer, path.peer) {
        (Address::Udp(address), _) => SocketAddress::Udp(*address),
        (Address::Ethernet(mac), SocketAddress::Ethernet(station)) => {
            SocketAddress::Ethernet(EthernetAddress { mac: Mac(*mac), ..station })
        }
        (Address::Ethernet(_), udp) => udp,
    };
    DatagramPath { peer, ..*path }
}

/// The path to the same station from another socket, whose address is `own`.
pub(crate) fn path_from(path: &DatagramPath, own: EthernetAddress) -> DatagramPath {
    let interface = own.interface;
    match path.peer {
        SocketAddress::Ethernet(station) => DatagramPath {
            local: SocketAddress::Ethernet(own),
            peer: SocketAddress::Ethernet(EthernetAddress { interface, ..station }),
        },
        SocketAddress::Udp(_) => *path,
    }
}

/// An address as handlers of streams know them, for what they count and log by peer. That of a station on an Ethernet
/// is the link-local one that follows from its MAC address (RFC 4291 appendix A), whether the station speaks IP or not.
pub(crate) fn socket_address(address: &SocketAddress) -> SocketAddr {
    match address {
        SocketAddress::Udp(address) => *address,
        SocketAddress::Ethernet(EthernetAddress { interface, mac: Mac(mac) }) => {
            let word = |high: u8, low: u8| u16::from_be_bytes([high, low]);
            let (first, last) = (word(mac[0] ^ 2, mac[1]), word(mac[4], mac[5]));
            let ip = Ipv6Addr::new(0xfe80, 0, 0, 0, first, word(mac[2], 0xff), word(0xfe, mac[3]), last);
            SocketAddrV6::new(ip, 0, 0, *interface).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_are_told_apart_by_an_address() {
        let station = |mac| SocketAddress::Ethernet(EthernetAddress { interface: 7, mac: Mac(mac) });
        assert_eq!(
            socket_address(&station([2, 0, 0, 0, 0xab, 1])),
            "[fe80::ff:fe00:ab01%7]:0".parse().expect("an address")
        );
        assert_ne!(socket_address(&station([2; 6])), socket_address(&station([4; 6])));
    }
}
