//! The ends of a datagram's way.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

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
    pub mac: Mac,
}

/// A MAC address, written `02:00:00:00:ab:01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

/// The text is not six bytes of two hexadecimal digits with colons between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMac;

/// The two ends of a datagram's way: an answer needs them to take the same way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatagramPath {
    /// Our end. On a datagram to be sent an unspecified IP address lets the system choose, and its port counts for
    /// nothing: it is always that of the socket.
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
                Address::Ethernet(EthernetAddress { interface, mac: Mac::default() })
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
            Self::Ethernet(EthernetAddress { interface, mac }) => write!(f, "{mac}%{interface}"),
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([first, rest @ ..]) = self;
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
    }
}

impl FromStr for Mac {
    type Err = NoMac;

    fn from_str(text: &str) -> Result<Self, NoMac> {
        let mut mac = Self::default();
        let mut parts = text.split(':');
        for byte in &mut mac.0 {
            let part =
                parts.next().filter(|part| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(part.ok_or(NoMac)?, 16).map_err(|_| NoMac)?;
        }
        if parts.next().is_none() { Ok(mac) } else { Err(NoMac) }
    }
}

impl fmt::Display for NoMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is six bytes, as in 02:00:00:00:ab:01")
    }
}

impl std::error::Error for NoMac {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_usual() {
        let mac = EthernetAddress { interface: 3, mac: Mac([0x02, 0, 0, 0, 0xab, 0x01]) };
        assert_eq!(Address::Ethernet(mac).to_string(), "02:00:00:00:ab:01%3");
        assert_eq!(Address::Udp("[::1]:7".parse().unwrap()).to_string(), "[::1]:7");
    }

    #[test]
    fn macs_are_read_as_they_are_written() {
        let mac = Mac([0x02, 0, 0, 0, 0xab, 0x01]);
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert_eq!("02:00:00:00:AB:01".parse(), Ok(mac));
        for wrong in [
            "",
            "02",
            "02:00:00:00:ab",
            "02:00:00:00:ab:01:02",
            "2:0:0:0:ab:1",
            "+2:00:00:00:ab:01",
            "02-00-00-00-ab-01",
        ] {
            assert_eq!(wrong.parse::<Mac>(), Err(NoMac), "{wrong}");
        }
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
