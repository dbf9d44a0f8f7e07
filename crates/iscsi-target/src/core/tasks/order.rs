//! Which task of a logical unit begins when: ORDERED and HEAD OF QUEUE tasks (SAM-5 8.6).
//!
//! A task that is held has not been stepped: it holds no buffer and has asked for no data. While all tasks are SIMPLE,
//! nothing is held and nothing is recorded.
//!
//! Each nexus has a task set of its own on each logical unit (TST 001b in the control mode page, SAM-5 8.6), so a task
//! that does not come to its end holds up its own initiator alone.

use std::collections::{BTreeMap, VecDeque};

use lunette_device::NexusId;
use lunette_reactor::Slab;
use lunette_scsi::{Lun, OpCode, TaskAttribute};

use super::TaskKey;
use super::running::RunningTask;
use super::task_set::TaskSet;

/// The nexus and the logical unit of a task set.
type TaskSetId = (NexusId, Lun);

/// The task sets of one core that have tasks which are not SIMPLE.
#[derive(Default)]
pub(super) struct TaskSets {
    sets: BTreeMap<TaskSetId, TaskSet<TaskKey>>,
    /// Tasks that are held no more.
    ready: VecDeque<TaskKey>,
}

fn set_of(task: &RunningTask) -> TaskSetId {
    (task.nexus, task.lun)
}

/// Whether a command is dealt with at once whatever its attribute says, as one at the head of the queue that holds up
/// nothing (SPC-4 permits that). An initiator whose other tasks hang finds out about the disk all the same.
fn never_waits(opcode: OpCode) -> bool {
    matches!(opcode, OpCode::INQUIRY | OpCode::REPORT_LUNS | OpCode::REQUEST_SENSE)
}

impl TaskSets {
    /// Nothing waits to begin.
    pub(super) fn is_settled(&self) -> bool {
        self.ready.is_empty()
    }

    /// Whether all tasks are SIMPLE.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Takes in the youngest of all `tasks`. False when it is held.
    pub(super) fn enter(
        &mut self,
        tasks: &Slab<RunningTask>,
        key: TaskKey,
        attribute: TaskAttribute,
        opcode: OpCode,
    ) -> bool {
        if (attribute == TaskAttribute::Simple && self.sets.is_empty()) || never_waits(opcode) {
            return true;
        }
        let Some(id) = tasks.get(key).map(set_of) else {
            debug_assert!(false, "a task is ordered that is not there");
            return true;
        };
        let is_kept = self.sets.contains_key(&id);
        // An ACA task is refused, which needs no order.
        if !is_kept && matches!(attribute, TaskAttribute::Simple | TaskAttribute::Aca) {
            return true;
        }
        let set = self.sets.entry(id).or_insert_with(|| {
            let begun = tasks.iter().filter(|(_, task)| !task.is_orphan() && set_of(task) == id);
            TaskSet::new(begun.map(|(key, _)| key).filter(|other| *other != key))
        });
        set.add(key, attribute);
        // Only a task that leaves lets others begin.
        set.begin().contains(&key)
    }

    /// A task ends, or is aborted.
    #[inline]
    pub(super) fn leave(&mut self, tasks: &Slab<RunningTask>, key: TaskKey) {
        if !self.sets.is_empty()
            && let Some(task) = tasks.get(key)
        {
            self.leave_set(set_of(task), key);
        }
    }

    fn leave_set(&mut self, id: TaskSetId, key: TaskKey) {
        let Some(set) = self.sets.get_mut(&id) else { return };
        set.remove(key);
        self.ready.extend(set.begin());
        if set.is_over() {
            self.sets.remove(&id);
        }
    }

    /// The next task that is held no more. It may have been aborted since.
    pub(super) fn next_ready(&mut self) -> Option<TaskKey> {
        self.ready.pop_front()
    }

    /// The tasks that are held.
    pub(super) fn held(&self) -> impl Iterator<Item = TaskKey> {
        self.sets.values().flat_map(TaskSet::held)
    }
}
