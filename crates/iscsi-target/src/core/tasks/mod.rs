//! The tasks of one core: their order, their stores, their files, and what is left of those that were aborted.

mod awaited;
mod background;
mod barrier;
mod completions;
mod files;
mod order;
mod response;
mod running;
mod scope;
mod stopwatch;
mod task_set;
mod waits;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lunette_buffer::{Buffer, FileSlice};
use lunette_device::{BackgroundTask, Input, LogicalUnit, NexusId, Response as DeviceResponse, Step};
use lunette_reactor::{ConnectionId, Context, FileRequest, Key, Slab, ThreadPool, Waker};
use lunette_scsi::{Lun, OpCode, TaskAttribute};
use lunette_session::iscsi_target::{Response, SessionInfo, TaskTag};
use lunette_store::{Completion, CompletionSink, Op, Outcome, Store};

use super::buffers::{Account, BufferQueue};
use crate::control::Asker;
use awaited::AwaitedRequests;
pub(super) use background::Aborting;
use background::Background;
pub(crate) use barrier::BarrierKey;
pub(super) use barrier::Barriers;
use completions::CompletionQueue;
pub(crate) use files::FileWork;
use files::Files;
use order::TaskSets;
pub(super) use running::RunningTask;
use running::{Orphan, Waiting};
pub(crate) use scope::AbortScope;
pub(super) use stopwatch::Stopwatch;
pub(super) use waits::SlowCommand;

pub(super) type TaskKey = Key;

/// The effect of a driven task on the core.
pub(super) enum Effect {
    /// The task ended before what it waited for came.
    Stale,
    /// The task waits for something of which the core tells it: a buffer, its store, a turn.
    Waits,
    /// The task waits for the command's data, which goes into the buffer.
    WantsData { connection: ConnectionId, tag: TaskTag, buffer: Buffer },
    /// The task asks whether its response may be sent from the file. Drive it with [`Input::File`].
    AsksForFile { connection: ConnectionId, slice: FileSlice },
    /// The task waits until the tasks of these nexuses on that unit are aborted, on all cores. Drive it with
    /// [`Input::Aborted`].
    Aborts { connection: ConnectionId, nexuses: Vec<(NexusId, Lun)>, unit: Arc<LogicalUnit> },
    /// The task has ended, and is answered.
    Ended { connection: ConnectionId, tag: TaskTag, response: Response, slow: Option<Box<SlowCommand>> },
    /// The store is done with a task that was aborted.
    Reaped { barriers: Vec<BarrierKey> },
}

/// The device tasks of one core. The core brings what they wait for, and applies the [`Effect`]s.
pub(super) struct TaskRunner {
    running: Slab<RunningTask>,
    order: TaskSets,
    completions: Arc<CompletionQueue>,
    /// Empty: the memory for the next completions.
    spare_outcomes: Vec<(u64, Outcome)>,
    files: Files,
    background: Background,
    awaited: AwaitedRequests,
    stopwatch: Stopwatch,
    slow_command: Duration,
}

/// How commands are timed.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    /// Time stands still within a batch, for a caller steps the cores.
    pub(crate) stands_still: bool,
    /// The duration from which on a command is logged.
    pub(crate) slow_command: Duration,
}

impl TaskRunner {
    /// `files_on_ring`: the reactor takes file operations.
    pub(super) fn new(
        waker: Waker,
        threads: ThreadPool<FileWork>,
        files_on_ring: bool,
        now: Instant,
        timing: &Timing,
    ) -> Self {
        Self {
            running: Slab::default(),
            order: TaskSets::default(),
            completions: Arc::new(CompletionQueue::new(waker.clone())),
            spare_outcomes: Vec::new(),
            files: Files::new(threads, files_on_ring),
            background: Background::new(waker, now),
            awaited: AwaitedRequests::default(),
            stopwatch: Stopwatch::new(now, timing.stands_still),
            slow_command: timing.slow_command,
        }
    }

    /// The clock that commands are timed with.
    pub(super) fn stopwatch(&self) -> &Stopwatch {
        &self.stopwatch
    }

    /// The tasks, with those that were aborted and that a store still works on.
    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// A task, unless it has ended.
    pub(super) fn get(&self, key: TaskKey) -> Option<&RunningTask> {
        self.running.get(key)
    }

