//! Tasks, from command to response.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lunette_buffer::{Buffer, Payload};
use lunette_device::{
    Command as DeviceCommand, Input, LogicalUnit, NexusId, Response as DeviceResponse, Step, TargetDevice, Task,
};
use lunette_reactor::{ConnectionId, Flow, is_in_page_cache};
use lunette_scsi::{AdditionalSense, Cdb, Lun, SenseData, SenseFormat, Status, TaskAttribute};
use lunette_session::iscsi_target::{Command, CommandOrder, Connection, Response, TaskTag};
use lunette_store::{Completion, CompletionSink, Outcome};

use super::Core;
use super::aborts::Doomed;
use super::answers::session_response;
use super::barrier::{BarrierKey, Behind};
use super::leaving::LEAVE_TAG;
use super::shares::{Account, pooled_len};
use super::stop::FLUSH_TAG;
use super::table::Key;
use crate::limits::{MAX_FED_TASKS, MIN_LENDABLE_LEN};

pub(super) type TaskKey = Key;

/// What a task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Nothing: it is being stepped.
    Nothing,
    /// A buffer of its own.
    Buffer { len: usize },
    /// A buffer for the command's data.
    DataBuffer { len: usize },
    /// The command's data.
    Data,
    /// Its store, or work on a thread.
    Store,
    /// Other tasks.
    Turn,
    /// The end of the tasks that it aborted.
    Aborts,
    /// Its place in the task set.
    Order,
}

/// A device task and where it belongs.
pub(super) struct RunningTask {
    pub(super) task: Task,
    pub(super) connection: ConnectionId,
    pub(super) tag: TaskTag,
    pub(super) order: CommandOrder,
    pub(super) device: Arc<TargetDevice>,
    pub(super) nexus: NexusId,
    pub(super) lun: Lun,
    /// Its initiator's turns at the file threads.
    flow: Flow,
    /// From 1, the most urgent, to 15; 0 is none.
    priority: u8,
    pub(super) waiting: Waiting,
    /// It is one that ended tasks of others (PREEMPT AND ABORT).
    pub(super) aborted_others: bool,
    /// Bytes of buffers it has been given.
    pub(super) bytes: usize,
    /// It was aborted; its store still works on it.
    pub(super) orphan: Option<Orphan>,
    /// What waits for the store to be done with it.
    pub(super) barriers: Vec<BarrierKey>,
}

/// What is left of an aborted task until its store is done.
#[derive(Default)]
pub(super) struct Orphan {
    /// The name of the initiator.
    pub(super) initiator: Option<String>,
    /// For whom its buffers count.
    account: Option<Account>,
}

impl RunningTask {
    pub(super) fn is_orphan(&self) -> bool {
        self.orphan.is_some()
    }

    /// Bytes of the buffer that it waits for.
    pub(super) fn wanted_len(&self) -> usize {
        match self.waiting {
            Waiting::Buffer { len } | Waiting::DataBuffer { len } => len,
            _ => 0,
        }
    }
}

impl Core {
    pub(super) fn start_task(&mut self, id: ConnectionId, command: &Command) {
        let Some(conn) = self.connections.get_mut(id) else { return };
        let (Some(nexus), Some(device)) = (&conn.nexus, &conn.device) else { return };
        let Ok(cdb) = Cdb::extended(command.cdb, &command.cdb_rest) else {
            let sense = SenseData::illegal_request(AdditionalSense::INVALID_FIELD_IN_CDB);
            let sense = sense.encode(SenseFormat::Fixed).to_vec();
            let response = Response { status: Status::CHECK_CONDITION.0, sense, ..Response::default() };
            if let Some(mut protocol) = conn.protocol_mut(id, &mut self.sessions) {
                protocol.complete(command.task, response);
            }
            return;
        };
        let (attribute, opcode) = (device_attribute(command.attribute), cdb.opcode());
        let task = device.start(
            nexus,
            DeviceCommand {
                lun: command.lun.0,
                cdb,
                attribute,
                data_out_len: command.data_out_len,
                data_in_len: command.data_in_len,
            },
        );
        let running = RunningTask {
            task,
            connection: id,
            tag: command.task,
            order: command.order,
            device: Arc::clone(device),
            nexus: nexus.id(),
            lun: Lun::decode(command.lun.0),
            flow: conn.holdings.flow(),
            priority: command.priority,
            waiting: Waiting::Nothing,
            aborted_others: false,
            bytes: 0,
            orphan: None,
            barriers: Vec::new(),
        };
        let key = self.tasks.insert(running);
        conn.tasks.insert(command.task, key);
        self.begin_in_order(key, attribute, opcode);
    }

