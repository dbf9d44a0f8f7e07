//! Task management functions (RFC 7143 section 11.5, SAM-5 chapter 7).

use std::sync::Arc;

use lunette_device::{Nexus, ResetOutcome, TargetDevice};
use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_reactor::ConnectionId;
use lunette_scsi::Lun;
use lunette_session::Time;
use lunette_session::iscsi_target::{TaskManagement, TaskManagementTicket};

use super::Core;
use super::mesh::CoreMessage;
use super::quiesced::OnQuiesced;
use super::tasks::{AbortScope, RunningTask, TaskKey};

impl Core {
    pub(super) fn manage_tasks(&mut self, now: Time, id: ConnectionId, ticket: TaskManagementTicket<ConnectionId>) {
        self.counts.task_management(ticket.request().function);
        match (ticket.request().function, ticket.referenced()) {
            (Function::QUERY_TASK_SET | Function::QUERY_ASYNCHRONOUS_EVENT, _) => self.answer_query(now, id, ticket),
            (Function::ABORT_TASK | Function::TASK_REASSIGN | Function::QUERY_TASK, None) => {
                self.answer_gone(id, ticket);
            }
            _ => self.abort_covered(id, ticket),
        }
        self.touch(id);
    }

    /// A request for a task that is gone. It may be one of those that were aborted before and whose stores still work.
    fn answer_gone(&mut self, id: ConnectionId, ticket: TaskManagementTicket<ConnectionId>) {
        let Some(conn) = self.connections.of_event(id) else { return };
        let (Some(device), Some(nexus)) = (conn.device.clone(), conn.nexus.as_ref().map(|nexus| nexus.id())) else {
            return;
        };
        let barrier = self.barriers.open(OnQuiesced::TaskManagement { connection: id, device, ticket });
        for key in self.tasks.tasks_where(|task| task.is_orphan() && task.is_of_nexus(nexus)) {
            self.abort_task(key, Some(barrier));
        }
        self.barriers.close(barrier);
    }

    /// Aborts what the request covers.
    fn abort_covered(&mut self, id: ConnectionId, ticket: TaskManagementTicket<ConnectionId>) {
        let Some(conn) = self.connections.of_event(id) else { return };
        let (Some(device), Some(nexus)) = (conn.device.clone(), conn.nexus.clone()) else { return };
        let request = *ticket.request();
        tracing::info!(peer = %conn.peer, function = %request.function, "task management");
        let covered = self.covered_tasks(&ticket, &device, &nexus);
        if let Err(refusal) = notify_device(&request, &device, &nexus) {
            self.connections.in_session(id, |session| session.answer(id, ticket, refusal));
            return;
        }
        let affected = match request.function {
            Function::ABORT_TASK => Vec::new(),
            _ => self.affected_by(&covered, Some(id), request.before),
        };
        // An initiator that is told that a task has ended may repeat its work, so the announcement waits for the stores
        // as the answer does.
        let announcement = self.barriers.open(OnQuiesced::TellAffected { issuing: Some(id), affected });
        let barrier =
            self.barriers.open(OnQuiesced::TaskManagement { connection: id, device: Arc::clone(&device), ticket });
        for key in covered {
            for barrier in [announcement, barrier] {
                self.abort_task(key, Some(barrier));
            }
        }
        self.barriers.close(announcement);
        if let Some(scope) = scope_elsewhere(&request, device, &nexus) {
            self.abort_on_others(barrier, &scope);
        }
        self.barriers.close(barrier);
    }

    /// The tasks here that the request ends.
    fn covered_tasks(
        &self,
        ticket: &TaskManagementTicket<ConnectionId>,
        device: &Arc<TargetDevice>,
        nexus: &Nexus,
    ) -> Vec<TaskKey> {
        let request = ticket.request();
        let (lun, unit) = (Lun::decode(request.lun.0), nexus.unit(request.lun.0));
        let is_covered = |task: &RunningTask| match request.function {
            // Each nexus has a task set of its own.
            Function::ABORT_TASK_SET | Function::CLEAR_TASK_SET => task.is_of_nexus(nexus.id()) && task.lun() == lun,
            // Others may know the unit by another number, or through another target.
            Function::LOGICAL_UNIT_RESET => unit.as_ref().is_some_and(|unit| task.is_for(unit)),
            Function::I_T_NEXUS_RESET => task.is_of_nexus(nexus.id()),
            _ => task.is_of_device(device),
        };
        match request.function {
            Function::ABORT_TASK => {
                let key = ticket.referenced().and_then(|(id, tag)| self.connections.get(id)?.tasks.get(tag));
                key.into_iter().collect()
            }
            _ => self.tasks.tasks_where(|task| {
                // What the initiator sent after the request may have come before it, on another connection.
                let is_later = |before| task.is_of_nexus(nexus.id()) && !task.is_covered_by(before);
                is_covered(task) && !request.before.is_some_and(is_later)
            }),
        }
    }

