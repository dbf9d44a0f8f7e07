//! Connections without a target: how many there are, and which one makes way for another. Their peers may be anyone.

use std::collections::{HashMap, VecDeque};

use crate::limits::MAX_TARGETLESS_CONNECTIONS;
use lunette_tls::Source;

/// Connections that may have no target yet, the oldest first. Those that have one, or that are gone, are taken out when
/// the table is full. `H` is how the core calls a connection.
pub(super) struct Targetless<H> {
    accepted: VecDeque<(H, Source)>,
}

impl<H> Default for Targetless<H> {
    fn default() -> Self {
        Self { accepted: VecDeque::new() }
    }
}

impl<H: Copy> Targetless<H> {
    /// Makes room for one more. Gives the connection that has to end for it: the oldest of the source that has the
    /// most.
    pub(super) fn make_room(&mut self, has_none: impl Fn(H) -> bool) -> Option<H> {
        if self.accepted.len() < MAX_TARGETLESS_CONNECTIONS {
            return None;
        }
        self.accepted.retain(|(id, _)| has_none(*id));
        if self.accepted.len() < MAX_TARGETLESS_CONNECTIONS {
            return None;
        }
        let mut counts: HashMap<Source, usize> = HashMap::new();
        for (_, source) in &self.accepted {
            *counts.entry(*source).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let oldest = self.accepted.iter().position(|(_, source)| counts[source] == most)?;
        self.accepted.remove(oldest).map(|(id, _)| id)
    }

    /// A connection has been accepted.
    pub(super) fn push(&mut self, id: H, source: Source) {
        self.accepted.push_back((id, source));
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn source(last: u8) -> Source {
        Source::of(SocketAddr::from(([192, 0, 2, last], 1234)))
    }

    /// A table that is full of connections from 1, but for one from 2 that came first.
    fn flooded() -> Targetless<usize> {
        let from_1 = (1..MAX_TARGETLESS_CONNECTIONS).map(|id| (id, source(1)));
        Targetless { accepted: std::iter::once((0, source(2))).chain(from_1).collect() }
    }

    #[test]
    fn the_address_with_the_most_connections_makes_room() {
        let mut targetless = flooded();
        for n in 1..MAX_TARGETLESS_CONNECTIONS / 2 {
            assert_eq!(targetless.make_room(|_| true), Some(n), "the oldest from there");
            targetless.accepted.push_back((MAX_TARGETLESS_CONNECTIONS + n, source(3)));
        }
        assert_eq!(targetless.accepted.len(), MAX_TARGETLESS_CONNECTIONS);
        assert_eq!(targetless.accepted[0], (0, source(2)), "the only one from its address");
    }

    #[test]
    fn connections_that_have_a_target_do_not_count() {
        let mut targetless = flooded();
        assert_eq!(targetless.make_room(|id| id != 7), None);
        assert_eq!(targetless.accepted.len(), MAX_TARGETLESS_CONNECTIONS - 1);
        assert!(targetless.accepted.iter().all(|(id, _)| *id != 7));
    }

    #[test]
    fn nothing_ends_while_there_is_room() {
        let mut targetless = flooded();
        targetless.accepted.pop_back();
        assert_eq!(targetless.make_room(|_| panic!("no connection has to be looked at")), None);
    }
}
