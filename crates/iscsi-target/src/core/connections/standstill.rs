//! Connections that stand still, and those that an earlier process has left.

use std::sync::Arc;

use lunette_handover as handover;
use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::{Connection, Directory, InheritError, SessionKey};
use lunette_session::{Time, Timers};

use super::Connections;

impl Connections {
    /// Reads nothing, sends nothing and calls nothing until [`go_on`](Self::go_on).
    pub(in crate::core) fn stand_still(&mut self, cx: &mut Context<'_>) {
        self.stands_still = true;
        // A parked one has no socket, and to pause it changes nothing.
        for id in self.ids_where(|_| true) {
            if let Some(conn) = self.table.get_mut(id) {
                conn.pause(cx, id);
            }
        }
    }

    /// Whether any session has something to send.
    pub(in crate::core) fn have_output(&self) -> bool {
        self.table.iter().any(|(id, conn)| conn.protocol(id, &self.sessions).is_some_and(Connection::has_output))
    }

    /// All sessions go on with what they have.
    pub(in crate::core) fn go_on(&mut self, now: Time) {
        self.stands_still = false;
        for key in self.sessions_where(|_| true) {
            self.change_session(key, |session| session.go_on(now));
        }
        for id in self.ids_where(|_| true) {
            self.touch(id);
        }
    }

    /// Takes on a session that an earlier process has left, with these connections.
    pub(in crate::core) fn inherit(
        &mut self,
        session: &handover::Session,
        ids: &[ConnectionId],
        directory: &Arc<Directory>,
        timers: Timers,
        now: Time,
    ) -> Result<SessionKey, InheritError> {
        self.sessions.inherit(session, ids, directory, timers, now)
    }
}
