//! The company of a message: control messages of cmsg(3), as the kernel has them, byte for byte.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Ecn;

/// Room for all that comes with a received message: 40 bytes for the address, 24 each for the ECN field and the
/// segments.
const CONTROL_BYTES: usize = 128;

/// The length of the header: a `size_t` and two ints.
const HEADER_BYTES: usize = size_of::<usize>() + 8;

/// Control messages one behind the other.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; CONTROL_BYTES],
    len: usize,
}

/// The content of the control messages of a received message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// The address of ours that it came to.
    pub(super) local: Option<IpAddr>,
    pub(super) ecn: Ecn,
    /// The length of its datagrams but the last, if they are several.
    pub(super) segment_len: Option<usize>,
}

impl Control {
    pub(super) const BYTES: usize = CONTROL_BYTES;

    pub(super) const fn new() -> Self {
        Self { bytes: [0; CONTROL_BYTES], len: 0 }
    }

    /// The bytes that were written.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    /// Has the system cut the message into datagrams of this length.
    pub(super) fn set_segment_len(&mut self, len: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &len.to_ne_bytes());
    }

    /// Has the message leave from this address. The interface stays the one that the route says.
    pub(super) fn set_source(&mut self, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => {
                // An in_pktinfo: interface, address, and a third member that counts when one receives.
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&ip.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            IpAddr::V6(ip) => {
                // An in6_pktinfo: address, interface.
                let mut info = [0; 20];
                info[..16].copy_from_slice(&ip.octets());
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    fn push(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        let len = HEADER_BYTES + data.len();
        let message = &mut self.bytes[self.len..][..aligned(len)];
        let (header, rest) = message.split_at_mut(HEADER_BYTES);
        header[..size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
        header[size_of::<usize>()..][..4].copy_from_slice(&level.to_ne_bytes());
        header[size_of::<usize>() + 4..].copy_from_slice(&kind.to_ne_bytes());
        rest[..data.len()].copy_from_slice(data);
        self.len += aligned(len);
    }

    /// The content of the first `len` bytes, which the system wrote.
    pub(super) fn said(&self, len: usize) -> Said {
        let mut said = Said::default();
        let mut rest = &self.bytes[..len.min(CONTROL_BYTES)];
        while let Some((level, kind, data, behind)) = split(rest) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    said.local = number(data, 8).map(|ip: [u8; 4]| Ipv4Addr::from(ip).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    said.local = number(data, 0).map(|ip: [u8; 16]| Ipv6Addr::from(ip).into());
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    said.ecn = data.first().map_or(Ecn::NotEct, |class| Ecn::of_traffic_class(*class));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    let class = number(data, 0).map_or(0, u32::from_ne_bytes);
                    said.ecn = Ecn::of_traffic_class(class as u8);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let len = number(data, 0).map_or(0, u32::from_ne_bytes);
                    said.segment_len = Some(len as usize).filter(|len| *len > 0);
                }
                _ => {}
            }
            rest = behind;
        }
        said
    }
}

/// The level, the kind and the data of the first control message, and what is behind it.
fn split(bytes: &[u8]) -> Option<(libc::c_int, libc::c_int, &[u8], &[u8])> {
    let len = usize::from_ne_bytes(number(bytes, 0)?);
    let level = i32::from_ne_bytes(number(bytes, size_of::<usize>())?);
    let kind = i32::from_ne_bytes(number(bytes, size_of::<usize>() + 4)?);
    let data = bytes.get(HEADER_BYTES..len)?;
    Some((level, kind, data, bytes.get(aligned(len)..).unwrap_or_default()))
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn aligned(len: usize) -> usize {
    len.next_multiple_of(size_of::<usize>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "the C library's macro")]
    fn the_layout_is_the_system_s() {
        let mut control = Control::new();
        control.set_source("192.0.2.1".parse().unwrap());
        control.set_segment_len(4224);
        // SAFETY: these compute with numbers alone.
        let space = |len: usize| unsafe { libc::CMSG_SPACE(len as u32) as usize };
        assert_eq!(control.len(), space(size_of::<libc::in_pktinfo>()) + space(2));
        let mut control = Control::new();
        control.set_source("2001:db8::1".parse().unwrap());
        assert_eq!(control.len(), space(size_of::<libc::in6_pktinfo>()));
    }

    #[test]
    fn what_the_system_says_is_understood() {
        let mut control = Control::new();
        let info = [&[0; 8][..], &[192, 0, 2, 1]].concat();
        control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        control.push(libc::SOL_SOCKET, libc::SO_TIMESTAMP, &[1; 16]);
        control.push(libc::IPPROTO_IP, libc::IP_TOS, &[0xff]);
        control.push(libc::SOL_UDP, libc::UDP_GRO, &4224_i32.to_ne_bytes());
        let local = Some("192.0.2.1".parse().unwrap());
        assert_eq!(control.said(control.len()), Said { local, ecn: Ecn::Ce, segment_len: Some(4224) });

        let mut control = Control::new();
        control.set_source("2001:db8::1".parse().unwrap());
        control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &2_i32.to_ne_bytes());
        let local = Some("2001:db8::1".parse().unwrap());
        assert_eq!(control.said(control.len()), Said { local, ecn: Ecn::Ect0, segment_len: None });
    }

    #[test]
    fn what_is_cut_off_says_nothing() {
        let mut control = Control::new();
        control.push(libc::IPPROTO_IP, libc::IP_TOS, &[3]);
        for len in 0..=HEADER_BYTES {
            assert_eq!(control.said(len), Said::default(), "{len}");
        }
        // Lengths that cannot be.
        for len in [0, 1, HEADER_BYTES - 1, CONTROL_BYTES + 1, usize::MAX] {
            control.bytes[..size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(control.said(CONTROL_BYTES), Said::default(), "{len}");
        }
    }
}
