//! Task management functions (RFC 7143 section 11.5, SAM-5 chapter 7).

use std::sync::Arc;

use lunette_device::{NexusId, TargetDevice};
use lunette_pdu::{InitiatorTaskTag, TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_reactor::{ConnectionId, Context};
use lunette_scsi::Lun;
use lunette_session::target::TaskManagement;

use super::Core;
use super::aborts::Doomed;
use super::barrier::Behind;
use super::fences::{Managed, Remains, Then};
use super::orders::Order;

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
        let Some(conn) = self.connections.get_mut(id) else { return };
        let (Some(device), Some(nexus)) = (conn.device.clone(), conn.nexus.as_ref().map(|nexus| nexus.id())) else {
            return;
        };
        tracing::info!(peer = %conn.peer, function = %request.function, "task management");
        if matches!(request.function, Function::QUERY_TASK_SET | Function::QUERY_ASYNCHRONOUS_EVENT) {
            return self.answer_query(id, request);
        }
        let referenced = request.referenced.and_then(|tag| conn.tasks.get(tag));
        let lun = Lun::decode(request.lun.0);
        let ours = |task: &super::RunningTask| Arc::ptr_eq(&task.device, &device);
        // What the initiator sent after the request may have come before it, on another connection.
        let covered = |task: &super::RunningTask| {
            task.nexus != nexus || request.before.is_none_or(|before| task.order.is_covered_by(before))
        };
        let own_task_set = request.function == Function::ABORT_TASK_SET
            || request.function == Function::CLEAR_TASK_SET && self.task_sets.are_per_nexus();
        let doomed: Vec<_> = match request.function {
            Function::ABORT_TASK => referenced.into_iter().collect(),
            _ if own_task_set => {
                self.tasks_where(|task| ours(task) && task.lun == lun && task.nexus == nexus && covered(task))
            }
            Function::CLEAR_TASK_SET | Function::LOGICAL_UNIT_RESET => {
                self.tasks_where(|task| ours(task) && task.lun == lun && covered(task))
            }
            Function::I_T_NEXUS_RESET => self.tasks_where(|task| ours(task) && task.nexus == nexus && covered(task)),
            _ => self.tasks_where(|task| ours(task) && covered(task)),
        };
        let others: Vec<NexusId> = doomed
            .iter()
            .filter_map(|key| self.tasks.get(*key))
            .filter(|task| task.nexus != nexus && !task.orphaned)
            .map(|task| task.nexus)
            .collect();
        if !self.notify_device(id, request, &device, &others) {
            return self.answer_task_management(id, request.itt, Answer::LUN_DOES_NOT_EXIST);
        }
        let elsewhere = match request.function {
            Function::LOGICAL_UNIT_RESET => Some(Doomed::OfUnit { device: Arc::clone(&device), lun }),
            Function::TARGET_WARM_RESET | Function::TARGET_COLD_RESET => Some(Doomed::OfTarget(Arc::clone(&device))),
            _ => None,
        };
        let covers = self.silence_siblings(id, request);
        let (remains, then) = match request.function {
            Function::TARGET_COLD_RESET => (Remains::Nothing, Then::DropTarget(device)),
            Function::I_T_NEXUS_RESET => (Remains::Nothing, Then::DropSession),
            _ => (remains(request), Then::GoOn),
        };
        let managed = Managed { itt: request.itt, response: request.done(), covers, remains, then };
        let affected = if request.function == Function::ABORT_TASK {
            Vec::new()
        } else {
            self.affected_by(&doomed, Some(id), request.before)
        };
        // Who is told that a task has ended may do its work anew, so the news wait for the stores as the answer does.
        let news = self.barriers.open(Behind::News { issuing: Some(id), affected });
        let barrier = self.barriers.open(Behind::TaskManagement { connection: id, managed });
        for key in doomed {
            for barrier in [news, barrier] {
                self.abort_task(key, Some(barrier));
            }
        }
        self.barriers.close(news);
        if let Some(elsewhere) = elsewhere {
            self.abort_on_others(barrier, &elsewhere);
        }
        self.barriers.close(barrier);
        self.touch(id);
    }

    /// Lets the device establish its unit attentions. False when there is no such logical unit.
    fn notify_device(
        &mut self,
        id: ConnectionId,
        request: &TaskManagement,
        device: &TargetDevice,
        others: &[NexusId],
    ) -> bool {
        let Some(nexus) = self.connections.get_mut(id).and_then(|conn| conn.nexus.clone()) else { return false };
        let outcome = match request.function {
            Function::CLEAR_TASK_SET => device.clear_task_set(request.lun.0, &nexus, others),
            Function::ABORT_TASK_SET => device.clear_task_set(request.lun.0, &nexus, &[]),
            Function::LOGICAL_UNIT_RESET => device.reset_unit(request.lun.0, &nexus),
            Function::TARGET_WARM_RESET | Function::TARGET_COLD_RESET => {
                device.reset_target();
                return true;
            }
            _ => return true,
        };
        outcome == lunette_device::ResetOutcome::Done
    }

    pub(super) fn answer_task_management(&mut self, id: ConnectionId, itt: InitiatorTaskTag, answer: Answer) {
        if let Some(conn) = self.connections.get_mut(id) {
            conn.protocol.task_management_done(itt, answer);
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
        let Some(session) = self.connections.get_mut(id).and_then(|conn| conn.session.clone()) else { return };
        let all = self.sessions.members(session.tsih).collect();
        self.drop_connections(cx, Some(id), all);
    }

    /// Drops connections after a reset that one of them has asked for: that one when its answer is sent.
    fn drop_connections(&mut self, cx: &mut Context<'_>, asked: Option<ConnectionId>, all: Vec<ConnectionId>) {
        for other in all {
            if Some(other) == asked && !self.connections.is_parked(other) {
                self.end_session_part(other);
                cx.send(other);
                cx.close_after_send(other);
            } else if let Some(conn) = self.connections.get_mut(other).filter(|conn| !conn.protocol.is_suspended()) {
                conn.protocol.drop_session();
                self.touch(other);
            } else {
                self.cut(cx, other);
            }
        }
    }
}

/// The data that the answer waits for.
fn remains(request: &TaskManagement) -> Remains {
    match request.function {
        Function::ABORT_TASK => Remains::Nothing,
        Function::TARGET_WARM_RESET => Remains::OfAll,
        _ => Remains::OfUnit(request.lun),
    }
}
