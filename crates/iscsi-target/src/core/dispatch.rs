//! Tasks and their connections: commands become tasks, and the effects of tasks are applied to connections, barriers
//! and cores.

use std::sync::Arc;

use lunette_buffer::{Buffer, Payload};
use lunette_device::{Command as DeviceCommand, Input, LogicalUnit, NexusId, Response as DeviceResponse};
use lunette_reactor::{ConnectionId, Key, is_in_page_cache};
use lunette_scsi::{AdditionalSense, Cdb, Lun, SenseData, SenseFormat, Status, TaskAttribute};
use lunette_session::Time;
use lunette_session::iscsi_target::{Command, Connection, Response, TaskTag};

use super::Core;
use super::quiesced::OnQuiesced;
use super::stop::STOP_FLUSH_TAG;
use super::tasks::{AbortScope, Aborting, BarrierKey, Effect, RunningTask, TaskKey};
use super::updates::REMOVAL_FLUSH_TAG;

impl Core {
    pub(super) fn start_task(&mut self, id: ConnectionId, command: &Command) {
        let Some(conn) = self.connections.of_event(id) else { return };
        // A reset may have ended the nexus, while the connection still sends its last answer.
        let (Some(nexus), Some(device)) = (&conn.nexus, &conn.device) else { return };
        let Ok(cdb) = Cdb::extended(command.cdb, &command.cdb_rest) else {
            let sense = SenseData::illegal_request(AdditionalSense::INVALID_FIELD_IN_CDB);
            let sense = sense.encode(SenseFormat::Fixed).to_vec();
            let response = Response { status: Status::CHECK_CONDITION.0, sense, ..Response::default() };
            self.connections.refuse(id, command.task, response);
            return;
        };
        let (attribute, opcode) = (device_attribute(command.attribute), cdb.opcode());
        let now = self.tasks.stopwatch().read();
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
        let running = RunningTask::new(task, id, command, device, nexus.id(), &conn.account, now);
        let (key, begins) = self.tasks.add(running, attribute, opcode);
        conn.tasks.insert(command.task, key);
        if begins {
            self.drive(key, Input::Start);
        }
    }

    pub(super) fn data_arrived(&mut self, id: ConnectionId, tag: TaskTag, buffer: Buffer) {
        let key = self.connections.get_mut(id).and_then(|conn| conn.tasks.get(tag));
        if let Some(key) = key {
            self.drive(key, Input::DataOut(buffer));
        }
    }

    // What tasks come to.

    /// Steps a task until it waits for something that is not here.
    pub(super) fn drive(&mut self, key: TaskKey, input: Input) {
        let effect = self.tasks.drive(key, input, &mut self.buffers);
        self.apply_effect(key, effect);
    }

    #[inline]
    fn apply_effect(&mut self, key: TaskKey, effect: Effect) {
        match effect {
            Effect::Stale | Effect::Waits => {}
            Effect::WantsData { connection, tag, buffer } => {
                self.connections.want_data(connection, tag, buffer);
            }
            Effect::AsksForFile { connection, slice } => {
                let may = !connection.is_virtual()
                    && self.connections.protocol(connection).is_some_and(Connection::sends_files)
                    && is_in_page_cache(&slice);
                self.drive(key, Input::File(may));
            }
            Effect::Aborts { connection, nexuses, unit } => self.abort_for(key, connection, nexuses, unit),
            Effect::Ended { connection, tag, response, slow } => {
                if let (Some(slow), Some(conn)) = (slow, self.connections.get(connection)) {
                    conn.log_slow(&slow);
                }
                self.connections.answer(connection, tag, response);
            }
            Effect::Reaped { barriers } => {
                for barrier in barriers {
                    self.barriers.one_less(barrier);
                }
            }
        }
    }

    /// Ends a task with this response.
    pub(super) fn end_task(&mut self, key: TaskKey, response: DeviceResponse) {
        let effect = self.tasks.end(key, response);
        self.apply_effect(key, effect);
    }

    /// Takes the completions that are there. Those that come of them, when a store answers at once, are left for the
    /// next call: one command may be thousands of requests to its store. Tells whether there were any.
    pub(super) fn take_completions(&mut self) -> bool {
        let mut outcomes = self.tasks.take_outcomes();
        let any = !outcomes.is_empty();
        for (tag, outcome) in outcomes.drain(..) {
            match tag {
                STOP_FLUSH_TAG => self.lifecycle.store_flushed(outcome),
                REMOVAL_FLUSH_TAG => self.lifecycle.removed_flushed(&outcome),
                tag => {
                    let key = Key::from_u64(tag);
                    let effect = self.tasks.complete(key, outcome, &mut self.buffers);
                    self.apply_effect(key, effect);
                }
            }
        }
        self.tasks.recycle(outcomes);
        any
    }

    /// Begins the tasks that their task sets hold no more.
    pub(super) fn begin_ready(&mut self) {
        while let Some(key) = self.tasks.next_ready() {
            self.drive(key, Input::Start);
        }
    }

    // Tasks that wait.

