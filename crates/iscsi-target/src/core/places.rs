//! How many connections there are, on all cores and between them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{MAX_ADDRESS_CONNECTIONS, MAX_CONNECTIONS};

/// Where a connection comes from, as far as its bounds are concerned. A host with IPv6 may have all addresses of a network of 64
/// bits, so these count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(peer: SocketAddr) -> Self {
        Self(match peer.ip().to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// The places of all connections that are served.
#[derive(Clone, Default)]
pub(crate) struct Places(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    count: usize,
    by_source: HashMap<Source, usize>,
}

/// The place of one, which it takes along to another core.
pub(super) struct Place {
    places: Places,
    source: Source,
}

impl Places {
    /// A place for one more connection from `source`, if there is one.
    pub(super) fn take(&self, source: Source) -> Option<Place> {
        let mut taken = self.lock();
        if taken.count >= MAX_CONNECTIONS {
            return None;
        }
        let from_there = taken.by_source.entry(source).or_default();
        if *from_there >= MAX_ADDRESS_CONNECTIONS {
            return None;
        }
        *from_there += 1;
        taken.count += 1;
        Some(Place { places: self.clone(), source })
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.lock().count
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.count -= 1;
        let from_there = taken.by_source.get_mut(&self.source).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if from_there == 0 {
            taken.by_source.remove(&self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str) -> Source {
        Source::of(SocketAddr::new(address.parse().unwrap(), 1234))
    }

    fn fill(places: &Places, source: Source) -> Vec<Place> {
        std::iter::from_fn(|| places.take(source)).collect()
    }

    #[test]
    fn there_are_so_many_places_and_no_more() {
        let places = Places::default();
        let mut all = fill(&places, source("192.0.2.1"));
        all.extend(fill(&places, source("192.0.2.2")));
        assert_eq!(all.len(), MAX_CONNECTIONS);
        assert!(places.take(source("192.0.2.3")).is_none());
        all.pop();
        assert!(places.take(source("192.0.2.3")).is_some());
        drop(all);
        assert_eq!(places.taken(), 0);
        assert!(places.lock().by_source.is_empty());
    }

    #[test]
    fn one_address_leaves_places_to_others() {
        let places = Places::default();
        let mut all = fill(&places, source("2001:db8::1"));
        assert_eq!(all.len(), MAX_ADDRESS_CONNECTIONS);
        assert!(places.take(source("2001:db8::2")).is_none(), "it is of the same network");
        assert!(places.take(source("2001:db8:0:1::1")).is_some());
        all.pop();
        assert!(places.take(source("2001:db8::2")).is_some());
    }

    #[test]
    fn ipv4_is_the_same_in_either_family() {
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("::ffff:192.0.2.1"), source("::ffff:192.0.2.2"));
    }
}
