//! The ends of a datagram's way.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Where a datagram comes from or goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// A port of UDP.
    Udp(SocketAddr),
    /// A station on an Ethernet.
    Ethernet(EthernetAddress),
}

/// A station on an Ethernet, and our interface that reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EthernetAddress {
    /// The index of our interface.
    pub interface: u32,
    /// The station's MAC address.
    pub mac: [u8; 6],
}

/// Both ends of a datagram's way: what an answer needs to take the same way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatagramPath {
    /// Our end. On a datagram to be sent an unspecified IP address lets the system choose, and its port counts for nothing: it is
    /// always that of the socket.
    pub local: Address,
    /// The other end.
    pub peer: Address,
}

impl DatagramPath {
    /// The way to `peer` from the end that the system chooses.
    pub fn to(peer: Address) -> Self {
        let local = match peer {
            Address::Udp(SocketAddr::V4(_)) => Address::Udp((Ipv4Addr::UNSPECIFIED, 0).into()),
            Address::Udp(SocketAddr::V6(_)) => Address::Udp((Ipv6Addr::UNSPECIFIED, 0).into()),
            Address::Ethernet(EthernetAddress { interface, .. }) => {
                Address::Ethernet(EthernetAddress { interface, mac: [0; 6] })
            }
        };
        Self { local, peer }
    }

    /// The IP address that datagrams on it must come from, if there is one.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        match self.local {
            Address::Udp(local) => Some(local.ip()).filter(|ip| !ip.is_unspecified()),
            Address::Ethernet(_) => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Udp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => address.fmt(f),
            Self::Ethernet(EthernetAddress { interface, mac: [first, rest @ ..] }) => {
                write!(f, "{first:02x}")?;
                rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))?;
                write!(f, "%{interface}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_usual() {
        let mac = EthernetAddress { interface: 3, mac: [0x02, 0, 0, 0, 0xab, 0x01] };
        assert_eq!(Address::Ethernet(mac).to_string(), "02:00:00:00:ab:01%3");
        assert_eq!(Address::Udp("[::1]:7".parse().unwrap()).to_string(), "[::1]:7");
    }

    #[test]
    fn a_way_without_a_beginning_leaves_it_to_the_system() {
        for peer in ["127.0.0.1:7", "[::1]:7"] {
            let peer: SocketAddr = peer.parse().unwrap();
            let mut path = DatagramPath::to(peer.into());
            assert_eq!(path.local_ip(), None);
            path.local = peer.into();
            assert_eq!(path.local_ip(), Some(peer.ip()));
        }
    }
}
