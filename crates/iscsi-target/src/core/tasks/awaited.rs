//! Requests that stores have begun and whose end a freeze waits for.

use std::sync::Weak;

use lunette_reactor::Key;

use super::barrier::BarrierKey;
use crate::control::Asker;

/// The awaited requests of one kind of tasks. A task has one request at most.
#[derive(Default)]
pub(super) struct AwaitedRequests {
    requests: Vec<Request>,
    /// A barrier for each request that has ended, or that is no longer waited for.
    ended: Vec<BarrierKey>,
}

struct Request {
    task: Key,
    barrier: BarrierKey,
    asker: Weak<Asker>,
}

impl AwaitedRequests {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Waits for the requests of these tasks, which hold up the barrier once each. Gives their number.
    ///
    /// A store that hangs leaves requests behind after each wait that was given up: these are forgotten here.
    pub(super) fn add(&mut self, tasks: impl Iterator<Item = Key>, barrier: BarrierKey, asker: &Weak<Asker>) -> usize {
        let in_vain = self.requests.extract_if(.., |request| request.asker.strong_count() == 0);
        self.ended.extend(in_vain.map(|request| request.barrier));
        let before = self.requests.len();
        self.requests.extend(tasks.map(|task| Request { task, barrier, asker: asker.clone() }));
        self.requests.len() - before
    }

    /// The request of a task has ended.
    pub(super) fn end(&mut self, task: Key) {
        let ended = self.requests.extract_if(.., |request| request.task == task);
        self.ended.extend(ended.map(|request| request.barrier));
    }

    /// Takes the barriers that requests hold up no more, once for each request.
    pub(super) fn take_ended(&mut self) -> Vec<BarrierKey> {
        std::mem::take(&mut self.ended)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lunette_reactor::Slab;

    use super::*;
    use crate::core::tasks::barrier::Barriers;

    #[test]
    fn each_request_holds_up_its_barriers_until_it_ends() {
        let (mut tasks, mut barriers) = (Slab::default(), Barriers::default());
        let keys = [(); 3].map(|()| tasks.insert(()));
        let [first, second] = [1, 2].map(|number| barriers.open(number));
        let asker = Arc::new(Asker);
        let mut awaited = AwaitedRequests::default();
        assert_eq!(awaited.add(keys.into_iter(), first, &Arc::downgrade(&asker)), 3);
        assert_eq!(awaited.add(keys[1..2].iter().copied(), second, &Arc::downgrade(&asker)), 1);
        awaited.end(keys[1]);
        assert_eq!(awaited.take_ended(), [first, second]);
        awaited.end(keys[1]);
        assert!(awaited.take_ended().is_empty());
        assert!(!awaited.is_empty());
    }

    #[test]
    fn who_has_waited_in_vain_leaves_nothing_behind() {
        let (mut tasks, mut barriers) = (Slab::default(), Barriers::default());
        let hangs = tasks.insert(());
        let mut awaited = AwaitedRequests::default();
        for number in 0..10 {
            let asker = Arc::new(Asker);
            let barrier = barriers.open(number);
            awaited.add([hangs].into_iter(), barrier, &Arc::downgrade(&asker));
            assert_eq!(awaited.requests.len(), 1);
        }
        assert_eq!(awaited.take_ended().len(), 9);
    }
}
