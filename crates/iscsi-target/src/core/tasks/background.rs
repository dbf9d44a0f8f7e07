//! Background work of logical units: it belongs to no connection, and nothing but the end of the process ends it early.

use std::sync::{Arc, Weak};
use std::time::Instant;

use lunette_device::{BackgroundTask, Input, LogicalUnit, NexusId, Step};
use lunette_reactor::{Key, Slab, Waker};
use lunette_scsi::Lun;
use lunette_store::{Completion, CompletionSink, Outcome, Store};

use super::awaited::AwaitedRequests;
use super::barrier::BarrierKey;
use super::completions::CompletionQueue;
use super::files::Files;
use crate::control::Asker;
use crate::core::buffers::BufferQueue;
use crate::limits::BUFFER_RETRY;

/// The background work of one core.
pub(super) struct Background {
    tasks: Slab<Working>,
    /// Apart from those of commands: see [`Background::step_all`].
    completions: Arc<CompletionQueue>,
    /// Tasks that wait for a buffer.
    waiting: Vec<(Key, usize)>,
    /// Tasks that let time pass, and when they go on. There is one for each unit at most.
    pausing: Vec<(Instant, Key)>,
    /// Tasks that wait until those of others have ended, and that the core does not know of yet.
    aborting: Vec<Aborting>,
    awaited: AwaitedRequests,
    /// Answers of stores that came while the core was at rest.
    kept: Vec<(u64, Outcome)>,
    /// When the core last looked here.
    now: Instant,
}

/// The tasks of these nexuses on that unit are to end, on all cores. Then the work `by` goes on, with
/// [`Input::Aborted`].
pub(in crate::core) struct Aborting {
    pub(in crate::core) by: Key,
    pub(in crate::core) nexuses: Vec<(NexusId, Lun)>,
    pub(in crate::core) unit: Arc<LogicalUnit>,
}

struct Working {
    task: BackgroundTask,
    /// Whether the work waits for its turn, not for its store.
    waits_for_others: bool,
    /// The store that has a request of the work.
    at_work: Option<Arc<dyn Store>>,
}

