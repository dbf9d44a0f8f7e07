//! The freeze of a logical unit: no request reaches its store, so that others may copy the medium or change it.
//!
//! A task, or background work, asks here before each of its requests, and waits while the unit is frozen. It keeps its
//! buffers and its claims on blocks. A request that the store has begun goes on: the driver of the tasks waits for its
//! end.
//!
//! The flag is read without a lock, so a freeze alone does not say when the last request was submitted. The driver
//! gives the order. It submits a request in the step that has asked here, and each of its threads hears of the freeze
//! between two steps. So a thread that has heard of it has submitted all that it will, and sees the flag from then on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_store::Completion;

use super::LogicalUnit;
use crate::wait::{Waitable, wake};

/// Whether a unit is frozen, and the tasks that wait for its thaw.
#[derive(Default)]
pub(crate) struct Freeze {
    /// Changed under the lock of the line only.
    is_on: AtomicBool,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    /// The places that were given so far.
    places: u64,
    /// By place, so that those that have waited longest go on first.
    waiters: BTreeMap<u64, Completion>,
}

/// The thaw of a unit, as a condition to wait for. Dropped, it gives up its place, so that an initiator that sends and
/// aborts commands again and again leaves nothing behind.
pub(crate) struct Thaw {
    freeze: Arc<Freeze>,
    place: u64,
}

/// A logical unit to whose store no task submits a request. Dropped, it lets them go on, on any thread.
#[must_use = "the unit is frozen as long as it is kept"]
pub struct FrozenUnit(Arc<LogicalUnit>);

impl LogicalUnit {
    /// Keeps requests away from the store until the result is dropped. `None` when the unit is frozen already.
    ///
    /// Requests that were submitted before may still be under way: the driver of the tasks knows their end.
    pub fn freeze(self: &Arc<Self>) -> Option<FrozenUnit> {
        self.freeze.begin().then(|| FrozenUnit(Arc::clone(self)))
    }

    /// Whether requests are kept away from the store. A task asks in the step in which it makes its request.
    #[inline]
    pub(crate) fn is_frozen(&self) -> bool {
        self.freeze.is_on()
    }

    /// The thaw, if the unit is frozen. Keep it while waiting for it, and ask again afterwards.
    pub(crate) fn pending_thaw(&self) -> Option<Arc<Thaw>> {
        self.is_frozen().then(|| Arc::new(Thaw { freeze: Arc::clone(&self.freeze), place: self.freeze.take_place() }))
    }
}

impl Freeze {
    /// Begins a freeze, unless there is one.
    fn begin(&self) -> bool {
        let _line = self.lock();
        // The message by which a thread hears of the freeze makes it visible there.
        !self.is_on.swap(true, Ordering::Relaxed)
    }

    fn end(&self) {
        let waiters = {
            let mut line = self.lock();
            self.is_on.store(false, Ordering::Release);
            std::mem::take(&mut line.waiters)
        };
        // Without the lock, because a waiter may run on at once and wait again.
        waiters.into_values().for_each(wake);
    }

    /// A task that goes on sees what was done to the medium before the thaw.
    #[inline]
    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    fn take_place(&self) -> u64 {
        let mut line = self.lock();
        line.places += 1;
        line.places
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waitable for Thaw {
    fn wait(&self, done: Completion) {
        {
            let mut line = self.freeze.lock();
            if self.freeze.is_on() {
                line.waiters.insert(self.place, done);
                return;
            }
        }
        wake(done);
    }
}

impl Drop for Thaw {
    fn drop(&mut self) {
        self.freeze.lock().waiters.remove(&self.place);
    }
}

impl FrozenUnit {
    /// The unit.
    pub fn unit(&self) -> &Arc<LogicalUnit> {
        &self.0
    }
}

impl Drop for FrozenUnit {
    fn drop(&mut self) {
        self.0.freeze.end();
    }
}

impl fmt::Debug for FrozenUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrozenUnit").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use lunette_store::MemoryStore;

    use super::*;
    use crate::LogicalUnitConfig;

    fn unit() -> Arc<LogicalUnit> {
        let config = LogicalUnitConfig::new(Arc::new(MemoryStore::new(1 << 20).unwrap()), "1");
        Arc::new(LogicalUnit::new(config).unwrap())
    }

    /// A completion that tells its number when the condition holds.
    fn told(numbers: &Arc<Mutex<Vec<u32>>>, number: u32) -> Completion {
        let numbers = Arc::clone(numbers);
        Completion::call(move |_| numbers.lock().unwrap().push(number))
    }

    #[test]
    fn waiters_go_on_in_the_order_in_which_they_came_and_only_at_the_thaw() {
        let (unit, numbers) = (unit(), Arc::default());
        assert!(unit.pending_thaw().is_none());
        let frozen = unit.freeze().unwrap();
        let thaws: Vec<_> = (0..20).map(|_| unit.pending_thaw().unwrap()).collect();
        thaws.iter().zip(0..).for_each(|(thaw, number)| thaw.wait(told(&numbers, number)));
        assert_eq!(*numbers.lock().unwrap(), []);
        drop(frozen);
        assert_eq!(*numbers.lock().unwrap(), (0..20).collect::<Vec<_>>());
        assert!(!unit.is_frozen());
    }

    #[test]
    fn a_waiter_that_comes_after_the_thaw_goes_on_at_once() {
        let (unit, numbers) = (unit(), Arc::default());
        let frozen = unit.freeze().unwrap();
        let thaw = unit.pending_thaw().unwrap();
        drop(frozen);
        thaw.wait(told(&numbers, 7));
        assert_eq!(*numbers.lock().unwrap(), [7]);
    }

    #[test]
    fn a_waiter_that_gives_up_leaves_nothing_behind_and_is_not_told() {
        let (unit, numbers) = (unit(), Arc::default());
        let frozen = unit.freeze().unwrap();
        let [stays, goes] = [(); 2].map(|()| unit.pending_thaw().unwrap());
        stays.wait(told(&numbers, 1));
        goes.wait(told(&numbers, 2));
        drop(goes);
        assert_eq!(unit.freeze.lock().waiters.len(), 1);
        drop(frozen);
        assert_eq!(*numbers.lock().unwrap(), [1]);
    }

    #[test]
    fn a_unit_is_frozen_once_at_a_time() {
        let unit = unit();
        let frozen = unit.freeze().unwrap();
        assert!(unit.freeze().is_none() && unit.is_frozen());
        drop(frozen);
        assert!(unit.freeze().is_some());
    }
}