    /// The tasks that `concerns` holds for.
    pub(super) fn tasks_where(&self, concerns: impl Fn(&RunningTask) -> bool) -> Vec<TaskKey> {
        self.running.iter().filter(|(_, running)| concerns(running)).map(|(key, _)| key).collect()
    }

    pub(super) fn any(&self, concerns: impl Fn(&RunningTask) -> bool) -> bool {
        self.running.iter().any(|(_, running)| concerns(running))
    }

    /// The nexuses that lose these tasks, each once.
    pub(super) fn nexuses_of(&self, keys: &[TaskKey]) -> Vec<NexusId> {
        let tasks = keys.iter().filter_map(|key| self.running.get(*key)).filter(|task| !task.is_orphan());
        let mut nexuses: Vec<NexusId> = tasks.map(|task| task.nexus).collect();
        nexuses.sort_unstable();
        nexuses.dedup();
        nexuses
    }

    // Tasks.

    /// Takes in a task. Whether it begins now: if not, [`next_ready`](Self::next_ready) gives it when its turn in the
    /// task set comes.
    pub(super) fn add(&mut self, task: RunningTask, attribute: TaskAttribute, opcode: OpCode) -> (TaskKey, bool) {
        let key = self.running.insert(task);
        (key, self.order.enter(&self.running, key, attribute, opcode))
    }

    /// Whether all tasks are SIMPLE: none waits for another.
    pub(super) fn are_unordered(&self) -> bool {
        self.order.is_empty()
    }

    /// The next task that its task set holds no more. Drive it with [`Input::Start`].
    pub(super) fn next_ready(&mut self) -> Option<TaskKey> {
        self.order.next_ready()
    }

    /// The tasks that their task sets hold.
    pub(super) fn held(&self) -> Vec<TaskKey> {
        self.order.held().collect()
    }

    /// Steps a task until it waits for something that is not here.
    pub(super) fn drive(&mut self, key: TaskKey, mut input: Input, buffers: &mut BufferQueue) -> Effect {
        let Some(running) = self.running.get_mut(key) else { return Effect::Stale };
        // These two come within the call that has made the task, that has ended another, or that the task has asked.
        let comes_now = matches!(input, Input::Start | Input::File(_));
        running.waited_until(if comes_now { self.stopwatch.latest() } else { self.stopwatch.read() });
        loop {
            match running.task.step(input) {
                Step::Buffer { len } => match buffers.take_lendable(&mut running.reservation, len) {
                    Some(buffer) => input = Input::Buffer(buffer),
                    None => return wait_for_buffer(running, key, Waiting::Buffer { len }, buffers),
                },
                Step::DataOut { len } => match buffers.take(&mut running.reservation, len) {
                    Some(buffer) => return want_data(running, buffer),
                    None => return wait_for_buffer(running, key, Waiting::DataBuffer { len }, buffers),
                },
                Step::File { slice } => return Effect::AsksForFile { connection: running.connection, slice },
                Step::Store { store, op } => {
                    running.waiting = Waiting::Store;
                    store.submit(op, &self.files.of(running.flow()), completion(&self.completions, key));
                    return Effect::Waits;
                }
                Step::Wait { on } => {
                    running.waiting = Waiting::Turn;
                    on.wait(completion(&self.completions, key));
                    return Effect::Waits;
                }
                // Commands do not ask for it.
                Step::Pause { .. } => input = Input::Waited,
                Step::Work(work) => {
                    running.waiting = Waiting::Work;
                    let done = completion(&self.completions, key);
                    let job = Box::new(move || done.complete(Outcome::new(work(), None)));
                    self.files.of(running.flow()).run(job);
                    return Effect::Waits;
                }
                Step::Background(task) => {
                    self.background.begin(task, &self.files, buffers);
                    input = Input::Begun;
                }
                Step::Abort { tasks: nexuses, unit } => {
                    running.waiting = Waiting::Aborts;
                    running.aborted_others = true;
                    return Effect::Aborts { connection: running.connection, nexuses, unit };
                }
                Step::Done(response) => return self.end(key, response),
            }
        }
    }

