//! How many connections there are, on all cores and between them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_tls::Source;

use crate::limits::{MAX_ADDRESS_CONNECTIONS, MAX_CONNECTIONS};

/// The connections that are served on all cores, and how many more may be.
#[derive(Clone, Default)]
pub(crate) struct ConnectionLimit(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    count: usize,
    by_source: HashMap<Source, usize>,
}

/// One of the connections that the server may have. It goes along to another core.
pub(crate) struct Permit {
    limit: ConnectionLimit,
    source: Source,
}

impl ConnectionLimit {
    /// A permit for one more connection from `source`, unless there are too many.
    pub(super) fn take(&self, source: Source) -> Option<Permit> {
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
        Some(Permit { limit: self.clone(), source })
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.lock().count
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.limit.lock();
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
    use std::net::SocketAddr;

    use super::*;

    fn source(address: &str) -> Source {
        Source::of(SocketAddr::new(address.parse().unwrap(), 1234))
    }

    fn fill(limit: &ConnectionLimit, source: Source) -> Vec<Permit> {
        std::iter::from_fn(|| limit.take(source)).collect()
    }

    #[test]
    fn connections_are_limited() {
        let limit = ConnectionLimit::default();
        let mut all = fill(&limit, source("192.0.2.1"));
        all.extend(fill(&limit, source("192.0.2.2")));
        assert_eq!(all.len(), MAX_CONNECTIONS);
        assert!(limit.take(source("192.0.2.3")).is_none());
        all.pop();
        assert!(limit.take(source("192.0.2.3")).is_some());
        drop(all);
        assert_eq!(limit.taken(), 0);
        assert!(limit.lock().by_source.is_empty());
    }

    #[test]
    fn one_address_leaves_connections_to_others() {
        let limit = ConnectionLimit::default();
        let mut all = fill(&limit, source("2001:db8::1"));
        assert_eq!(all.len(), MAX_ADDRESS_CONNECTIONS);
        assert!(limit.take(source("2001:db8::2")).is_none(), "it is of the same network");
        assert!(limit.take(source("2001:db8:0:1::1")).is_some());
        all.pop();
        assert!(limit.take(source("2001:db8::2")).is_some());
    }

    #[test]
    fn ipv4_is_the_same_in_either_family() {
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("::ffff:192.0.2.1"), source("::ffff:192.0.2.2"));
    }
}
