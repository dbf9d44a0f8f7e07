//! Background work of logical units: it belongs to no connection, and nothing but the end of the process ends it early.

use std::sync::Arc;
use std::time::Instant;

use lunette_device::{BackgroundTask, Input, Step};
use lunette_reactor::Waker;
use lunette_store::{Completion, CompletionSink, Outcome};

use super::completions::CompletionQueue;
use super::shares::Holdings;
use super::table::{Key, Slab};
use super::{Core, FIRST};

/// Background work at hand.
pub(super) struct Background {
    tasks: Slab<Working>,
    /// Apart from those of commands: see [`Core::continue_background`].
    completions: Arc<CompletionQueue>,
    /// Tasks that wait for a buffer.
    starving: Vec<(Key, usize)>,
    /// Tasks that let time pass, and when they go on. There is one for each unit at most.
    pausing: Vec<(Instant, Key)>,
    /// When the core last looked here.
    now: Instant,
}

struct Working {
    task: BackgroundTask,
    /// What completes is its turn, not its store.
    waits_for_others: bool,
}

impl Background {
    pub(super) fn new(waker: Waker, now: Instant) -> Self {
        let completions = Arc::new(CompletionQueue::new(waker));
        Self { tasks: Slab::default(), completions, starving: Vec::new(), pausing: Vec::new(), now }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// When the next task goes on that lets time pass.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.pausing.iter().map(|(at, _)| *at).min()
    }

    /// Whether a task can go on at once.
    pub(super) fn is_due(&self) -> bool {
        !self.is_idle() && !self.completions.is_empty()
    }
}

impl Core {
    /// Goes on with what an earlier process has left on the units that are served, unless another core does.
    pub(super) fn resume_all_background(&mut self) {
        if self.post.me() != FIRST {
            return;
        }
        for task in self.devices.iter().flat_map(|device| device.background()).collect::<Vec<_>>() {
            self.begin_background(task);
        }
    }

    pub(super) fn begin_background(&mut self, task: BackgroundTask) {
        let key = self.background.tasks.insert(Working { task, waits_for_others: false });
        self.drive_background(key, Input::Start);
    }

    /// Lets each task go on by one step. It is not for a loop that runs until nothing moves: a store in memory answers at
    /// once, and connections would wait until all of a disk is done.
    pub(super) fn continue_background(&mut self, now: Instant) {
        self.background.now = now;
        if self.background.is_idle() {
            return;
        }
        let mut outcomes = Vec::new();
        self.background.completions.drain_to(&mut outcomes);
        for (tag, outcome) in outcomes {
            let key = Key::from_u64(tag);
            let Some(working) = self.background.tasks.get_mut(key) else { continue };
            let input = if working.waits_for_others { Input::Waited } else { Input::Store(outcome) };
            if self.stopping.is_no() {
                self.drive_background(key, input);
            } else {
                // The next start goes on with it.
                self.background.tasks.remove(key);
            }
        }
        let stops = !self.stopping.is_no();
        for (_, key) in self.background.pausing.extract_if(.., |(at, _)| stops || *at <= now).collect::<Vec<_>>() {
            if stops {
                self.background.tasks.remove(key);
            } else {
                self.drive_background(key, Input::Waited);
            }
        }
        for (key, len) in std::mem::take(&mut self.background.starving) {
            if self.stopping.is_no() {
                self.feed_background(key, len);
            } else {
                self.background.tasks.remove(key);
            }
        }
    }

    fn feed_background(&mut self, key: Key, len: usize) {
        // Before it tries: what comes back after that brings another batch.
        self.pool.await_return();
        let buffer = if Holdings::default().may_begin(&self.pool, len) { self.pool.take(len) } else { None };
        match buffer {
            Some(buffer) => self.drive_background(key, Input::Buffer(buffer)),
            None => self.background.starving.push((key, len)),
        }
    }

    /// Steps a task until it waits for something.
    fn drive_background(&mut self, key: Key, input: Input) {
        let Some(working) = self.background.tasks.get_mut(key) else { return };
        let Some(step) = working.task.step(input) else {
            self.background.tasks.remove(key);
            return;
        };
        working.waits_for_others = matches!(step, Step::Wait { .. });
        let sink: Arc<dyn CompletionSink> = Arc::clone(&self.background.completions) as _;
        let done = Completion::new(sink, key.to_u64());
        match step {
            Step::Buffer { len } => self.feed_background(key, len),
            Step::Store { store, op } => store.submit(op, &self.io.own(), done),
            Step::Wait { on } => on.wait(done),
            Step::Pause { time } => self.background.pausing.push((self.background.now + time, key)),
            Step::Work(work) => {
                self.io.own().run(Box::new(move || done.complete(Outcome::new(work(), None))));
            }
            Step::DataOut { .. } | Step::File { .. } | Step::Background(_) | Step::Abort { .. } | Step::Done(_) => {
                tracing::error!(?step, "background work asks for what it cannot have; it ends");
                self.background.tasks.remove(key);
            }
        }
    }
}