    pub(super) fn data_arrived(&mut self, id: ConnectionId, tag: TaskTag, buffer: Buffer) {
        let key = self.connections.get_mut(id).and_then(|conn| conn.tasks.get(tag));
        if let Some(key) = key {
            self.drive(key, Input::DataOut(buffer));
        }
    }

    /// Steps a task until it waits for something that is not here.
    pub(super) fn drive(&mut self, key: TaskKey, mut input: Input) {
        loop {
            let Some(running) = self.tasks.get_mut(key) else { return };
            running.waiting = Waiting::Nothing;
            match running.task.step(input) {
                Step::Buffer { len } => match self.take_buffer(key, Waiting::Buffer { len }) {
                    Some(buffer) => input = Input::Buffer(buffer),
                    None => return self.starve(key, Waiting::Buffer { len }),
                },
                Step::DataOut { len } => match self.take_buffer(key, Waiting::DataBuffer { len }) {
                    Some(buffer) => return self.want_data(key, buffer),
                    None => return self.starve(key, Waiting::DataBuffer { len }),
                },
                Step::File { slice } => {
                    let connection = running.connection;
                    let may =
                        self.protocol(connection).is_some_and(Connection::sends_files) && is_in_page_cache(&slice);
                    input = Input::File(may);
                }
                Step::Store { store, op } => {
                    running.waiting = Waiting::Store;
                    let sink: Arc<dyn CompletionSink> = Arc::clone(&self.completions) as _;
                    store.submit(op, &self.io.of(running.flow), Completion::new(sink, key.to_u64()));
                    return;
                }
                Step::Wait { on } => {
                    running.waiting = Waiting::Turn;
                    let sink: Arc<dyn CompletionSink> = Arc::clone(&self.completions) as _;
                    on.wait(Completion::new(sink, key.to_u64()));
                    return;
                }
                // Commands do not ask for it.
                Step::Pause { .. } => input = Input::Waited,
                Step::Work(work) => {
                    running.waiting = Waiting::Store;
                    let files = self.io.of(running.flow);
                    let sink: Arc<dyn CompletionSink> = Arc::clone(&self.completions) as _;
                    let done = Completion::new(sink, key.to_u64());
                    files.run(Box::new(move || done.complete(Outcome::new(work(), None))));
                    return;
                }
                Step::Background(task) => {
                    self.begin_background(task);
                    input = Input::Begun;
                }
                Step::Abort { tasks, unit } => return self.abort_for(key, tasks, unit),
                Step::Done(response) => return self.finish(key, response),
            }
        }
    }

    fn want_data(&mut self, key: TaskKey, buffer: Buffer) {
        let Some(running) = self.tasks.get_mut(key) else { return };
        running.waiting = Waiting::Data;
        let (id, tag) = (running.connection, running.tag);
        if let Some((_, mut protocol)) = self.link(id) {
            protocol.want_data(tag, buffer);
        }
        self.touch(id);
    }

    /// A task has ended, and is answered. The session may hold the response back.
    pub(super) fn finish(&mut self, key: TaskKey, response: DeviceResponse) {
        self.leave_task_set(key, self.place_in_order(key));
        let Some(running) = self.tasks.remove(key) else { return };
        let id = running.connection;
        let Some(conn) = self.connections.get_mut(id) else { return };
        conn.tasks.remove(running.tag);
        conn.holdings.sub_task(running.bytes);
        let Some(key) = conn.key else { return };
        let Some(session) = self.sessions.get_mut(key) else { return };
        conn.complete(id, session, running.tag, session_response(response, running.aborted_others));
        self.touch_members(key);
        self.touch(id);
    }

    // Buffers.

    fn take_buffer(&mut self, key: TaskKey, wanted: Waiting) -> Option<Buffer> {
        let running = self.tasks.get_mut(key)?;
        let (len, may_be_lent) = match wanted {
            Waiting::Buffer { len } => (len, len >= MIN_LENDABLE_LEN),
            Waiting::DataBuffer { len } => (len, false),
            _ => return None,
        };
        let conn = self.connections.get_mut(running.connection)?;
        if running.bytes == 0 && !conn.holdings.may_begin(&self.pool, len) {
            return None;
        }
        let buffer = if may_be_lent { self.pool.reserve(len) } else { self.pool.take(len) }?;
        running.bytes += pooled_len(len);
        conn.holdings.add_task(pooled_len(len));
        Some(buffer)
    }

