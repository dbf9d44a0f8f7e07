//! Task management functions that ask (RFC 7144, SAM-5 chapter 7).

use lunette_device::PendingEvent;
use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_reactor::ConnectionId;
use lunette_session::iscsi_target::TaskManagement;

use super::Core;

impl Core {
    /// Answers QUERY TASK SET or QUERY ASYNCHRONOUS EVENT. They end nothing, so nothing is waited for.
    pub(super) fn answer_query(&mut self, id: ConnectionId, request: &TaskManagement) {
        let Some(conn) = self.connections.get_mut(id) else { return };
        let (Some(device), Some(nexus)) = (&conn.device, &conn.nexus) else { return };
        let pending = device.query_asynchronous_event(request.lun.0, nexus);
        let yes = match (request.function, pending) {
            (_, PendingEvent::UnknownLun) => {
                return self.answer_task_management(id, request.itt, Answer::LUN_DOES_NOT_EXIST);
            }
            (Function::QUERY_ASYNCHRONOUS_EVENT, PendingEvent::UnitAttention(information)) => Some(information),
            (Function::QUERY_ASYNCHRONOUS_EVENT, PendingEvent::Nothing) => None,
            _ => self.has_tasks(id, request).then_some([0; 3]),
        };
        match yes {
            Some(information) => self.succeed(id, request, information),
            None => self.answer_task_management(id, request.itt, Answer::FUNCTION_COMPLETE),
        }
    }

    /// Answers a request that asks: yes.
    pub(super) fn succeed(&mut self, id: ConnectionId, request: &TaskManagement, information: [u8; 3]) {
        if let Some((_, mut protocol)) = self.link(id) {
            protocol.task_management_succeeded(request.itt, information);
            self.touch(id);
        }
    }

    /// Whether the nexus, on any of its connections, has a task on the logical unit (SAM-5 7.11).
    fn has_tasks(&self, id: ConnectionId, request: &TaskManagement) -> bool {
        let Some(session) = self.connections.get(id).and_then(|conn| self.sessions.get(conn.key?)) else {
            return false;
        };
        session.members().any(|id| session.connection(id).is_some_and(|protocol| protocol.has_tasks(request.lun)))
    }
}
