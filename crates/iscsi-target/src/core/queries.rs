//! Task management functions that ask (RFC 7144, SAM-5 chapter 7).

use lunette_device::PendingEvent;
use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_reactor::ConnectionId;
use lunette_session::Time;
use lunette_session::iscsi_target::TaskManagementTicket;

use super::Core;

impl Core {
    /// Answers QUERY TASK SET or QUERY ASYNCHRONOUS EVENT. They end nothing, so nothing is waited for.
    pub(super) fn answer_query(&mut self, now: Time, id: ConnectionId, ticket: TaskManagementTicket<ConnectionId>) {
        let request = *ticket.request();
        let Some(conn) = self.connections.of_event(id) else { return };
        let (Some(device), Some(nexus)) = (&conn.device, &conn.nexus) else { return };
        let pending = device.query_asynchronous_event(request.lun.0, nexus);
        self.connections.in_session(id, |session| match (request.function, pending) {
            (_, PendingEvent::UnknownLun) => session.answer(id, ticket, Answer::LUN_DOES_NOT_EXIST),
            (Function::QUERY_ASYNCHRONOUS_EVENT, PendingEvent::UnitAttention(information)) => {
                session.succeed(id, ticket, information);
            }
            _ => session.done(id, ticket, now),
        });
    }
}
