//! Where the peer is, and what may be sent there (RFC 9000 sections 8 and 9).
//!
//! A server follows its client: a packet from another address, newer than all before it, moves the association there at
//! once. The new address is not validated until it has answered a challenge; until then it gets at most
//! [`AMPLIFICATION`] times the bytes that came from it. When it does not answer in [`CHALLENGE_TIMEOUT`], the
//! association returns to the address that was validated. A client does not follow its server.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use lunette_session::Time;

use crate::limits::AMPLIFICATION;
use crate::{Entropy, Role};

/// How long the server waits for the answer to a challenge before it sends it again. Each further wait is twice as
/// long.
pub const CHALLENGE_WAIT: Duration = Duration::from_millis(250);

/// How long a new address has for its answer.
pub const CHALLENGE_TIMEOUT: Duration = Duration::from_secs(3);

/// The bytes of a challenge, and of its response.
pub const CHALLENGE_LEN: usize = 8;

/// The packet that carries a challenge.
const CHALLENGE_PACKET_LEN: u64 = (crate::header::HEADER_LEN + CHALLENGE_LEN) as u64;

/// Where packets come from and go to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// IP address and UDP port.
    Udp(SocketAddr),
    /// An Ethernet address.
    Ethernet([u8; 6]),
}

/// The meaning of a packet's source address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The peer's address, or one that does not matter: the packet is taken.
    Known,
    /// Another address, to which the association has moved: everything goes there from now on. What was learned of the
    /// path holds no longer, unless the host is the same.
    Moved {
        /// Whether only the port differs, as after a new mapping of a NAT (RFC 9000 section 9.4).
        same_host: bool,
    },
    /// Back at the address that was validated.
    Returned,
    /// Not the server's address: the client drops the packet.
    Foreign,
}

/// The peer's address.
#[derive(Debug)]
pub struct PeerAddress {
    follows: bool,
    validated: Address,
    moved: Option<Candidate>,
}

/// An address that is not validated.
#[derive(Debug)]
struct Candidate {
    address: Address,
    challenge: [u8; CHALLENGE_LEN],
    received: u64,
    sent: u64,
    /// When it has not answered.
    deadline: Time,
    /// When the challenge is sent next, and how long the wait after it is.
    due: Time,
    wait: Duration,
}

impl Address {
    /// A form with one value for each address: what tokens are made of.
    pub(crate) fn to_bytes(self) -> [u8; 19] {
        let mut bytes = [0; 19];
        match self {
            Self::Udp(address) => {
                let ip = match address.ip() {
                    std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    std::net::IpAddr::V6(ip) => ip,
                };
                bytes[0] = 1;
                bytes[1..17].copy_from_slice(&ip.octets());
                bytes[17..].copy_from_slice(&address.port().to_be_bytes());
            }
            Self::Ethernet(address) => {
                bytes[0] = 2;
                bytes[1..7].copy_from_slice(&address);
            }
        }
        bytes
    }

    /// The machine or site that an address belongs to: without port, and of IPv6 the first 64 bits, of which a site has
    /// all addresses.
    pub(crate) fn host(self) -> [u8; 19] {
        let mut bytes = self.to_bytes();
        match self {
            Self::Udp(address) if address.ip().to_canonical().is_ipv6() => bytes[9..].fill(0),
            Self::Udp(_) => bytes[17..].fill(0),
            Self::Ethernet(_) => {}
        }
        bytes
    }

    /// Whether both addresses belong to one host, perhaps at different ports.
    pub fn same_host(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Udp(one), Self::Udp(other)) => one.ip().to_canonical() == other.ip().to_canonical(),
            _ => self == other,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => address.fmt(f),
            Self::Ethernet(address) => {
                let [first, rest @ ..] = address;
                write!(f, "{first:02x}")?;
                rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
            }
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PeerAddress {
    /// The address that the handshake has used: that of the server, or the one that the client has proven. `role` is
    /// that of this end.
    pub const fn new(role: Role, address: Address) -> Self {
        Self { follows: matches!(role, Role::Server), validated: address, moved: None }
    }

    /// Where packets go.
    pub fn current(&self) -> &Address {
        self.moved.as_ref().map_or(&self.validated, |moved| &moved.address)
    }

    /// Whether the peer has proven that it receives what goes there.
    pub const fn is_validated(&self) -> bool {
        self.moved.is_none()
    }

    /// Notes an authenticated packet of `len` bytes that came from `from`. `is_newest` says that its number is larger
    /// than all before: an old packet moves nothing.
    pub fn on_packet(
        &mut self,
        now: Time,
        from: &Address,
        len: usize,
        is_newest: bool,
        entropy: &mut Entropy<'_>,
    ) -> Source {
        if let Some(moved) = self.moved.as_mut().filter(|moved| moved.address == *from) {
            moved.received = moved.received.saturating_add(len as u64);
            return Source::Known;
        }
        if *from == self.validated {
            return if is_newest && self.moved.take().is_some() { Source::Returned } else { Source::Known };
        }
        if !self.follows {
            return Source::Foreign;
        }
        if !is_newest {
            return Source::Known;
        }
        let same_host = from.same_host(self.current());
        self.moved = Some(Candidate::new(now, *from, len as u64, entropy));
        Source::Moved { same_host }
    }

    /// How many bytes may be sent now: without a bound to an address that is validated.
    pub fn allowance(&self) -> u64 {
        self.moved.as_ref().map_or(u64::MAX, Candidate::allowance)
    }

    /// Notes a datagram of `len` bytes that was sent to the [current](Self::current) address.
    pub fn on_sent(&mut self, len: usize) {
        if let Some(moved) = &mut self.moved {
            moved.sent = moved.sent.saturating_add(len as u64);
        }
    }

    /// The bytes of a PathChallenge that is to be sent now, if one is. A packet of `len` bytes will carry them.
    pub fn challenge_due(&mut self, now: Time, len: usize) -> Option<[u8; CHALLENGE_LEN]> {
        let moved = self.moved.as_mut().filter(|moved| now >= moved.due && moved.allowance() >= len as u64)?;
        moved.due = now + moved.wait;
        moved.wait *= 2;
        Some(moved.challenge)
    }

    /// Reads the payload of a PathResponse, and says whether the address is validated by it.
    pub fn on_response(&mut self, payload: &[u8]) -> bool {
        let Some(moved) = self.moved.take_if(|moved| moved.challenge == payload) else { return false };
        self.validated = moved.address;
        true
    }

    /// Returns to the validated address when the other one has not answered in time, and says whether that has
    /// happened.
    pub fn on_timeout(&mut self, now: Time) -> bool {
        self.moved.take_if(|moved| now >= moved.deadline).is_some()
    }

    /// When [`challenge_due`](Self::challenge_due) and [`on_timeout`](Self::on_timeout) are to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        // A challenge for which nothing more may be sent is not due.
        let due =
            |moved: &Candidate| if moved.allowance() >= CHALLENGE_PACKET_LEN { moved.due } else { moved.deadline };
        self.moved.as_ref().map(|moved| due(moved).min(moved.deadline))
    }
}

impl Candidate {
    fn new(now: Time, address: Address, received: u64, entropy: &mut Entropy<'_>) -> Self {
        let mut challenge = [0; CHALLENGE_LEN];
        entropy(&mut challenge);
        let deadline = now + CHALLENGE_TIMEOUT;
        Self { address, challenge, received, sent: 0, deadline, due: now, wait: CHALLENGE_WAIT }
    }

    fn allowance(&self) -> u64 {
        self.received.saturating_mul(AMPLIFICATION).saturating_sub(self.sent)
    }
}

#[cfg(test)]
mod tests;