    /// Gives buffers to tasks that wait for them.
    pub(super) fn feed_waiting(&mut self) {
        for _ in 0..self.buffers.begin_round() {
            let Some(waiter) = self.buffers.next_waiter() else { return };
            let key = waiter.task;
            match self.tasks.feed(key, &mut self.buffers) {
                Some(effect) => self.apply_effect(key, effect),
                None if self.holds_up_its_data(key) => self.end_task(key, task_set_full()),
                None => self.buffers.wait_again(waiter),
            }
        }
    }

    /// Lets connections give back what they keep to be able to send it again (ErrorRecoveryLevel 1 and above), while
    /// tasks wait for buffers.
    pub(super) fn make_room(&mut self, now: Time) {
        if !self.buffers.has_waiting() {
            return;
        }
        let holders = self.tasks.holders_of_wanted(&self.buffers);
        for id in holders.unwrap_or_else(|| self.connections.ids_where(|_| true)) {
            if let Some((conn, mut protocol)) = self.connections.link(id)
                && protocol.make_room(now)
            {
                conn.answers.resize(protocol.answer_bytes());
                self.touch(id);
            }
        }
    }

    /// A task that is held does not take its data, which may stand in the stream before the data of a task that it
    /// waits for. That would be waiting for ever: it is told to retry.
    pub(super) fn give_up_stalled(&mut self) {
        for key in self.tasks.held() {
            if self.holds_up_its_data(key) {
                self.end_task(key, task_set_full());
            }
        }
    }

    /// Whether a task without a buffer keeps the data of others, which have theirs, from being read: its own data
    /// stands before it in the stream. Waiting for their end would be waiting for ever.
    fn holds_up_its_data(&self, key: TaskKey) -> bool {
        let Some((id, tag)) = self.tasks.get(key).map(RunningTask::address) else { return false };
        self.connections.protocol(id).is_some_and(|protocol| protocol.stopped_by() == Some(tag))
            && (self.keeps_data_waiting(id) || self.keeps_siblings_waiting(id))
    }

    /// Whether a connection is not read from while tasks of it wait for data.
    pub(super) fn keeps_data_waiting(&self, id: ConnectionId) -> bool {
        self.connections.protocol(id).is_some_and(|protocol| !protocol.wants_input())
            && self.connections.get(id).is_some_and(|conn| {
                let mut tasks = conn.tasks.keys().filter_map(|other| self.tasks.get(other));
                tasks.any(RunningTask::waits_for_data)
            })
    }

    // Abortion.

    /// Ends a task without a response. What its store is doing goes on; `barrier` learns when it is done.
    pub(super) fn abort_task(&mut self, key: TaskKey, barrier: Option<BarrierKey>) {
        let Some(task) = self.tasks.get(key) else { return };
        let (id, tag) = task.address();
        let conn = if task.is_orphan() { None } else { self.connections.forget_task(id, tag) };
        let session = conn.and_then(|conn| conn.session.as_ref());
        if self.tasks.abort(key, session, barrier)
            && let Some(barrier) = barrier
        {
            self.barriers.one_more(barrier);
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
    fn abort_for(
        &mut self,
        by: TaskKey,
        connection: ConnectionId,
        nexuses: Vec<(NexusId, Lun)>,
        unit: Arc<LogicalUnit>,
    ) {
        self.abort_nexuses(nexuses, unit, Some(by), |lost| OnQuiesced::Resume { key: by, lost });
        self.touch(connection);
    }

    /// Ends the tasks that background work wants to end: those that another server of their unit has preempted.
    pub(super) fn abort_for_background(&mut self) {
        for Aborting { by, nexuses, unit } in self.tasks.take_aborting() {
            self.abort_nexuses(nexuses, unit, None, |lost| OnQuiesced::ResumeBackground { key: by, lost });
        }
    }

    /// Ends the tasks of these nexuses on `unit`, all but `spared`. What comes `then` learns which nexuses lost tasks.
    fn abort_nexuses(
        &mut self,
        nexuses: Vec<(NexusId, Lun)>,
        unit: Arc<LogicalUnit>,
        spared: Option<TaskKey>,
        then: impl FnOnce(Vec<NexusId>) -> OnQuiesced,
    ) {
        let scope = AbortScope::Nexuses { nexuses, unit };
        let mut keys = self.tasks.tasks_where(|task| scope.covers(task));
        keys.retain(|key| Some(*key) != spared);
        let lost = self.tasks.nexuses_of(&keys);
        let barrier = self.barriers.open(then(lost));
        for key in keys {
            self.abort_task(key, Some(barrier));
        }
        self.abort_on_others(barrier, &scope);
        self.barriers.close(barrier);
    }

    /// The connection is gone: so are its tasks. `barrier` learns when no store works for them any more.
    pub(super) fn abandon_tasks(&mut self, id: ConnectionId, barrier: Option<BarrierKey>) {
        let keys = self.connections.get(id).map(|conn| conn.tasks.keys().collect::<Vec<_>>());
        for key in keys.unwrap_or_default() {
            self.abort_task(key, barrier);
        }
    }
}

/// Tells the initiator to come again (SAM-5 5.3.1).
fn task_set_full() -> DeviceResponse {
    DeviceResponse {
        status: Status::TASK_SET_FULL,
        status_qualifier: 0,
        sense: None,
        data_in: Payload::Empty,
        digests: None,
        edu_len: 0,
        data_out_transfer_len: 0,
    }
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
