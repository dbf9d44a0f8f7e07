//! The rate at which an address may begin handshakes of TLS. Each costs as much CPU time as a hundred reads.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::limits::{HANDSHAKE_INTERVAL, MAX_HANDSHAKE_BURST, MAX_HANDSHAKE_SOURCES};

/// The place that a connection comes from, as far as bounds are concerned. A host with IPv6 may have all addresses of a
/// network of 64 bits, so these count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source(IpAddr);

impl Source {
    /// The place of a peer.
    pub fn of(peer: SocketAddr) -> Self {
        Self(match peer.ip().to_canonical() {
            IpAddr::V6(address) if address.is_unicast_link_local() => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// The addresses that have begun handshakes of late. With each of them the time at which its handshakes would all have
/// begun, had they kept to the interval.
#[derive(Debug, Default)]
pub struct Handshakes(HashMap<Source, Duration>);

impl Handshakes {
    /// Whether one more may begin, which counts then. `now` is the time since any moment, always the same one.
    pub fn begin(&mut self, source: Source, now: Duration) -> bool {
        if self.0.len() >= MAX_HANDSHAKE_SOURCES {
            self.0.retain(|_, until| *until > now);
        }
        if self.0.len() >= MAX_HANDSHAKE_SOURCES && !self.0.contains_key(&source) {
            return false;
        }
        let until = self.0.get(&source).copied().filter(|until| *until > now).unwrap_or(now);
        if until > now + burst() {
            return false;
        }
        self.0.insert(source, until + HANDSHAKE_INTERVAL);
        true
    }
}

/// The time that the handshakes of a burst would take at the interval.
fn burst() -> Duration {
    HANDSHAKE_INTERVAL * (MAX_HANDSHAKE_BURST - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn source(n: u32) -> Source {
        Source::of(SocketAddr::from((n.to_be_bytes(), 1234)))
    }

    fn begun(handshakes: &mut Handshakes, source: Source, now: Duration) -> u32 {
        (0..2 * MAX_HANDSHAKE_BURST).take_while(|_| handshakes.begin(source, now)).count().try_into().unwrap()
    }

    #[test]
    fn an_address_begins_handshakes_at_a_bounded_rate() {
        let mut handshakes = Handshakes::default();
        assert_eq!(begun(&mut handshakes, source(1), NOW), MAX_HANDSHAKE_BURST);
        assert_eq!(begun(&mut handshakes, source(1), NOW + HANDSHAKE_INTERVAL * 3), 3);
        assert_eq!(begun(&mut handshakes, source(2), NOW), MAX_HANDSHAKE_BURST, "another address is not concerned");
        assert_eq!(begun(&mut handshakes, source(1), NOW + Duration::from_hours(1)), MAX_HANDSHAKE_BURST);
    }

    #[test]
    fn addresses_are_forgotten_when_their_time_is_over() {
        let mut handshakes = Handshakes::default();
        for n in 0..MAX_HANDSHAKE_SOURCES as u32 {
            assert!(handshakes.begin(source(n), NOW));
        }
        let next = source(u32::MAX);
        assert!(!handshakes.begin(next, NOW) && handshakes.begin(source(0), NOW));
        assert!(handshakes.begin(next, NOW + HANDSHAKE_INTERVAL));
        assert_eq!(handshakes.0.len(), 2, "the address that has begun twice, and the new one");
    }
}
