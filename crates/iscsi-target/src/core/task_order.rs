//! Which task of a logical unit begins when: ORDERED and HEAD OF QUEUE tasks (SAM-5 8.6).
//!
//! A task that is held has not been stepped: it holds no buffer and has asked for no data. While all tasks are SIMPLE, nothing
//! is held and nothing is recorded.
//!
//! Each nexus has a task set of its own on each logical unit (TST 001b in the control mode page, SAM-5 8.6), so a task that does
//! not come to its end holds up its own initiator alone.

use std::collections::{BTreeMap, VecDeque};

use lunette_device::{Input, NexusId};
use lunette_scsi::{Lun, OpCode, TaskAttribute};

use super::Core;
use super::running::{RunningTask, TaskKey, Waiting};
use super::task_set::TaskSet;

/// A task set: that of a nexus on a logical unit.
type Place = (NexusId, Lun);

/// The task sets with tasks that are not SIMPLE.
#[derive(Default)]
pub(super) struct TaskSets {
    sets: BTreeMap<Place, TaskSet<TaskKey>>,
    /// Tasks that are held no more.
    ready: VecDeque<TaskKey>,
}

impl TaskSets {
    /// Nothing waits to begin.
    pub(super) fn is_settled(&self) -> bool {
        self.ready.is_empty()
    }
}

fn place_of(task: &RunningTask) -> Place {
    (task.nexus, task.lun)
}

/// Whether a command is dealt with at once whatever its attribute says, as one at the head of the queue that holds up nothing
/// (SPC-4 permits that). An initiator whose other tasks hang finds out about the disk all the same.
fn never_waits(opcode: OpCode) -> bool {
    matches!(opcode, OpCode::INQUIRY | OpCode::REPORT_LUNS | OpCode::REQUEST_SENSE)
}

impl Core {
    /// Begins a task that has come, or holds it.
    pub(super) fn begin_in_order(&mut self, key: TaskKey, attribute: TaskAttribute, opcode: OpCode) {
        if (attribute == TaskAttribute::Simple && self.task_sets.sets.is_empty()) || never_waits(opcode) {
            return self.drive(key, Input::Start);
        }
        let Some(place) = self.tasks.get(key).map(place_of) else { return };
        let is_kept = self.task_sets.sets.contains_key(&place);
        // An ACA task is refused, which needs no order.
        if !is_kept && matches!(attribute, TaskAttribute::Simple | TaskAttribute::Aca) {
            return self.drive(key, Input::Start);
        }
        if !is_kept {
            let mut begun = self.tasks_where(|task| !task.is_orphan() && place_of(task) == place);
            begun.retain(|other| *other != key);
            self.task_sets.sets.insert(place, TaskSet::new(begun));
        }
        if let Some(task) = self.tasks.get_mut(key) {
            task.waiting = Waiting::Order;
        }
        let Some(set) = self.task_sets.sets.get_mut(&place) else { return };
        set.add(key, attribute);
        // Only a task that leaves lets others begin.
        if set.begin().contains(&key) {
            self.drive(key, Input::Start);
        }
    }

    /// A task has ended or was aborted.
    pub(super) fn leave_task_set(&mut self, key: TaskKey, place: Option<Place>) {
        let Some(place) = place else { return };
        let Some(set) = self.task_sets.sets.get_mut(&place) else { return };
        set.remove(key);
        self.task_sets.ready.extend(set.begin());
        if set.is_over() {
            self.task_sets.sets.remove(&place);
        }
    }

    /// Where a task stands, if an order is kept anywhere.
    pub(super) fn place_in_order(&self, key: TaskKey) -> Option<Place> {
        if self.task_sets.sets.is_empty() {
            return None;
        }
        self.tasks.get(key).map(place_of)
    }

    /// Begins what is held no more.
    pub(super) fn begin_ready(&mut self) {
        while let Some(key) = self.task_sets.ready.pop_front() {
            // It may have been aborted since.
            self.drive(key, Input::Start);
        }
    }

    /// A task that is held does not take its data, which may stand in the stream before the data of a task that it waits for.
    /// That would be waiting for ever: it is told to retry (TASK SET FULL).
    pub(super) fn give_up_stalled(&mut self) {
        let held: Vec<TaskKey> = self.task_sets.sets.values().flat_map(TaskSet::held).collect();
        for key in held {
            if self.holds_up_its_data(key) {
                self.give_up(key);
            }
        }
    }
}
