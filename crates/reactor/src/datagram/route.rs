//! Which interface leads to an address, as the system's routes say (rtnetlink(7)).
//!
//! The MTU that the system tells of a connected socket (`IP_MTU` of ip(7)) is less when an ICMP message has said so,
//! and anyone can send one. The interface has only that of its administrator.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Lengths of `nlmsghdr`, `rtmsg` and `rtattr`.
const HEADER_LEN: usize = 16;
const ROUTE_LEN: usize = 12;
const ATTRIBUTE_LEN: usize = 4;

/// Families of addresses.
const INET: u8 = libc::AF_INET.unsigned_abs() as u8;
const INET6: u8 = libc::AF_INET6.unsigned_abs() as u8;

/// Bytes that a route takes, with room for attributes that later systems may have.
const MAX_ANSWER_LEN: usize = 4096;

const GET_ROUTE: u16 = libc::RTM_GETROUTE;
const NEW_ROUTE: u16 = libc::RTM_NEWROUTE;
const ERROR: u16 = libc::NLMSG_ERROR as u16;
const REQUEST: u16 = libc::NLM_F_REQUEST as u16;

/// The index of the interface that datagrams to `peer` leave by.
pub(super) fn interface_to(peer: SocketAddr) -> io::Result<u32> {
    if let SocketAddr::V6(peer) = peer
        && peer.scope_id() != 0
    {
        return Ok(peer.scope_id());
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    send(&socket, &question(peer.ip()), SendFlags::empty())?;
    let mut answer = [0; MAX_ANSWER_LEN];
    // The system has answered before the send has returned.
    let (_, len) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    interface_of(answer.get(..len).unwrap_or_default())
}

fn question(peer: IpAddr) -> Vec<u8> {
    let (family, address) = match peer {
        IpAddr::V4(ip) => (INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (INET6, ip.octets().to_vec()),
    };
    let attribute_len = ATTRIBUTE_LEN + address.len();
    let len = HEADER_LEN + ROUTE_LEN + attribute_len;
    let mut message = vec![0; HEADER_LEN + ROUTE_LEN];
    message[..4].copy_from_slice(&(len as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&GET_ROUTE.to_ne_bytes());
    message[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    (message[HEADER_LEN], message[HEADER_LEN + 1]) = (family, 8 * address.len() as u8);
    message.extend((attribute_len as u16).to_ne_bytes());
    message.extend(libc::RTA_DST.to_ne_bytes());
    message.extend(address);
    message
}

/// The outgoing interface of the route that the system has answered with.
fn interface_of(answer: &[u8]) -> io::Result<u32> {
    let strange = || io::Error::new(io::ErrorKind::InvalidData, "the system has answered without a route");
    let message_type = answer.get(4..6).map(ne_u16).ok_or_else(strange)?;
    if message_type == ERROR {
        let errno = answer.get(HEADER_LEN..HEADER_LEN + 4).map(ne_u32).ok_or_else(strange)?;
        return Err(io::Error::from_raw_os_error(errno.cast_signed().wrapping_neg()));
    }
    let mut rest = answer.get(HEADER_LEN + ROUTE_LEN..).filter(|_| message_type == NEW_ROUTE).ok_or_else(strange)?;
    while let Some(head) = rest.get(..ATTRIBUTE_LEN) {
        let (len, attribute_type) = (usize::from(ne_u16(&head[..2])), ne_u16(&head[2..]));
        let value = rest.get(ATTRIBUTE_LEN..len).ok_or_else(strange)?;
        if attribute_type == libc::RTA_OIF {
            return value.get(..4).map(ne_u32).ok_or_else(strange);
        }
        // Attributes begin at multiples of 4.
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Err(strange())
}

/// Two bytes in the order of this machine.
fn ne_u16(bytes: &[u8]) -> u16 {
    u16::from_ne_bytes(std::array::from_fn(|i| bytes[i]))
}

/// Four bytes in the order of this machine.
fn ne_u32(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|i| bytes[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_leads_to_its_addresses() {
        for peer in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
            assert_eq!(interface_to(peer.parse().unwrap()).unwrap(), 1, "{peer}");
        }
        assert_eq!(interface_to("[fe80::1%7]:1".parse().unwrap()).unwrap(), 7);
    }

    #[test]
    fn answers_that_are_cut_short_are_no_routes() {
        let mut answer = question(IpAddr::from([127, 0, 0, 1]));
        answer[4..6].copy_from_slice(&NEW_ROUTE.to_ne_bytes());
        let at = answer.len();
        answer.extend(8_u16.to_ne_bytes());
        answer.extend(libc::RTA_OIF.to_ne_bytes());
        answer.extend(3_u32.to_ne_bytes());
        assert_eq!(interface_of(&answer).unwrap(), 3);
        for len in 0..answer.len() {
            assert!(interface_of(&answer[..len]).is_err(), "{len} bytes");
        }
        // An attribute shorter than its own head.
        answer[at] = 0;
        assert!(interface_of(&answer).is_err());
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        answer[16..20].copy_from_slice(&(-libc::ENETUNREACH).to_ne_bytes());
        assert_eq!(interface_of(&answer).unwrap_err().raw_os_error(), Some(libc::ENETUNREACH));
    }
}