    /// Whether a task without a buffer keeps the data of others, which have theirs, from being read: its own data stands
    /// before it in the stream. Waiting for their end would be waiting for ever.
    pub(super) fn holds_up_its_data(&mut self, key: TaskKey) -> bool {
        let Some((id, tag)) = self.tasks.get(key).map(|running| (running.connection, running.tag)) else {
            return false;
        };
        self.protocol(id).is_some_and(|protocol| protocol.stopped_by() == Some(tag))
            && (self.keeps_data_waiting(id) || self.keeps_siblings_waiting(id))
    }

    /// Whether a connection is not read from while tasks of it wait for data.
    pub(super) fn keeps_data_waiting(&mut self, id: ConnectionId) -> bool {
        let Some(conn) = self.connections.get(id) else { return false };
        if conn.protocol(id, &self.sessions).is_none_or(Connection::wants_input) {
            return false;
        }
        let mut tasks = conn.tasks.keys().filter_map(|other| self.tasks.get(other));
        tasks.any(|other| other.waiting == Waiting::Data)
    }

    /// Tells the initiator to come again (SAM-5 5.3.1).
    pub(super) fn give_up(&mut self, key: TaskKey) {
        let status = Status::TASK_SET_FULL;
        self.finish(
            key,
            DeviceResponse {
                status,
                status_qualifier: 0,
                sense: None,
                data_in: Payload::Empty,
                data_out_transfer_len: 0,
            },
        );
    }

    /// Lets a task wait for a buffer: before those that are less urgent (SAM-5 8.7), behind its equals.
    fn starve(&mut self, key: TaskKey, waiting: Waiting) {
        let Some(running) = self.tasks.get_mut(key) else { return };
        self.counts.buffer_waits.fetch_add(1, Ordering::Relaxed);
        running.waiting = waiting;
        let rank = rank(running.priority);
        let tasks = &self.tasks;
        let less_urgent = |other: &&TaskKey| tasks.get(**other).is_none_or(|other| self::rank(other.priority) > rank);
        let behind = self.starving.len() - self.starving.iter().rev().take_while(less_urgent).count();
        self.starving.insert(behind, key);
    }

    /// Gives buffers to tasks that wait for them, or to some of them when they are many. One that cannot be served does not keep the others waiting: it may be its
    /// own connection that holds too much.
    pub(super) fn feed_starving(&mut self) {
        if self.starving.is_empty() {
            return;
        }
        // Before they try: what comes back after that, in this batch or later, brings another.
        self.pool.await_return();
        for _ in 0..self.starving.len().min(MAX_FED_TASKS) {
            let Some(key) = self.starving.pop_front() else { return };
            let Some(waiting) = self.tasks.get(key).map(|running| running.waiting) else { continue };
            match (self.take_buffer(key, waiting), waiting) {
                (None, _) if self.holds_up_its_data(key) => self.give_up(key),
                (None, _) => self.starving.push_back(key),
                (Some(buffer), Waiting::Buffer { .. }) => self.drive(key, Input::Buffer(buffer)),
                (Some(buffer), _) => self.want_data(key, buffer),
            }
        }
    }

    // Stores.

    /// Takes the completions that are there. Those that come of them, when a store answers at once, are left for the next call:
    /// one command may be thousands of requests to its store. Tells whether there were any.
    pub(super) fn take_completions(&mut self) -> bool {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        self.completions.drain_to(&mut outcomes);
        let any = !outcomes.is_empty();
        for (tag, outcome) in outcomes.drain(..) {
            let key = Key::from_u64(tag);
            match self.tasks.get_mut(key) {
                Some(running) if running.is_orphan() => self.bury(key),
                Some(running) if running.waiting == Waiting::Turn => self.drive(key, Input::Waited),
                Some(_) => self.drive(key, Input::Store(outcome)),
                None if tag == FLUSH_TAG => self.store_flushed(outcome),
                None if tag == LEAVE_TAG => self.left(&outcome),
                // Its turn came when it was aborted already.
                None => {}
            }
        }
        self.outcomes = outcomes;
        any
    }

