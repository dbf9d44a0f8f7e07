//! When which connection wants to be called.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lunette_reactor::ConnectionId;
use lunette_session::Time;

use super::connection::Conn;
use super::table::ConnectionTable;

/// Entries beyond two for each connection that are not worth looking at.
const MIN_TIDY: usize = 64;

/// A heap that is allowed to be early: a connection that was heard of since is looked at in vain, once, and watched anew.
/// So nothing needs to be moved while data flows.
#[derive(Default)]
pub(super) struct Timetable {
    due: BinaryHeap<Reverse<Due>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Time,
    index: usize,
    connection: Opaque,
}

/// Takes no part in the order.
#[derive(Clone, Copy)]
struct Opaque(ConnectionId);

impl PartialEq for Opaque {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Opaque {}

impl PartialOrd for Opaque {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Opaque {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl Timetable {
    /// Drops the entries of connections that are gone, when they have become many: an entry may lie far in the future.
    pub(super) fn tidy(&mut self, connections: &mut ConnectionTable<Conn>) {
        if self.due.len() > MIN_TIDY + 2 * (connections.len() + connections.parked().count()) {
            self.due.retain(|Reverse(due)| connections.get_mut(due.connection.0).is_some());
        }
    }

    /// Makes sure that the connection is called in time.
    pub(super) fn watch(&mut self, id: ConnectionId, conn: &mut Conn, timeout: Option<Time>) {
        let Some(at) = timeout else { return };
        if conn.watched_for.is_none_or(|watched| at < watched) {
            conn.watched_for = Some(at);
            self.due.push(Reverse(Due { at, index: id.index(), connection: Opaque(id) }));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.due.peek().map(|Reverse(due)| due.at)
    }

    pub(super) fn pop_due(&mut self, now: Time) -> Option<(Time, ConnectionId)> {
        self.next().filter(|at| *at <= now)?;
        self.due.pop().map(|Reverse(due)| (due.at, due.connection.0))
    }
}
