//! Which task of a logical unit begins when: ORDERED and HEAD OF QUEUE tasks (SAM-5 8.6).
//!
//! A task that is held has not been stepped: it holds no buffer and has asked for no data. While all tasks are SIMPLE, nothing
//! is held and nothing is recorded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lunette_device::{Input, NexusId};
use lunette_scsi::{Lun, TaskAttribute};

use super::Core;
use super::running::{RunningTask, TaskKey, Waiting};
use super::task_set::TaskSet;

/// A task set: the address of a device, which its tasks keep alive, the number of a logical unit, and the nexus, where each has
/// its own.
type Place = (usize, Lun, Option<NexusId>);

/// The task sets with tasks that are not SIMPLE.
pub(super) struct TaskSets {
    /// Each nexus has a task set of its own (TST 001b, SAM-5 8.6). One of all nexuses would be one of several cores.
    per_nexus: bool,
    sets: BTreeMap<Place, TaskSet<TaskKey>>,
    /// Tasks that are held no more.
    ready: VecDeque<TaskKey>,
}

impl TaskSets {
    pub(super) fn new(per_nexus: bool) -> Self {
        Self { per_nexus, sets: BTreeMap::new(), ready: VecDeque::new() }
    }

    pub(super) fn are_per_nexus(&self) -> bool {
        self.per_nexus
    }

    fn place_of(&self, task: &RunningTask) -> Place {
        (Arc::as_ptr(&task.device).addr(), task.lun, self.per_nexus.then_some(task.nexus))
    }

    /// Nothing waits to begin.
    pub(super) fn is_settled(&self) -> bool {
        self.ready.is_empty()
    }
}

impl Core {
    /// Begins a task that has come, or holds it.
    pub(super) fn begin_in_order(&mut self, key: TaskKey, attribute: TaskAttribute) {
        if attribute == TaskAttribute::Simple && self.task_sets.sets.is_empty() {
            return self.drive(key, Input::Start);
        }
        let Some(place) = self.tasks.get(key).map(|task| self.task_sets.place_of(task)) else { return };
        let is_kept = self.task_sets.sets.contains_key(&place);
        // An ACA task is refused, which needs no order.
        if !is_kept && matches!(attribute, TaskAttribute::Simple | TaskAttribute::Aca) {
            return self.drive(key, Input::Start);
        }
        if !is_kept {
            let mut begun = self.tasks_where(|task| !task.orphaned && self.task_sets.place_of(task) == place);
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
        self.tasks.get(key).map(|task| self.task_sets.place_of(task))
    }

    /// Begins what is held no more.
    pub(super) fn begin_ready(&mut self) {
        while let Some(key) = self.task_sets.ready.pop_front() {
            // It may have been aborted since.
            self.drive(key, Input::Start);
        }
    }

    /// A task that is held does not take its data, which may stand in the stream before the data of a task that it waits for.
    /// That would be waiting for ever: it is told to come again.
    pub(super) fn give_up_stalled(&mut self) {
        let held: Vec<TaskKey> = self.task_sets.sets.values().flat_map(TaskSet::held).collect();
        for key in held {
            if self.holds_up_its_data(key) {
                self.give_up(key);
            }
        }
    }
}
