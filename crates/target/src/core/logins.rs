//! Logins that have not ended: how many there are, and which one makes way for another.

use std::collections::{HashMap, VecDeque};

use lunette_reactor::{ConnectionId, Context};

use super::{Core, Source};
use crate::limits::MAX_UNFINISHED_LOGINS;

/// Connections that may not have logged in yet, the oldest first. Those that have, or that are gone, are taken out when the table is
/// full. `H` is how the core calls a connection.
pub(super) struct Logins<H> {
    begun: VecDeque<(H, Source)>,
}

impl<H> Default for Logins<H> {
    fn default() -> Self {
        Self { begun: VecDeque::new() }
    }
}

impl<H: Copy> Logins<H> {
    /// Makes room for one more. Gives the login that has to end for it: the oldest of the source that has the most.
    fn make_room(&mut self, is_unfinished: impl Fn(H) -> bool) -> Option<H> {
        if self.begun.len() < MAX_UNFINISHED_LOGINS {
            return None;
        }
        self.begun.retain(|(id, _)| is_unfinished(*id));
        if self.begun.len() < MAX_UNFINISHED_LOGINS {
            return None;
        }
        let mut counts: HashMap<Source, usize> = HashMap::new();
        for (_, source) in &self.begun {
            *counts.entry(*source).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let oldest = self.begun.iter().position(|(_, source)| counts[source] == most)?;
        self.begun.remove(oldest).map(|(id, _)| id)
    }
}

impl Core {
    /// A connection has been accepted.
    pub(super) fn login_begins(&mut self, cx: &mut Context<'_>, id: ConnectionId, source: Source) {
        let connections = &self.connections;
        // One that goes to another core has passed its login. One that was refused lingers until its peer has read the answer.
        let is_unfinished = |id: ConnectionId| {
            connections.get(id).is_some_and(|conn| conn.session.is_none() && conn.departure.is_none())
        };
        if let Some(oldest) = self.logins.make_room(is_unfinished) {
            if let Some(conn) = self.connections.get(oldest) {
                tracing::warn!(peer = %conn.peer, "login ended: {MAX_UNFINISHED_LOGINS} others are not finished");
            }
            self.cut(cx, oldest);
        }
        self.logins.begun.push_back((id, source));
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn source(last: u8) -> Source {
        Source::of(SocketAddr::from(([192, 0, 2, last], 1234)))
    }

    /// A table that is full of logins from 1, but for one from 2 that came first.
    fn flooded() -> Logins<usize> {
        let from_1 = (1..MAX_UNFINISHED_LOGINS).map(|login| (login, source(1)));
        Logins { begun: std::iter::once((0, source(2))).chain(from_1).collect() }
    }

    #[test]
    fn the_address_with_the_most_logins_makes_room() {
        let mut logins = flooded();
        for n in 1..MAX_UNFINISHED_LOGINS / 2 {
            assert_eq!(logins.make_room(|_| true), Some(n), "the oldest from there");
            logins.begun.push_back((MAX_UNFINISHED_LOGINS + n, source(3)));
        }
        assert_eq!(logins.begun.len(), MAX_UNFINISHED_LOGINS);
        assert_eq!(logins.begun[0], (0, source(2)), "the only one from its address");
    }

    #[test]
    fn logins_that_have_ended_do_not_count() {
        let mut logins = flooded();
        assert_eq!(logins.make_room(|login| login != 7), None);
        assert_eq!(logins.begun.len(), MAX_UNFINISHED_LOGINS - 1);
        assert!(logins.begun.iter().all(|(login, _)| *login != 7));
    }

    #[test]
    fn nothing_ends_while_there_is_room() {
        let mut logins = flooded();
        logins.begun.pop_back();
        assert_eq!(logins.make_room(|_| panic!("nobody has to be asked")), None);
    }
}
