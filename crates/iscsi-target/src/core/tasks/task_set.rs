//! The task set of a logical unit while it has tasks that are not SIMPLE (SAM-5 8.6), as a pure state machine.
//!
//! SIMPLE tasks alone need no order: they begin as they come, and no set is kept of them. An ORDERED task begins when
//! all older tasks of its nexus on the unit have ended, and holds the younger ones. A HEAD OF QUEUE task begins at
//! once. A held task is not stepped, so it holds no buffer. When its data stands in the stream before the data of a
//! task that it waits for, it ends with TASK SET FULL.

#[cfg(test)]
mod tests;

use lunette_scsi::TaskAttribute;

/// The tasks of one logical unit, oldest first.
pub(super) struct TaskSet<K> {
    tasks: Vec<Entry<K>>,
}

struct Entry<K> {
    key: K,
    attribute: TaskAttribute,
    begun: bool,
}

impl<K: Copy + PartialEq> TaskSet<K> {
    /// A set with the SIMPLE tasks that have begun already.
    pub(super) fn new(begun: impl IntoIterator<Item = K>) -> Self {
        let entry = |key| Entry { key, attribute: TaskAttribute::Simple, begun: true };
        Self { tasks: begun.into_iter().map(entry).collect() }
    }

    /// Takes in the youngest task. Whether it may begin shows in the next [`Self::begin`].
    pub(super) fn add(&mut self, key: K, attribute: TaskAttribute) {
        self.tasks.push(Entry { key, attribute, begun: false });
    }

    /// A task has ended, or was aborted.
    pub(super) fn remove(&mut self, key: K) {
        self.tasks.retain(|task| task.key != key);
    }

    /// The tasks that begin now, oldest first; they count as begun from here on.
    ///
    /// HEAD OF QUEUE begins at once. While one is in the set nothing else does. ORDERED begins when nothing older is
    /// left; SIMPLE when nothing older is ORDERED.
    pub(super) fn begin(&mut self) -> Vec<K> {
        let has_head = self.tasks.iter().any(|task| task.attribute == TaskAttribute::HeadOfQueue);
        let mut older = false;
        let mut older_ordered = false;
        let mut begins = Vec::new();
        for task in &mut self.tasks {
            let may = match task.attribute {
                TaskAttribute::HeadOfQueue => true,
                TaskAttribute::Ordered => !has_head && !older,
                TaskAttribute::Simple | TaskAttribute::Aca => !has_head && !older_ordered,
            };
            if may && !task.begun {
                task.begun = true;
                begins.push(task.key);
            }
            older = true;
            older_ordered |= task.attribute == TaskAttribute::Ordered;
        }
        begins
    }

    /// The tasks that have not begun, oldest first.
    pub(super) fn held(&self) -> impl Iterator<Item = K> {
        self.tasks.iter().filter(|task| !task.begun).map(|task| task.key)
    }

    /// Only SIMPLE tasks are left, and all of them have begun: there is nothing to keep in order.
    pub(super) fn is_over(&self) -> bool {
        self.tasks.iter().all(|task| task.begun && task.attribute == TaskAttribute::Simple)
    }
}
