//! One task, from its command to its response or the end of its store's work.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lunette_device::{LogicalUnit, NexusId, TargetDevice, Task};
use lunette_pdu::SerialNumber;
use lunette_reactor::{ConnectionId, Flow};
use lunette_scsi::{Lun, OpCode};
use lunette_session::iscsi_target::{Command, CommandOrder, SessionInfo, TaskTag};

use super::barrier::BarrierKey;
use super::waits::{SlowCommand, Waits};
use crate::core::buffers::{Account, Reservation};

/// The condition for which a task waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The task's place in the task set.
    Order,
    /// A buffer of its own.
    Buffer { len: usize },
    /// A buffer for the command's data.
    DataBuffer { len: usize },
    /// The command's data.
    Data,
    /// The task's store.
    Store,
    /// Work on a thread.
    Work,
    /// The end of other tasks, which gives it its turn.
    Turn,
    /// The end of the tasks that it aborted.
    Aborts,
}

/// A device task and where it belongs.
pub(in crate::core) struct RunningTask {
    pub(super) task: Task,
    pub(super) connection: ConnectionId,
    pub(super) tag: TaskTag,
    order: CommandOrder,
    pub(super) device: Arc<TargetDevice>,
    pub(super) nexus: NexusId,
    pub(super) lun: Lun,
    opcode: OpCode,
    /// From 1, the most urgent, to 15; 0 is none.
    pub(super) priority: u8,
    pub(super) waiting: Waiting,
    /// The beginning of the wait.
    pub(super) waiting_since: Instant,
    pub(super) waits: Waits,
    /// When its command was decoded.
    pub(super) begun: Instant,
    /// Whether the task has ended tasks of others (PREEMPT AND ABORT).
    pub(super) aborted_others: bool,
    /// The buffers that it has been given.
    pub(super) reservation: Reservation,
    /// The rest of an aborted task on which its store still works.
    pub(super) orphan: Option<Box<Orphan>>,
}

/// The facts about an aborted task while its store works on it.
pub(super) struct Orphan {
    /// The session that it belonged to.
    pub(super) session: Option<Arc<SessionInfo>>,
    /// The barriers that wait for the store to be done with it.
    pub(super) barriers: Vec<BarrierKey>,
}

impl RunningTask {
    pub(in crate::core) fn new(
        task: Task,
        connection: ConnectionId,
        command: &Command,
        device: &Arc<TargetDevice>,
        nexus: NexusId,
        account: &Rc<Account>,
        now: Instant,
    ) -> Self {
        Self {
            task,
            connection,
            tag: command.task,
            order: command.order,
            device: Arc::clone(device),
            nexus,
            lun: Lun::decode(command.lun.0),
            opcode: OpCode(command.cdb[0]),
            priority: command.priority,
            waiting: Waiting::Order,
            waiting_since: now,
            waits: Waits { window: command.window_wait, ..Waits::default() },
            begun: now.checked_sub(command.window_wait).unwrap_or(now),
            aborted_others: false,
            reservation: Reservation::new(account),
            orphan: None,
        }
    }

    /// The connection that the task belongs to, and its name there.
    pub(in crate::core) fn address(&self) -> (ConnectionId, TaskTag) {
        (self.connection, self.tag)
    }

    pub(in crate::core) fn lun(&self) -> Lun {
        self.lun
    }

    /// Whether the task was aborted, and only its store still works on it.
    pub(in crate::core) fn is_orphan(&self) -> bool {
        self.orphan.is_some()
    }

    pub(in crate::core) fn is_of_device(&self, device: &Arc<TargetDevice>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    pub(in crate::core) fn is_of_nexus(&self, nexus: NexusId) -> bool {
        self.nexus == nexus
    }

    /// Whether the command came before the one with CmdSN `before`.
    pub(in crate::core) fn is_covered_by(&self, before: SerialNumber) -> bool {
        self.order.is_covered_by(before)
    }

    /// Whether the command was sent to `unit`, by whatever number.
    pub(in crate::core) fn is_for(&self, unit: &Arc<LogicalUnit>) -> bool {
        self.task.is_for(unit)
    }

    /// Whether the task works with `unit`.
    pub(in crate::core) fn uses(&self, unit: &Arc<LogicalUnit>) -> bool {
        self.task.uses(unit)
    }

    pub(in crate::core) fn waits_for_data(&self) -> bool {
        self.waiting == Waiting::Data
    }

    /// Whether the task goes on only when its initiator sends data, or buffers come back.
    pub(in crate::core) fn waits_for_initiator(&self) -> bool {
        matches!(self.waiting, Waiting::Data | Waiting::Buffer { .. } | Waiting::DataBuffer { .. })
    }

    /// Bytes of the buffer that the task waits for.
    pub(super) fn wanted_len(&self) -> usize {
        match self.waiting {
            Waiting::Buffer { len } | Waiting::DataBuffer { len } => len,
            _ => 0,
        }
    }

    /// The report on the task when it has taken that long.
    pub(super) fn slow(&self, took: Duration) -> SlowCommand {
        SlowCommand { lun: self.lun, opcode: self.opcode, took, waits: self.waits }
    }

    /// Notes that the condition for which the task waited has come.
    pub(super) fn waited_until(&mut self, now: Instant) {
        self.waits.add(self.waiting, self.waiting_since, now);
        self.waiting_since = now;
    }

    /// The turns of the task's initiator at the file threads.
    pub(super) fn flow(&self) -> Flow {
        self.reservation.account().flow()
    }
}
