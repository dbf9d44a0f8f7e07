//! Tasks that wait for buffers while connections keep some, to be able to send again what is in them (ErrorRecoveryLevel 1 and
//! above).

use lunette_reactor::ConnectionId;
use lunette_session::Time;

use super::Core;
use super::connection::Conn;
use super::shares::Holdings;
use crate::limits::MAX_FED_TASKS;

impl Core {
    /// Lets connections give back what they keep. Nobody is asked while no task waits for a buffer.
    pub(super) fn make_room(&mut self, now: Time) {
        if self.starving.is_empty() {
            return;
        }
        for id in self.keepers() {
            if let Some((conn, mut protocol)) = self.link(id)
                && protocol.make_room(now)
            {
                conn.count_answers(&mut protocol);
                self.touch(id);
            }
        }
    }

    /// Who may keep what tasks wait for: all when the pool is short, else the connections that have used up their share.
    fn keepers(&mut self) -> Vec<ConnectionId> {
        let waiting: Vec<(ConnectionId, usize)> = self
            .starving
            .iter()
            .take(MAX_FED_TASKS)
            .filter_map(|key| self.tasks.get(*key))
            .map(|task| (task.connection, task.wanted_len()))
            .collect();
        let pool_is_short = waiting.iter().any(|(id, len)| {
            let is_within_share = |conn: &Conn| conn.holdings.is_within_share(&self.pool);
            !Holdings::default().may_begin(&self.pool, *len) || self.connections.get(*id).is_none_or(is_within_share)
        });
        if pool_is_short {
            self.connections.iter_mut().map(|(id, _)| id).collect()
        } else {
            waiting.into_iter().map(|(id, _)| id).collect()
        }
    }
}
