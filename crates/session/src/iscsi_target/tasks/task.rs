//! The tasks of one connection, found by slot and by initiator task tag.

mod by_itt;

use lunette_buffer::Buffer;
use lunette_pdu::{InitiatorTaskTag, LunField, TargetTransferTag};

use self::by_itt::ByItt;
use super::data_out::{Collector, Sequences};
use crate::iscsi_target::event::{CommandOrder, Response, TaskTag};
use crate::limits::{MAX_COMMAND_WINDOW, MAX_DRAINING_TASKS, MAX_IMMEDIATE_TASKS};

/// The condition for which a task waits.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The driver has not said whether it wants data.
    Undecided,
    /// The task waits for its data.
    Collecting,
    /// The device.
    Running,
    /// The task has ended for the device; data that was announced or asked for is still under way. The response, if
    /// there is one, goes out when the last of it has come.
    Draining(Option<Response>),
}

/// One task.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) itt: InitiatorTaskTag,
    pub(crate) lun: LunField,
    pub(crate) order: CommandOrder,
    pub(crate) data_out_len: u32,
    pub(crate) data_in_len: u32,
    pub(crate) bidirectional: bool,
    pub(crate) data: Collector,
    pub(crate) phase: Phase,
    /// Whether it waited for data at the last check of progress.
    pub(crate) has_waited: bool,
    /// PDUs that were queued when its last R2T was: the initiator knows of it when they have left.
    pub(crate) asked_at_pdu: u64,
    /// Whether it has ended, and its response waits for the initiator's acknowledgements.
    pub(crate) is_fenced: bool,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    task: Option<Task>,
    /// The lower half of the next transfer tag. It goes on with the next task, so that late data finds no tag of that
    /// one.
    next_ttt: u16,
    /// Empty: the memory of the last task's sequences, for the next.
    sequences: Sequences,
}

/// A slab with generations, and an index by initiator task tag.
#[derive(Default)]
pub(crate) struct TaskTable {
    slots: Vec<Slot>,
    free: Vec<u16>,
    by_itt: ByItt,
    /// Tasks that drain without a response.
    silent: usize,
}

/// Window, immediate commands, and what drains.
const MAX_TASKS: usize = MAX_COMMAND_WINDOW as usize + MAX_IMMEDIATE_TASKS as usize + MAX_DRAINING_TASKS;
const _: () = assert!(MAX_TASKS < u16::MAX as usize, "a slot fits a target transfer tag and leaves the reserved one");