impl Background {
    pub(super) fn new(waker: Waker, now: Instant) -> Self {
        let completions = Arc::new(CompletionQueue::new(waker));
        Self {
            tasks: Slab::default(),
            completions,
            waiting: Vec::new(),
            pausing: Vec::new(),
            aborting: Vec::new(),
            awaited: AwaitedRequests::default(),
            kept: Vec::new(),
            now,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// When the next task goes on that lets time pass, or tries again to take its buffer.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let retry = (!self.waiting.is_empty()).then(|| self.now + BUFFER_RETRY);
        self.pausing.iter().map(|(at, _)| *at).chain(retry).min()
    }

    /// Whether a task can go on at once.
    pub(super) fn is_due(&self) -> bool {
        !self.is_idle() && (!self.completions.is_empty() || !self.kept.is_empty())
    }

    /// Lets no task go on, but takes what stores answer. Tells whether all have.
    pub(super) fn rest(&mut self) -> bool {
        let before = self.kept.len();
        self.completions.drain_to(&mut self.kept);
        for (tag, _) in &self.kept[before..] {
            let key = Key::from_u64(*tag);
            self.awaited.end(key);
            if let Some(working) = self.tasks.get_mut(key) {
                working.at_work = None;
            }
        }
        self.tasks.iter().all(|(_, working)| working.at_work.is_none())
    }

    pub(super) fn begin(&mut self, task: BackgroundTask, files: &Files, buffers: &BufferQueue) {
        let key = self.tasks.insert(Working { task, waits_for_others: false, at_work: None });
        self.drive(key, Input::Start, files, buffers);
    }

    /// Lets each task go on by one step. It is not for a loop that runs until nothing moves: a store in memory answers
    /// at once, and connections would wait until all of a disk is done.
    ///
    /// When the core `stops`, a task ends after its step instead: the next start goes on with it.
    pub(super) fn step_all(&mut self, now: Instant, stops: bool, files: &Files, buffers: &BufferQueue) {
        self.now = now;
        if self.is_idle() {
            return;
        }
        let mut outcomes = std::mem::take(&mut self.kept);
        self.completions.drain_to(&mut outcomes);
        let mut inputs = Vec::new();
        for (tag, outcome) in outcomes {
            let key = Key::from_u64(tag);
            self.awaited.end(key);
            let Some(working) = self.tasks.get(key) else { continue };
            inputs.push((key, if working.waits_for_others { Input::Waited } else { Input::Store(outcome) }));
        }
        let paused = self.pausing.extract_if(.., |(at, _)| stops || *at <= now);
        inputs.extend(paused.map(|(_, key)| (key, Input::Waited)));
        let waiting = std::mem::take(&mut self.waiting);
        if stops {
            for key in inputs.into_iter().map(|(key, _)| key).chain(waiting.into_iter().map(|(key, _)| key)) {
                self.tasks.remove(key);
            }
            // What others would bring about may never come.
            let idle: Vec<Key> =
                self.tasks.iter().filter(|(_, working)| working.waits_for_others).map(|(key, _)| key).collect();
            for key in idle {
                self.tasks.remove(key);
            }
            return;
        }
        for (key, input) in inputs {
            self.drive(key, input, files, buffers);
        }
        for (key, len) in waiting {
            self.feed(key, len, files, buffers);
        }
    }

    /// The tasks that want to end since the last call.
    pub(super) fn take_aborting(&mut self) -> Vec<Aborting> {
        std::mem::take(&mut self.aborting)
    }

    /// Goes on with a task whose wish to end others is fulfilled.
    pub(super) fn aborted(&mut self, key: Key, lost: Vec<NexusId>, files: &Files, buffers: &BufferQueue) {
        self.drive(key, Input::Aborted { lost }, files, buffers);
    }

    /// Lets each request hold up the barrier that the store of `unit` has begun. Gives their number.
    pub(super) fn await_requests(
        &mut self,
        unit: &Arc<LogicalUnit>,
        barrier: BarrierKey,
        asker: &Weak<Asker>,
    ) -> usize {
        // Addresses alone: one store may be known by several tables of methods.
        let is_of_unit = |store: &Arc<dyn Store>| std::ptr::addr_eq(Arc::as_ptr(store), Arc::as_ptr(unit.store()));
        let at_work = self.tasks.iter().filter(|(_, working)| working.at_work.as_ref().is_some_and(is_of_unit));
        self.awaited.add(at_work.map(|(key, _)| key), barrier, asker)
    }

    /// Takes the barriers that awaited requests hold up no more, once for each request.
    pub(super) fn take_ended_requests(&mut self) -> Vec<BarrierKey> {
        self.awaited.take_ended()
    }

    fn feed(&mut self, key: Key, len: usize, files: &Files, buffers: &BufferQueue) {
        match buffers.take_for_background(len) {
            Some(buffer) => self.drive(key, Input::Buffer(buffer), files, buffers),
            None => self.waiting.push((key, len)),
        }
    }

    /// Steps a task until it waits for something.
    fn drive(&mut self, key: Key, input: Input, files: &Files, buffers: &BufferQueue) {
        let Some(working) = self.tasks.get_mut(key) else {
            debug_assert!(false, "background work goes on that has ended");
            return;
        };
        let Some(step) = working.task.step(input) else {
            self.tasks.remove(key);
            return;
        };
        working.waits_for_others = matches!(step, Step::Wait { .. });
        working.at_work = if let Step::Store { store, .. } = &step { Some(Arc::clone(store)) } else { None };
        let sink: Arc<dyn CompletionSink> = Arc::clone(&self.completions) as _;
        let done = Completion::new(sink, key.to_u64());
        match step {
            Step::Buffer { len } => self.feed(key, len, files, buffers),
            Step::Store { store, op } => store.submit(op, &files.own(), done),
            Step::Wait { on } => on.wait(done),
            Step::Pause { time } => self.pausing.push((self.now + time, key)),
            Step::Work(work) => {
                files.own().run(Box::new(move || done.complete(Outcome::new(work(), None))));
            }
            Step::Abort { tasks: nexuses, unit } => self.aborting.push(Aborting { by: key, nexuses, unit }),
            Step::DataOut { .. } | Step::File { .. } | Step::Background(_) | Step::Done(_) => {
                tracing::error!(?step, "background work asks for what it cannot have; it ends");
                self.tasks.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use lunette_buffer::Pool;
    use lunette_device::{LogicalUnitConfig, ScrubEnd, ScrubOwner, ScrubbedBlocks, scrub_once};
    use lunette_reactor::{Reactor, ThreadPool};
    use lunette_store::MemoryStore;

    use super::*;

    struct Owner;

    impl ScrubOwner for Owner {
        fn scrubbed(&mut self, _: ScrubbedBlocks) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }

        fn ended(self, _: Result<(), ScrubEnd>) {}
    }

    /// Nothing tells of the room that there is in the end.
    #[test]
    fn a_task_without_a_buffer_is_due_again_though_none_returns() {
        let now = Instant::now();
        let pool = Pool::new(1 << 20);
        let (all, buffers) = (pool.take(1 << 20).unwrap(), BufferQueue::new(pool));
        let files = Files::new(ThreadPool::new("test", 1, 1).unwrap(), false);
        let mut background = Background::new(Reactor::new().unwrap().waker(), now);
        let config = LogicalUnitConfig::new(Arc::new(MemoryStore::new(1 << 20).unwrap()), "1");
        let unit = Arc::new(LogicalUnit::new(config).unwrap());

        background.begin(scrub_once(&unit, Owner), &files, &buffers);
        assert_eq!(background.next_timeout(), Some(now + BUFFER_RETRY));
        let later = now + BUFFER_RETRY;
        background.step_all(later, false, &files, &buffers);
        assert_eq!(background.next_timeout(), Some(later + BUFFER_RETRY));
        drop(all);
        background.step_all(later + BUFFER_RETRY, false, &files, &buffers);
        assert_eq!(background.next_timeout(), None);
        while !background.is_idle() {
            background.step_all(now, false, &files, &buffers);
        }
    }
}
