//! Task management functions (RFC 7143 section 11.5, SAM-5 chapter 7).

use std::sync::Arc;

use lunette_device::{Nexus, NexusId, ResetOutcome, TargetDevice};
use lunette_pdu::{InitiatorTaskTag, TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_reactor::{ConnectionId, Context};
use lunette_scsi::Lun;
use lunette_session::iscsi_target::TaskManagement;

use super::Core;
use super::aborts::Doomed;
use super::barrier::Behind;
use super::fences::{Managed, Remains, Then};
use super::orders::Order;
use super::running::TaskKey;

impl Core {
    pub(super) fn manage_tasks(&mut self, id: ConnectionId, request: &TaskManagement) {
        match (request.function, request.referenced) {
            (Function::TASK_REASSIGN, _) => self.reassign(id, request),
            (Function::ABORT_TASK, None) => self.abort_elsewhere(id, request),
            (Function::QUERY_TASK, _) => self.query_elsewhere(id, request),
            _ => self.abort_covered(id, request),
        }
        self.let_go_of_empty(id);
    }

    /// Aborts what the request covers.
    fn abort_covered(&mut self, id: ConnectionId, request: &TaskManagement) {
        let Some(conn) = self.connections.get(id) else { return };
        let (Some(device), Some(nexus)) = (conn.device.clone(), conn.nexus.clone()) else { return };
        tracing::info!(peer = %conn.peer, function = %request.function, "task management");
        if matches!(request.function, Function::QUERY_TASK_SET | Function::QUERY_ASYNCHRONOUS_EVENT) {
            return self.answer_query(id, request);
        }
        let covered = self.covered_tasks(id, request, &device, nexus.id());
        if !notify_device(request, &device, &nexus) {
            return self.answer_task_management(id, request.itt, Answer::LUN_DOES_NOT_EXIST);
        }
        let covers = self.silence_siblings(id, request);
        let (remains, then) = (remains(request), then(request.function, &device));
        let managed = Managed { itt: request.itt, response: request.done(), covers, remains, then };
        let affected = match request.function {
            Function::ABORT_TASK => Vec::new(),
            _ => self.affected_by(&covered, Some(id), request.before),
        };
        // Who is told that a task has ended may do its work anew, so the news wait for the stores as the answer does.
        let news = self.barriers.open(Behind::News { issuing: Some(id), affected });
        let barrier = self.barriers.open(Behind::TaskManagement { connection: id, managed });
        for key in covered {
            for barrier in [news, barrier] {
                self.abort_task(key, Some(barrier));
            }
        }
        self.barriers.close(news);
        if let Some(doomed) = doomed_elsewhere(request, device) {
            self.abort_on_others(barrier, &doomed);
        }
        self.barriers.close(barrier);
        self.touch(id);
    }

    /// The tasks here that the request ends.
    fn covered_tasks(
        &self,
        id: ConnectionId,
        request: &TaskManagement,
        device: &Arc<TargetDevice>,
        nexus: NexusId,
    ) -> Vec<TaskKey> {
        let (of_unit, of_nexus) = match request.function {
            Function::ABORT_TASK => {
                let key = request.referenced.and_then(|tag| self.connections.get(id)?.tasks.get(tag));
                return key.into_iter().collect();
            }
            // Each nexus has a task set of its own.
            Function::ABORT_TASK_SET | Function::CLEAR_TASK_SET => (true, true),
            Function::LOGICAL_UNIT_RESET => (true, false),
            Function::I_T_NEXUS_RESET => (false, true),
            _ => (false, false),
        };
        let lun = Lun::decode(request.lun.0);
        self.tasks_where(|task| {
            let own = task.nexus == nexus;
            Arc::ptr_eq(&task.device, device)
                && (!of_unit || task.lun == lun)
                && (!of_nexus || own)
                // What the initiator sent after the request may have come before it, on another connection.
                && (!own || request.before.is_none_or(|before| task.order.is_covered_by(before)))
        })
    }

    pub(super) fn answer_task_management(&mut self, id: ConnectionId, itt: InitiatorTaskTag, answer: Answer) {
        if let Some((_, mut protocol)) = self.link(id) {
            protocol.task_management_done(itt, answer);
            self.touch(id);
        }
    }

    /// RFC 7143 section 11.5.1: TARGET COLD RESET ends all sessions of the target, after its answer.
    /// The connection that asked for it may be gone.
    pub(super) fn drop_target(&mut self, cx: &mut Context<'_>, id: ConnectionId, device: &Arc<TargetDevice>) {
        self.drop_sessions(cx, Some(id), device);
        for core in self.post.others() {
            self.post.send(core, Order::Reset(Arc::clone(device)));
        }
    }

    /// Ends all sessions of a target here. One of their connections may have asked for it.
    pub(super) fn drop_sessions(
        &mut self,
        cx: &mut Context<'_>,
        asked: Option<ConnectionId>,
        device: &Arc<TargetDevice>,
    ) {
        let reset = self.connections.iter_mut().filter(|(_, conn)| conn.is_of(device)).map(|(id, _)| id).collect();
        self.drop_connections(cx, asked, reset);
    }

    /// RFC 7144 section 6.3: I_T NEXUS RESET drops all connections of the session, after its answer, and nothing waits to be
    /// recovered. The device hears of the loss of the nexus when it goes with them.
    pub(super) fn drop_session(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        let Some(session) = self.connections.get(id).and_then(|conn| self.sessions.get(conn.key?)) else { return };
        let all = session.members().collect();
        self.drop_connections(cx, Some(id), all);
    }

    /// Drops connections after a reset that one of them has asked for: that one when its answer is sent.
    fn drop_connections(&mut self, cx: &mut Context<'_>, asked: Option<ConnectionId>, all: Vec<ConnectionId>) {
        for other in all {
            if Some(other) == asked && !self.connections.is_parked(other) {
                self.end_session_part(other);
                cx.send(other);
                cx.close_after_send(other);
            } else if let Some((_, mut protocol)) = self.link(other).filter(|(_, protocol)| !protocol.is_suspended()) {
                protocol.drop_session();
                self.touch(other);
            } else {
                self.cut(cx, other);
            }
        }
    }
}

/// Lets the device establish its unit attentions. False when there is no such logical unit.
fn notify_device(request: &TaskManagement, device: &TargetDevice, nexus: &Nexus) -> bool {
    match request.function {
        Function::CLEAR_TASK_SET | Function::ABORT_TASK_SET => nexus.sees(request.lun.0),
        Function::LOGICAL_UNIT_RESET => device.reset_unit(request.lun.0, nexus) == ResetOutcome::Done,
        Function::TARGET_WARM_RESET | Function::TARGET_COLD_RESET => {
            device.reset_target();
            true
        }
        _ => true,
    }
}

/// What a reset ends on other cores.
fn doomed_elsewhere(request: &TaskManagement, device: Arc<TargetDevice>) -> Option<Doomed> {
    match request.function {
        Function::LOGICAL_UNIT_RESET => Some(Doomed::OfUnit { device, lun: Lun::decode(request.lun.0) }),
        Function::TARGET_WARM_RESET | Function::TARGET_COLD_RESET => Some(Doomed::OfTarget(device)),
        _ => None,
    }
}

/// The data that the answer waits for.
fn remains(request: &TaskManagement) -> Remains {
    match request.function {
        Function::ABORT_TASK | Function::TARGET_COLD_RESET | Function::I_T_NEXUS_RESET => Remains::Nothing,
        Function::TARGET_WARM_RESET => Remains::OfAll,
        _ => Remains::OfUnit(request.lun),
    }
}

/// What follows the answer.
fn then(function: Function, device: &Arc<TargetDevice>) -> Then {
    match function {
        Function::TARGET_COLD_RESET => Then::DropTarget(Arc::clone(device)),
        Function::I_T_NEXUS_RESET => Then::DropSession,
        _ => Then::GoOn,
    }
}
