//! What the connections of one session have to do with each other.

use std::sync::Arc;

use lunette_device::Nexus;
use lunette_pdu::Tsih;
use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::{AdmitRequest, CloseReason, LogoutTicket, Session, SessionKey};

use super::Core;
use super::quiesced::OnQuiesced;

impl Core {
    /// The session that a connection belongs to, while it does.
    pub(super) fn session_of(&self, id: ConnectionId) -> Option<&Session<ConnectionId>> {
        let conn = self.connections.get(id).filter(|conn| conn.session.is_some())?;
        self.connections.session(conn.key?)
    }

    /// The other connections of the session.
    pub(super) fn siblings(&mut self, id: ConnectionId) -> Vec<ConnectionId> {
        let Some(session) = self.session_of(id) else { return Vec::new() };
        session.connections().filter(|other| *other != id).collect()
    }

    /// The nexus that a login joins: it outlives the connection that this one replaces. A new session has a new one.
    pub(super) fn joined_nexus(
        &mut self,
        request: &AdmitRequest,
        session: SessionKey,
        displaced: &[ConnectionId],
    ) -> Option<Arc<Nexus>> {
        if request.tsih == Tsih::NEW {
            return None;
        }
        let others = self.connections.session(session)?.members();
        others.chain(displaced.iter().copied()).find_map(|id| self.connections.get(id)?.nexus.clone())
    }

    /// At recovery level 0 a session does not survive the loss of a connection (RFC 7143 sections 7.14 and 7.1.4.4). After a
    /// logout there is nothing to tell.
    pub(super) fn end_siblings(&mut self, cx: &mut Context<'_>, id: ConnectionId, reason: &CloseReason) {
        let Some(key) = self.connections.get(id).filter(|conn| conn.session.is_some()).and_then(|conn| conn.key) else {
            return;
        };
        let siblings = self.connections.end_session(key);
        for other in siblings.into_iter().filter(|other| *other != id) {
            if *reason == CloseReason::Logout || self.connections.is_parked(other) {
                self.close_now(cx, other);
            } else if let Some((_, mut protocol)) = self.connections.link(other) {
                protocol.drop_session();
                self.touch(other);
            } else {
                // Its login waits to be answered.
                self.close_now(cx, other);
            }
        }
    }

    /// The initiator logs out of a connection of its session, this one or another one. It is told when no store works for the
    /// connection's tasks any more: it may send them again on another one.
    pub(super) fn log_out(
        &mut self,
        cx: &mut Context<'_>,
        id: ConnectionId,
        leaving: ConnectionId,
        ticket: LogoutTicket,
    ) {
        let barrier = self.barriers.open(OnQuiesced::Logout { connection: id, ticket });
        self.terminate_tasks(leaving, Some(barrier));
        if leaving != id {
            self.close_now(cx, leaving);
        }
        self.barriers.close(barrier);
        self.touch(id);
    }

    // Buffers.

    /// Whether commands of other connections may wait for those of this one, which is not read from, and keep the data of
    /// tasks from being read.
    pub(super) fn keeps_siblings_waiting(&mut self, id: ConnectionId) -> bool {
        self.siblings(id).into_iter().any(|other| self.keeps_data_waiting(other))
    }
}
