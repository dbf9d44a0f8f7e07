//! What the connections of one session have to do with each other.

use std::sync::Arc;

use lunette_device::Nexus;
use lunette_pdu::{Cid, LogoutResponseCode, LunField, SerialNumber, TaskManagementFunction as Function, Tsih};
use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::{AdmitRequest, CloseReason, Connection, Session, SessionKey, TaskManagement};

use super::Core;
use super::barrier::Behind;

/// The tasks of a session that a task management request covers.
#[derive(Clone, Copy)]
pub(super) struct Covered {
    /// Of that logical unit; `None`: of all.
    lun: Option<LunField>,
    /// Sent before this request.
    before: SerialNumber,
}

impl Core {
    /// The session that a connection belongs to, while it does.
    pub(super) fn session_of(&self, id: ConnectionId) -> Option<&Session<ConnectionId>> {
        let conn = self.connections.get(id).filter(|conn| conn.session.is_some())?;
        self.sessions.get(conn.key?)
    }

    /// The other connections of the session.
    pub(super) fn siblings(&mut self, id: ConnectionId) -> Vec<ConnectionId> {
        let Some(session) = self.session_of(id) else { return Vec::new() };
        session.connections().filter(|other| *other != id).collect()
    }

    /// Commands of connection `id` have made way for those that another one holds.
    pub(super) fn resume_siblings(&mut self, id: ConnectionId, cid: Option<Cid>) {
        let Some(session) = self.session_of(id) else { return };
        let is_meant = |other: &ConnectionId| cid.is_none_or(|cid| session.cid(*other) == Some(cid));
        let waiting: Vec<_> = session.connections().filter(is_meant).collect();
        for other in waiting {
            self.touch(other);
        }
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
        let others = self.sessions.get(session)?.members();
        others.chain(displaced.iter().copied()).find_map(|id| self.connections.get_mut(id)?.nexus.clone())
    }

    /// At recovery level 0 a session does not survive the loss of a connection (RFC 7143 sections 7.14 and 7.1.4.4). After a
    /// logout there is nothing to tell.
    pub(super) fn end_siblings(&mut self, cx: &mut Context<'_>, id: ConnectionId, reason: &CloseReason) {
        let Some(key) = self.connections.get(id).filter(|conn| conn.session.is_some()).and_then(|conn| conn.key) else {
            return;
        };
        let siblings = self.sessions.end(key);
        for other in siblings.into_iter().filter(|other| *other != id) {
            if *reason == CloseReason::Logout || self.connections.is_parked(other) {
                self.cut(cx, other);
            } else if let Some((_, mut protocol)) = self.link(other) {
                protocol.drop_session();
                self.touch(other);
            } else {
                // Its login waits to be answered.
                self.cut(cx, other);
            }
        }
    }

    /// The initiator logs out of a connection of its session, this one or another one. It is told when no store works for the
    /// connection's tasks any more: it may send them again on another one.
    pub(super) fn log_out(&mut self, cx: &mut Context<'_>, id: ConnectionId, cid: Cid) {
        let Some(leaving) = self.session_of(id).and_then(|session| session.find(cid)) else {
            return self.answer_logout(id, LogoutResponseCode::CID_NOT_FOUND);
        };
        let barrier = self.barriers.open(Behind::Logout { connection: id });
        self.terminate_tasks(leaving, Some(barrier));
        if leaving != id {
            self.cut(cx, leaving);
        }
        self.barriers.close(barrier);
        self.touch(id);
    }

    /// The same to go on with its tasks on another connection.
    pub(super) fn log_out_for_recovery(
        &mut self,
        cx: &mut Context<'_>,
        id: ConnectionId,
        cid: Cid,
        received: SerialNumber,
    ) {
        let Some(session) = self.connections.get_mut(id).and_then(|conn| conn.session.clone()) else { return };
        let Some(leaving) = self.session_of(id).and_then(|session| session.find(cid)) else {
            return self.answer_logout(id, LogoutResponseCode::CID_NOT_FOUND);
        };
        let barrier = self.barriers.open(Behind::Logout { connection: id });
        if leaving != id {
            self.detach(cx, leaving, received, Some(barrier));
        } else if session.parameters.time2retain_s == 0 {
            self.terminate_tasks(id, Some(barrier));
        }
        self.barriers.close(barrier);
        self.touch(id);
    }

    pub(super) fn answer_logout(&mut self, id: ConnectionId, response: LogoutResponseCode) {
        if let Some((_, mut protocol)) = self.link(id) {
            protocol.logout_done(response);
            self.touch(id);
        }
    }

    // Task management.

    /// Tasks of other connections that wait for data only to be answered are not answered after a request that covers them.
    pub(super) fn silence_siblings(&mut self, id: ConnectionId, request: &TaskManagement) -> Option<Covered> {
        let before = request.before?;
        let lun = match request.function {
            Function::ABORT_TASK => return None,
            Function::TARGET_WARM_RESET | Function::TARGET_COLD_RESET | Function::I_T_NEXUS_RESET => None,
            _ => Some(request.lun),
        };
        let covered = Covered { lun, before };
        self.silence(id, covered, |_| true);
        Some(covered)
    }

    pub(super) fn silence(&mut self, id: ConnectionId, covered: Covered, concerned: impl Fn(&Connection) -> bool) {
        let Some(key) = self.connections.get(id).and_then(|conn| conn.key) else { return };
        let Some(session) = self.sessions.get_mut(key) else { return };
        let others: Vec<_> = session.members().filter(|other| *other != id).collect();
        for other in others {
            if let Some(mut protocol) = session.connection_mut(other).filter(|protocol| concerned(protocol)) {
                protocol.silence(covered.lun, covered.before);
            }
        }
    }

    // Buffers.

    /// Whether commands of other connections may wait for those of this one, which is not read from, and keep the data of
    /// tasks from being read.
    pub(super) fn keeps_siblings_waiting(&mut self, id: ConnectionId) -> bool {
        self.siblings(id).into_iter().any(|other| self.keeps_data_waiting(other))
    }
}