    /// Ends a task with this response.
    #[inline]
    pub(super) fn end(&mut self, key: TaskKey, response: DeviceResponse) -> Effect {
        let Some(running) = self.running.get_mut(key) else { return Effect::Stale };
        let (connection, tag, aborted_others) = (running.connection, running.tag, running.aborted_others);
        running.task.end_with(response.status);
        let took = self.stopwatch.read().saturating_duration_since(running.begun);
        running.task.took(took);
        let slow = (took > self.slow_command).then(|| Box::new(running.slow(took)));
        self.order.leave(&self.running, key);
        self.running.discard(key);
        Effect::Ended { connection, tag, response: response::encode(response, aborted_others), slow }
    }

    /// Lets a task that has waited for a buffer try again. `None` when it has to go on waiting.
    pub(super) fn feed(&mut self, key: TaskKey, buffers: &mut BufferQueue) -> Option<Effect> {
        let Some(running) = self.running.get_mut(key) else { return Some(Effect::Stale) };
        match running.waiting {
            Waiting::Buffer { len } => {
                let buffer = buffers.take_lendable(&mut running.reservation, len)?;
                Some(self.drive(key, Input::Buffer(buffer), buffers))
            }
            Waiting::DataBuffer { len } => {
                let buffer = buffers.take(&mut running.reservation, len)?;
                running.waited_until(self.stopwatch.read());
                Some(want_data(running, buffer))
            }
            _ => {
                debug_assert!(false, "a task that has its buffer waits for one");
                Some(Effect::Waits)
            }
        }
    }

    /// The connections that may hold what tasks wait for: those of these tasks, when they have used up their share, or
    /// `None` for all, when the pool is short.
    pub(super) fn holders_of_wanted(&self, buffers: &BufferQueue) -> Option<Vec<ConnectionId>> {
        let waiting = buffers.waiting().filter_map(|key| self.running.get(key));
        let holder = |task: &RunningTask| {
            let is_short = buffers.is_short_for(task.reservation.account(), task.wanted_len());
            (!is_short).then_some(task.connection)
        };
        waiting.map(holder).collect()
    }

    /// Another connection has taken the task over.
    pub(super) fn reassign(
        &mut self,
        key: TaskKey,
        connection: ConnectionId,
        tag: TaskTag,
        account: &std::rc::Rc<Account>,
    ) {
        let Some(running) = self.running.get_mut(key) else {
            debug_assert!(false, "a connection has a task that has ended");
            return;
        };
        (running.connection, running.tag) = (connection, tag);
        running.reservation.move_to(account);
    }

    // Abortion.

    /// Ends a task of `session` without a response. What its store is doing goes on: then the task is kept as an
    /// orphan, and the result is true. `barrier` is given with [`Effect::Reaped`].
    pub(super) fn abort(
        &mut self,
        key: TaskKey,
        session: Option<&Arc<SessionInfo>>,
        barrier: Option<BarrierKey>,
    ) -> bool {
        self.order.leave(&self.running, key);
        let Some(running) = self.running.get_mut(key) else { return false };
        if !matches!(running.waiting, Waiting::Store | Waiting::Work) {
            self.running.discard(key);
            return false;
        }
        let orphan =
            running.orphan.get_or_insert_with(|| Box::new(Orphan { session: session.cloned(), barriers: Vec::new() }));
        orphan.barriers.extend(barrier);
        true
    }

    // Stores and files.

    /// Whether something has completed, or a task may begin.
    pub(super) fn can_go_on(&self) -> bool {
        !self.completions.is_empty() || !self.order.is_settled()
    }

    /// Takes the completions that are there. Give the list back with [`recycle`](Self::recycle).
    pub(super) fn take_outcomes(&mut self) -> Vec<(u64, Outcome)> {
        let mut outcomes = std::mem::take(&mut self.spare_outcomes);
        self.completions.drain_to(&mut outcomes);
        outcomes
    }

    pub(super) fn recycle(&mut self, outcomes: Vec<(u64, Outcome)>) {
        self.spare_outcomes = outcomes;
    }

