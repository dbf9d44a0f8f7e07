//! The relations between the connections of one session.

use std::sync::Arc;

use lunette_device::Nexus;
use lunette_pdu::Tsih;
use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::{AdmitRequest, LogoutTicket, Session, SessionKey};

use super::Core;
use super::quiesced::OnQuiesced;

impl Core {
    /// The session that a connection belongs to, while it does.
    pub(super) fn session_of(&self, id: ConnectionId) -> Option<&Session<ConnectionId>> {
        let conn = self.connections.get(id).filter(|conn| conn.session.is_some())?;
        self.connections.session(conn.key?)
    }

    /// The nexus that a login joins: that of any connection of its session which is still here, also of one that this
    /// login replaces. A new session has a new one.
    pub(super) fn joined_nexus(&self, request: &AdmitRequest, session: SessionKey) -> Option<Arc<Nexus>> {
        if request.tsih == Tsih::NEW { None } else { self.connections.nexus_of(session) }
    }

    /// The initiator logs out of a connection of its session, this one or another one. It is told when no store works
    /// for the connection's tasks any more: it may send them again on another one.
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

    /// Whether commands of other connections may wait for those of this one, which is not read from, and keep the data
    /// of tasks from being read.
    pub(super) fn keeps_siblings_waiting(&self, id: ConnectionId) -> bool {
        self.session_of(id)
            .is_some_and(|session| session.connections().any(|other| other != id && self.keeps_data_waiting(other)))
    }
}