impl TaskTable {
    /// Adds a task. Its tag must be new to the table. `None` when the table is full.
    pub(crate) fn insert(&mut self, mut task: Task) -> Option<TaskTag> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < MAX_TASKS => {
                self.slots.push(Slot::default());
                (self.slots.len() - 1) as u16
            }
            None => return None,
        };
        let entry = &mut self.slots[usize::from(slot)];
        let tag = TaskTag { slot, generation: entry.generation };
        self.by_itt.insert(task.itt, slot);
        task.data.use_memory(&mut entry.sequences);
        entry.task = Some(task);
        Some(tag)
    }

    pub(crate) fn find(&self, itt: InitiatorTaskTag) -> Option<TaskTag> {
        let slot = self.by_itt.find(itt)?;
        Some(TaskTag { slot, generation: self.slots[usize::from(slot)].generation })
    }

    /// The task that asked for data under this transfer tag.
    pub(crate) fn find_by_ttt(&self, ttt: TargetTransferTag) -> Option<TaskTag> {
        let slot = (ttt.0 >> 16) as u16;
        let entry = self.slots.get(usize::from(slot))?;
        entry.task.as_ref().filter(|task| task.data.solicits(ttt))?;
        Some(TaskTag { slot, generation: entry.generation })
    }

    pub(crate) fn get(&self, tag: TaskTag) -> Option<&Task> {
        self.slots.get(usize::from(tag.slot)).filter(|slot| slot.generation == tag.generation)?.task.as_ref()
    }

    pub(crate) fn get_mut(&mut self, tag: TaskTag) -> Option<&mut Task> {
        self.slots.get_mut(usize::from(tag.slot)).filter(|slot| slot.generation == tag.generation)?.task.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Task> {
        self.slots.iter().filter_map(|slot| slot.task.as_ref())
    }

    /// A transfer tag for an R2T of this task, which exists: the slot, and a number that does not come again soon.
    pub(crate) fn next_ttt(&mut self, tag: TaskTag) -> TargetTransferTag {
        let next = &mut self.slots[usize::from(tag.slot)].next_ttt;
        let number = *next;
        *next = number.wrapping_add(1);
        TargetTransferTag(u32::from(tag.slot) << 16 | u32::from(number))
    }

    /// The task has ended for the device. It stays, without its data, as long as PDUs for it are under way. True when
    /// it was alive until now.
    pub(crate) fn end(&mut self, tag: TaskTag, response: Option<Response>) -> bool {
        let Some(task) = self.get_mut(tag) else { return false };
        if matches!(task.phase, Phase::Draining(_)) {
            return false;
        }
        task.data.discard();
        if !task.data.open() {
            self.remove(tag);
            return true;
        }
        let silent = response.is_none();
        task.phase = Phase::Draining(response);
        if silent {
            self.silent += 1;
            self.bound_silent();
        }
        true
    }

    /// Drops the responses of ended tasks that wait for the rest of their data. Gives, for each, whether it was
    /// immediate.
    pub(crate) fn silence(&mut self, concerned: impl Fn(&Task) -> bool) -> Vec<bool> {
        let tasks = self.slots.iter_mut().filter_map(|slot| slot.task.as_mut());
        let waiting = tasks.filter(|task| matches!(task.phase, Phase::Draining(Some(_))) && concerned(task));
        let silenced: Vec<bool> = waiting
            .map(|task| {
                task.phase = Phase::Draining(None);
                task.order.immediate
            })
            .collect();
        for _ in &silenced {
            self.silent += 1;
            self.bound_silent();
        }
        silenced
    }

    /// No data comes any more, and what was `arriving` did not arrive whole. Tasks that waited for it only are gone.
    pub(crate) fn interrupt(&mut self, arriving: Option<(TaskTag, u32, u32)>) {
        if let Some((tag, offset, len)) = arriving
            && let Some(task) = self.get_mut(tag)
        {
            task.data.interrupt_within(offset, len);
        }
        for slot in &mut self.slots {
            if let Some(task) = slot.task.as_mut() {
                task.data.interrupt();
            }
        }
        for tag in self.tags_where(Task::is_silent) {
            self.remove(tag);
        }
    }

    /// The tasks that `concerned` holds for.
    pub(crate) fn tags_where(&self, concerned: impl Fn(&Task) -> bool) -> Vec<TaskTag> {
        let tag = |(at, slot): (usize, &Slot)| {
            slot.task.as_ref().filter(|task| concerned(task))?;
            Some(TaskTag { slot: at as u16, generation: slot.generation })
        };
        self.slots.iter().enumerate().filter_map(tag).collect()
    }

    /// Bytes of the pool that answers which wait keep.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.slots.iter().filter_map(|slot| slot.task.as_ref()?.pooled_bytes()).sum()
    }

    /// Takes a task out.
    pub(crate) fn remove(&mut self, tag: TaskTag) -> Option<Task> {
        self.release(tag)?.task.take()
    }

    /// Forgets a task where it is.
    pub(crate) fn forget(&mut self, tag: TaskTag) {
        if let Some(entry) = self.release(tag)
            && let Some(task) = &mut entry.task
        {
            task.data.leave_memory(&mut entry.sequences);
            entry.task = None;
        }
    }

    /// Makes the place of a task free: it is still there, and must be gone next.
    fn release(&mut self, tag: TaskTag) -> Option<&mut Slot> {
        let entry = self.slots.get_mut(usize::from(tag.slot)).filter(|slot| slot.generation == tag.generation)?;
        let task = entry.task.as_ref()?;
        self.by_itt.remove(task.itt, tag.slot);
        self.silent -= usize::from(task.is_silent());
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(tag.slot);
        Some(entry)
    }

    /// Data for a task that we have forgotten is dropped without an answer, so forgetting one early does no harm.
    fn bound_silent(&mut self) {
        if self.silent <= MAX_DRAINING_TASKS {
            return;
        }
        let any = self.slots.iter().position(|slot| slot.task.as_ref().is_some_and(Task::is_silent));
        if let Some(slot) = any {
            let generation = self.slots[slot].generation;
            self.remove(TaskTag { slot: slot as u16, generation });
        }
    }
}

impl Task {
    /// Whether the driver has yet to say where this task's data goes.
    pub(crate) fn is_undecided(&self) -> bool {
        matches!(self.phase, Phase::Undecided)
    }

    /// Whether it only waits for data that is dropped, and has nothing more to say.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.phase, Phase::Draining(None))
    }

    /// Bytes of the pool that its answer keeps, when it has ended and the answer waits.
    pub(crate) fn pooled_bytes(&self) -> Option<usize> {
        match &self.phase {
            Phase::Draining(Some(response)) => response.data_in.pooled_bytes(),
            _ => None,
        }
    }

    /// All data is in: the task runs.
    pub(crate) fn start_running(&mut self) -> Option<Buffer> {
        if !matches!(self.phase, Phase::Collecting) {
            return None;
        }
        let buffer = self.data.take_complete()?;
        self.phase = Phase::Running;
        Some(buffer)
    }
}