    /// Goes on with a task whose store is done, or whose turn has come.
    #[inline]
    pub(super) fn complete(&mut self, key: TaskKey, outcome: Outcome, buffers: &mut BufferQueue) -> Effect {
        if !self.awaited.is_empty() {
            self.awaited.end(key);
        }
        // A task may have been aborted before its turn came.
        let Some(running) = self.running.get_mut(key) else { return Effect::Stale };
        if let Some(orphan) = running.orphan.take() {
            self.running.discard(key);
            return Effect::Reaped { barriers: orphan.barriers };
        }
        let input = if running.waiting == Waiting::Turn { Input::Waited } else { Input::Store(outcome) };
        self.drive(key, input, buffers)
    }

    /// Lets each request hold up the barrier that a store of `unit` has begun. Gives their number.
    pub(super) fn await_requests(
        &mut self,
        unit: &Arc<LogicalUnit>,
        barrier: BarrierKey,
        asker: &Weak<Asker>,
    ) -> usize {
        let at_work = self.running.iter().filter(|(_, task)| task.waiting == Waiting::Store && task.uses(unit));
        self.awaited.add(at_work.map(|(key, _)| key), barrier, asker)
            + self.background.await_requests(unit, barrier, asker)
    }

    /// Takes the barriers that awaited requests hold up no more, once for each request.
    pub(super) fn take_ended_requests(&mut self) -> impl Iterator<Item = BarrierKey> + use<> {
        self.awaited.take_ended().into_iter().chain(self.background.take_ended_requests())
    }

    /// Flushes a store for no task. The outcome comes with `tag`, which no task has.
    pub(super) fn flush(&self, store: &Arc<dyn Store>, tag: u64) {
        let (sink, kept) = (Arc::clone(&self.completions), Arc::clone(store));
        let done = move |outcome| {
            sink.complete(tag, outcome);
            // The file is open until now: a reload that needs it takes over this store, since a second open would fail.
            drop(kept);
        };
        store.submit(Op::Flush, &self.files.own(), Completion::call(done));
    }

    /// Whether file operations wait for the end of the batch.
    pub(super) fn has_queued_files(&self) -> bool {
        self.files.are_queued()
    }

    /// Hands the file operations of the batch to the reactor.
    pub(super) fn submit_files(&mut self, cx: &mut Context<'_>) {
        self.files.submit_queued(cx);
    }

    /// A file operation of the reactor has ended.
    pub(super) fn file_done(&mut self, tag: u64, request: FileRequest, result: std::io::Result<usize>) {
        self.files.done(tag, request, result);
    }

    // Background work.

    pub(super) fn begin_background(&mut self, task: BackgroundTask, buffers: &BufferQueue) {
        self.background.begin(task, &self.files, buffers);
    }

    /// Lets background work go on by one step, or end when the core `stops`.
    pub(super) fn step_background(&mut self, now: Instant, stops: bool, buffers: &BufferQueue) {
        self.background.step_all(now, stops, &self.files, buffers);
    }

    /// Lets no background work go on. Tells whether no store works for any.
    pub(super) fn rest_in_background(&mut self) -> bool {
        self.background.rest()
    }

    /// The tasks that background work wants to end since the last call.
    pub(super) fn take_aborting(&mut self) -> Vec<Aborting> {
        self.background.take_aborting()
    }

    /// Goes on with background work whose wish to end the tasks of others is fulfilled.
    pub(super) fn background_aborted(&mut self, key: Key, lost: Vec<NexusId>, buffers: &BufferQueue) {
        self.background.aborted(key, lost, &self.files, buffers);
    }

    pub(super) fn background_is_due(&self) -> bool {
        self.background.is_due()
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.background.next_timeout()
    }

    /// Nothing runs, not even in the background.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.background.is_idle()
    }
}

fn completion(queue: &Arc<CompletionQueue>, key: TaskKey) -> Completion {
    Completion::new(Arc::clone(queue) as Arc<dyn CompletionSink>, key.to_u64())
}

fn wait_for_buffer(running: &mut RunningTask, key: TaskKey, waiting: Waiting, buffers: &mut BufferQueue) -> Effect {
    running.waiting = waiting;
    buffers.wait(key, running.priority);
    Effect::Waits
}

fn want_data(running: &mut RunningTask, buffer: Buffer) -> Effect {
    running.waiting = Waiting::Data;
    Effect::WantsData { connection: running.connection, tag: running.tag, buffer }
}
