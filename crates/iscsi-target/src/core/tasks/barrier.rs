//! The work that waits until stores are done with aborted tasks.
//!
//! A write that a store has begun cannot be called back. An initiator that is told that it is gone (by a task
//! management response, or by a new login) may write the same blocks again at once; the old write must not land after
//! that.
//!
//! A freeze waits for stores in the same way, with what they do for tasks that go on.

use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BarrierKey(u64);

/// The barriers of one core, each with what happens when the last store, on any core, is done.
pub(in crate::core) struct Barriers<T> {
    waiting: HashMap<BarrierKey, (usize, T)>,
    passed: Vec<T>,
    last: u64,
}

impl<T> Default for Barriers<T> {
    fn default() -> Self {
        Self { waiting: HashMap::new(), passed: Vec::new(), last: 0 }
    }
}

impl<T> Barriers<T> {
    pub(in crate::core) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.passed.is_empty()
    }

    /// A barrier that nothing holds up yet. [`Barriers::close`] it once everything is counted.
    pub(in crate::core) fn open(&mut self, then: T) -> BarrierKey {
        self.last += 1;
        let key = BarrierKey(self.last);
        self.waiting.insert(key, (1, then));
        key
    }

    /// Everything that holds the barrier up has been counted.
    pub(in crate::core) fn close(&mut self, key: BarrierKey) {
        self.one_less(key);
    }

    pub(in crate::core) fn one_more(&mut self, key: BarrierKey) {
        let Some((count, _)) = self.waiting.get_mut(&key) else {
            debug_assert!(false, "a barrier is held up that has passed");
            return;
        };
        *count += 1;
    }

    pub(in crate::core) fn one_less(&mut self, key: BarrierKey) {
        let Some((count, _)) = self.waiting.get_mut(&key) else {
            debug_assert!(false, "a barrier passes twice");
            return;
        };
        *count -= 1;
        if *count == 0
            && let Some((_, then)) = self.waiting.remove(&key)
        {
            self.passed.push(then);
        }
    }

    /// The work to do when the barrier passes.
    pub(in crate::core) fn get_mut(&mut self, key: BarrierKey) -> Option<&mut T> {
        self.waiting.get_mut(&key).map(|(_, then)| then)
    }

    /// Takes what is to happen now.
    pub(in crate::core) fn take_passed(&mut self) -> Vec<T> {
        std::mem::take(&mut self.passed)
    }
}