    fn bury(&mut self, key: TaskKey) {
        let Some(running) = self.tasks.remove(key) else { return };
        // Until now the store had its buffers.
        if let Some(conn) = self.connections.get_mut(running.connection) {
            conn.holdings.sub_orphan(running.bytes);
        } else if let Some(account) = running.orphan.and_then(|orphan| orphan.account) {
            account.sub(running.bytes);
        }
        for barrier in running.barriers {
            self.barriers.one_less(barrier);
        }
    }

    // Abortion.

    /// Ends a task without a response. What its store is doing goes on; `barrier` learns when it is done.
    pub(super) fn abort_task(&mut self, key: TaskKey, barrier: Option<BarrierKey>) {
        self.leave_task_set(key, self.place_in_order(key));
        let Some(running) = self.tasks.get_mut(key) else { return };
        let id = running.connection;
        if !running.is_orphan() {
            let mut orphan = Orphan::default();
            if let Some(conn) = self.connections.get_mut(running.connection) {
                if let Some(mut protocol) = conn.protocol_mut(id, &mut self.sessions) {
                    protocol.abort(running.tag);
                }
                conn.tasks.remove(running.tag);
                if running.waiting == Waiting::Store {
                    conn.holdings.orphan(running.bytes);
                } else {
                    conn.holdings.sub_task(running.bytes);
                }
                orphan.initiator = conn.session.as_ref().map(|session| session.initiator_name.clone());
                orphan.account = conn.holdings.account().cloned();
            }
            running.orphan = Some(orphan);
        }
        if running.waiting == Waiting::Store {
            if let Some(barrier) = barrier {
                running.barriers.push(barrier);
                self.barriers.one_more(barrier);
            }
        } else {
            self.tasks.remove(key);
        }
        self.touch(id);
    }

    /// The connection has answered the task itself.
    pub(super) fn forget_task(&mut self, id: ConnectionId, tag: TaskTag) {
        let key = self.connections.get_mut(id).and_then(|conn| conn.tasks.get(tag));
        if let Some(key) = key {
            self.abort_task(key, None);
        }
    }

    /// Ends the tasks that `by` wants to end (PREEMPT AND ABORT). It goes on when no store works for them any more.
    fn abort_for(&mut self, by: TaskKey, nexuses: Vec<(NexusId, Lun)>, unit: Arc<LogicalUnit>) {
        let doomed = Doomed::OfNexuses { nexuses, unit };
        let mut keys = self.tasks_where(|task| doomed.covers(task));
        keys.retain(|key| *key != by);
        let lost = self.nexuses_of(&keys);
        let barrier = self.barriers.open(Behind::Task { key: by, lost });
        for key in keys {
            self.abort_task(key, Some(barrier));
        }
        self.abort_on_others(barrier, &doomed);
        self.barriers.close(barrier);
        if let Some(running) = self.tasks.get_mut(by) {
            running.waiting = Waiting::Aborts;
            running.aborted_others = true;
            let id = running.connection;
            self.touch(id);
        }
    }

    pub(super) fn aborts_done(&mut self, key: TaskKey, lost: Vec<NexusId>) {
        self.drive(key, Input::Aborted { lost });
    }

    /// The connection is gone: so are its tasks. `barrier` learns when no store works for them any more.
    pub(super) fn abandon_tasks(&mut self, id: ConnectionId, barrier: Option<BarrierKey>) {
        let Some(conn) = self.connections.get_mut(id) else { return };
        let keys: Vec<TaskKey> = conn.tasks.keys().collect();
        for key in keys {
            self.abort_task(key, barrier);
        }
    }

    /// The tasks that `concerns` holds for.
    pub(super) fn tasks_where(&self, concerns: impl Fn(&RunningTask) -> bool) -> Vec<TaskKey> {
        self.tasks.iter().filter(|(_, running)| concerns(running)).map(|(key, _)| key).collect()
    }
}

/// Where a command priority stands among others: those that have none come last.
fn rank(priority: u8) -> u8 {
    priority.wrapping_sub(1)
}

/// From the session's words to the device's. RFC 7143 section 11.3.1: an untagged task is treated as a simple one.
fn device_attribute(attribute: lunette_pdu::TaskAttribute) -> TaskAttribute {
    match attribute {
        lunette_pdu::TaskAttribute::ORDERED => TaskAttribute::Ordered,
        lunette_pdu::TaskAttribute::HEAD_OF_QUEUE => TaskAttribute::HeadOfQueue,
        lunette_pdu::TaskAttribute::ACA => TaskAttribute::Aca,
        _ => TaskAttribute::Simple,
    }
}
