//! Addresses as the system has them: `sockaddr_in`, `sockaddr_in6` and `sockaddr_ll`, byte for byte.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::{Address, EthernetAddress, Mac};

/// The EtherType for experiments within a site (IEEE 802, Local Experimental EtherType 1).
pub(super) const ETHER_TYPE: u16 = 0x88b5;

/// The length of the longest address.
const NAME_BYTES: usize = size_of::<libc::sockaddr_in6>();
const MAC_BYTES: u8 = 6;

const INET: [u8; 2] = (libc::AF_INET as u16).to_ne_bytes();
const INET6: [u8; 2] = (libc::AF_INET6 as u16).to_ne_bytes();
const PACKET: [u8; 2] = (libc::AF_PACKET as u16).to_ne_bytes();

/// A socket address of the system, with room for any of the three kinds.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(8))]
pub(super) struct Name([u8; NAME_BYTES]);

impl Name {
    pub(super) const BYTES: usize = NAME_BYTES;

    /// The name of an address, and the bytes of it that count.
    pub(super) fn of(address: &Address) -> (Self, usize) {
        let mut name = Self::default();
        let len = match address {
            Address::Udp(SocketAddr::V4(address)) => {
                name.put(0, &INET);
                name.put(2, &address.port().to_be_bytes());
                name.put(4, &address.ip().octets());
                size_of::<libc::sockaddr_in>()
            }
            Address::Udp(SocketAddr::V6(address)) => {
                name.put(0, &INET6);
                name.put(2, &address.port().to_be_bytes());
                name.put(4, &address.flowinfo().to_be_bytes());
                name.put(8, &address.ip().octets());
                name.put(24, &address.scope_id().to_ne_bytes());
                size_of::<libc::sockaddr_in6>()
            }
            Address::Ethernet(EthernetAddress { interface, mac }) => {
                name.put(0, &PACKET);
                name.put(2, &ETHER_TYPE.to_be_bytes());
                name.put(4, &interface.to_ne_bytes());
                name.put(11, &[MAC_BYTES]);
                name.put(12, &mac.0);
                size_of::<libc::sockaddr_ll>()
            }
        };
        (name, len)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..][..bytes.len()].copy_from_slice(bytes);
    }

    fn take<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|i| self.0[at + i])
    }

    /// The address that this is the name of; `None` when it is of another kind, or of a frame for another station.
    pub(super) fn address(&self) -> Option<Address> {
        let port = u16::from_be_bytes(self.take(2));
        match self.take(0) {
            INET => {
                let ip = Ipv4Addr::from(self.take::<4>(4));
                Some(Address::Udp(SocketAddrV4::new(ip, port).into()))
            }
            INET6 => {
                let (flow, scope) = (u32::from_be_bytes(self.take(4)), u32::from_ne_bytes(self.take(24)));
                let ip = Ipv6Addr::from(self.take::<16>(8));
                Some(Address::Udp(SocketAddrV6::new(ip, port, flow, scope).into()))
            }
            PACKET => {
                let [packet_type, mac_len] = self.take(10);
                let interface = u32::from_ne_bytes(self.take(4));
                let is_ours = packet_type == libc::PACKET_HOST && mac_len == MAC_BYTES;
                is_ours.then(|| Address::Ethernet(EthernetAddress { interface, mac: Mac(self.take(12)) }))
            }
            _ => None,
        }
    }
}

const _: () = assert!(size_of::<libc::sockaddr_in>() <= NAME_BYTES && size_of::<libc::sockaddr_ll>() <= NAME_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_both_ways() {
        let mac = EthernetAddress { interface: 7, mac: Mac([2, 3, 4, 5, 6, 7]) };
        let udp =
            ["192.0.2.1:860", "[2001:db8::1]:3260", "[fe80::1%3]:1"].map(|text| Address::Udp(text.parse().unwrap()));
        for address in udp.into_iter().chain([Address::Ethernet(mac)]) {
            assert_eq!(Name::of(&address).0.address(), Some(address));
        }
        assert_eq!(Name::default().address(), None);
    }

    #[test]
    fn frames_for_other_stations_have_no_address() {
        let (mut name, _) = Name::of(&Address::Ethernet(EthernetAddress { interface: 7, mac: Mac([2; 6]) }));
        for other in [libc::PACKET_BROADCAST, libc::PACKET_MULTICAST, libc::PACKET_OTHERHOST, libc::PACKET_OUTGOING] {
            name.put(10, &[other]);
            assert_eq!(name.address(), None);
        }
    }
}