    /// No store works any more for what a request has ended, on any core.
    pub(super) fn aborted(
        &mut self,
        now: Time,
        id: ConnectionId,
        device: Arc<TargetDevice>,
        ticket: TaskManagementTicket<ConnectionId>,
    ) {
        let is_cold_reset = ticket.request().function == Function::TARGET_COLD_RESET;
        match self.connections.get_mut(id).filter(|conn| conn.session.is_some()) {
            Some(conn) if is_cold_reset => conn.target_reset = Some(device),
            Some(_) => {}
            None if is_cold_reset => return self.due_resets.push(device),
            None => return,
        }
        self.connections.in_session(id, |session| session.done(id, ticket, now));
    }

    /// A TARGET COLD RESET is answered.
    pub(super) fn reset_target(&mut self, id: ConnectionId) {
        if let Some(device) = self.connections.get_mut(id).and_then(|conn| conn.target_reset.take()) {
            self.drop_target(Some(id), &device);
        }
    }

    /// RFC 7143 section 11.5.1: TARGET COLD RESET ends all sessions of the target, after its answer.
    /// The connection that asked for it may be gone.
    fn drop_target(&mut self, asked: Option<ConnectionId>, device: &Arc<TargetDevice>) {
        self.drop_sessions(asked, device);
        self.mesh.send_to_others(|| CoreMessage::Reset(Arc::clone(device)));
    }

    /// Ends the resets whose connection was gone before the answer.
    pub(super) fn end_reset_targets(&mut self) {
        while let Some(device) = self.due_resets.pop() {
            self.drop_target(None, &device);
        }
    }

    /// Ends all sessions of a target here. One of their connections may have asked for it.
    pub(super) fn drop_sessions(&mut self, asked: Option<ConnectionId>, device: &Arc<TargetDevice>) {
        for id in self.connections.ids_where(|conn| conn.is_of(device)) {
            self.connections.in_session(id, |session| session.reset(asked));
        }
    }
}

/// Lets the device establish its unit attentions, or says why the function cannot be carried out.
fn notify_device(request: &TaskManagement, device: &TargetDevice, nexus: &Nexus) -> Result<(), Answer> {
    let at_lun = |is_there: bool| if is_there { Ok(()) } else { Err(Answer::LUN_DOES_NOT_EXIST) };
    match request.function {
        Function::CLEAR_TASK_SET | Function::ABORT_TASK_SET => at_lun(nexus.sees(request.lun.0)),
        Function::LOGICAL_UNIT_RESET => match device.reset_unit(request.lun.0, nexus) {
            ResetOutcome::Done => Ok(()),
            ResetOutcome::UnknownLun => Err(Answer::LUN_DOES_NOT_EXIST),
            ResetOutcome::NotAuthorized => Err(Answer::AUTHORIZATION_FAILED),
        },
        // RFC 7143 section 11.5.1: subject to access controls.
        Function::TARGET_WARM_RESET | Function::TARGET_COLD_RESET if !nexus.may_reset_target() => {
            Err(Answer::AUTHORIZATION_FAILED)
        }
        Function::TARGET_WARM_RESET | Function::TARGET_COLD_RESET => {
            device.reset_target();
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The tasks that a reset ends on other cores.
fn scope_elsewhere(request: &TaskManagement, device: Arc<TargetDevice>, nexus: &Nexus) -> Option<AbortScope> {
    match request.function {
        Function::LOGICAL_UNIT_RESET => nexus.unit(request.lun.0).map(AbortScope::Unit),
        Function::TARGET_WARM_RESET | Function::TARGET_COLD_RESET => Some(AbortScope::Target(device)),
        _ => None,
    }
}
