//! The requests of a session, from their submission to their end.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use lunette_buffer::Buffer;
use lunette_pdu::{LunField, Residual, TaskManagementFunction};
use lunette_reactor::{Key, Slab};
use lunette_scsi::{SenseData, SenseKey, Status};
use lunette_session::Time;
use lunette_session::iscsi_initiator::{Command, Response, Session, TaskTag};

use super::retry::{self, Decision};
use super::{RequestId, refuse};
use crate::Error;
use crate::limits::{MAX_CDB_BYTES, MAX_REPEATS, MAX_REQUEST_BYTES, MAX_UNFINISHED_REQUESTS};
use crate::request::{Completion, Outcome, Repeat, Reply, Request};

/// The user data of task management requests of the session itself; those of callers count from zero.
pub(super) const OWN: u64 = u64::MAX;

/// The stage of a request.
enum Stage {
    /// The command was not sent, or is to be sent again.
    Waiting(Command),
    /// The target has the command.
    Sent(TaskTag),
    /// The command is to be aborted.
    Aborting { tag: TaskTag, asked: Asked, since: Time },
}

/// The last step of the abort of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Nothing was sent: the protocol had no room for another task management request yet.
    Nothing,
    AbortTask,
    LogicalUnitReset,
}

struct Entry {
    id: RequestId,
    /// `None` once the request was cancelled.
    completion: Option<Completion>,
    command: &'static str,
    repeat: Repeat,
    repeats: u32,
    /// The position of the request among all, in the order of submission.
    order: u64,
    timeout: Duration,
    deadline: Time,
    lun: LunField,
    stage: Option<Stage>,
}

/// The next step when an abort has not ended the task in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escalation {
    LogicalUnitReset(LunField),
    /// Lose the connection and make a new one.
    Reconnect,
}

/// All requests of one session. A command carries the key of its request through the protocol, as its user data.
#[derive(Default)]
pub(super) struct Requests {
    entries: Slab<Entry>,
    /// The requests to be sent, in the order of submission.
    waiting: VecDeque<(u64, Key)>,
    /// The requests to be sent after a pause.
    resting: BinaryHeap<Reverse<(Time, Key)>>,
    /// The requests to be aborted, once the protocol accepts another task management request.
    to_abort: VecDeque<Key>,
    last_order: u64,
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Accepts a request, or ends it if it exceeds a limit.
    pub(super) fn accept(
        &mut self,
        id: RequestId,
        request: Request,
        completion: Completion,
        timeout: Duration,
        now: Time,
    ) {
        if let Some(error) = self.too_much(&request) {
            return refuse(request, completion, error);
        }
        let command_name = request.name();
        let Request { lun, cdb, cdb_rest, attribute, priority, data_out, data_in, block_len, repeat, timeout: own } =
            request;
        let timeout = own.unwrap_or(timeout);
        let lun = LunField(lun.encode());
        self.last_order += 1;
        let order = self.last_order;
        let key = self.entries.next_key();
        let user = key.to_u64();
        let command = Command { user, lun, cdb, cdb_rest, attribute, priority, data_out, data_in, block_len };
        self.entries.insert(Entry {
            id,
            completion: Some(completion),
            command: command_name,
            repeat,
            repeats: 0,
            order,
            timeout,
            deadline: now + timeout,
            lun,
            stage: Some(Stage::Waiting(command)),
        });
        self.waiting.push_back((order, key));
    }

    fn too_much(&self, request: &Request) -> Option<Error> {
        let too_much = |what, limit| Some(Error::TooMuch { what, limit });
        let data_in_len = request.data_in.as_ref().map_or(0, Buffer::len);
        let longest = data_in_len.max(request.data_out.as_deref().map_or(0, <[u8]>::len));
        if self.entries.len() >= MAX_UNFINISHED_REQUESTS {
            too_much("the number of unfinished requests", MAX_UNFINISHED_REQUESTS)
        } else if longest > MAX_REQUEST_BYTES {
            too_much("the length of a request", MAX_REQUEST_BYTES)
        } else if request.cdb.len() + request.cdb_rest.len() > MAX_CDB_BYTES {
            too_much("the length of the CDB", MAX_CDB_BYTES)
        } else {
            None
        }
    }

    /// Puts a request in its position among those that wait.
    fn wait(&mut self, key: Key) {
        let Some(order) = self.entries.get(key).map(|entry| entry.order) else { return };
        let at = self.waiting.partition_point(|(other, _)| *other < order);
        self.waiting.insert(at, (order, key));
    }

    /// Sends aborts and waiting requests, as far as the command window allows.
    pub(super) fn send(&mut self, session: &mut Session, now: Time) {
        self.send_aborts(session, now);
        while session.room() > 0
            && let Some((order, key)) = self.waiting.pop_front()
        {
            let Some(entry) = self.entries.get_mut(key) else { continue };
            let Some(Stage::Waiting(command)) = entry.stage.take() else { continue };
            match session.submit(command, now) {
                Ok(tag) => entry.stage = Some(Stage::Sent(tag)),
                Err(command) => {
                    entry.stage = Some(Stage::Waiting(command));
                    self.waiting.push_front((order, key));
                    return;
                }
            }
        }
    }

    fn send_aborts(&mut self, session: &mut Session, now: Time) {
        while let Some(key) = self.to_abort.front() {
            if let Some(Entry {
                lun, stage: Some(Stage::Aborting { tag, asked: asked @ Asked::Nothing, since }), ..
            }) = self.entries.get_mut(*key)
            {
                if !session.manage_tasks(OWN, TaskManagementFunction::ABORT_TASK, *lun, Some(*tag)) {
                    return;
                }
                (*asked, *since) = (Asked::AbortTask, now);
            }
            self.to_abort.pop_front();
        }
    }

    /// A command has ended at the target. Gives its unit attention, if it has one.
    pub(super) fn completed(&mut self, command: Command, response: Response, now: Time) -> Option<SenseData> {
        let key = Key::from_u64(command.user);
        let entry = self.entries.get_mut(key)?;
        let status = Status(response.status);
        if response.response != 0 {
            let error = Error::TargetFailure { command: entry.command, response: response.response };
            self.end(key, command, Err(error));
            return None;
        }
        let sense = match status {
            Status::GOOD => None,
            _ => SenseData::decode(&response.sense).ok(),
        };
        let attention = sense.filter(|sense| sense.key == SenseKey::UNIT_ATTENTION);
        let wanted = matches!(entry.stage, Some(Stage::Sent(_))) && entry.completion.is_some();
        match retry::decide(entry.repeat, entry.repeats, status, response.status_qualifier, sense.as_ref()) {
            Decision::Retry { after } if wanted => {
                entry.repeats += 1;
                entry.stage = Some(Stage::Waiting(command));
                if after.is_zero() {
                    self.wait(key);
                } else {
                    self.resting.push(Reverse((now + after, key)));
                }
            }
            Decision::Retry { .. } | Decision::Report => {
                let reply = Reply {
                    command: entry.command,
                    status,
                    status_qualifier: response.status_qualifier,
                    sense: response.sense,
                    data_in_len: response.data_in_len,
                    residual: response.residual.filter(|residual| *residual != Residual::None),
                    read_residual: response.read_residual.filter(|residual| *residual != Residual::None),
                };
                self.end(key, command, Ok(reply));
            }
        }
        attention
    }

    /// A command was ended by task management, or lost with its connection, so it may have run. It is sent again, in its old
    /// position, if it may run twice.
    pub(super) fn lost(&mut self, command: Command) {
        let key = Key::from_u64(command.user);
        let Some(entry) = self.entries.get_mut(key) else { return };
        let error = match entry.stage {
            Some(Stage::Aborting { .. }) => Error::TimedOut { command: entry.command, timeout: entry.timeout },
            _ if entry.completion.is_some() && entry.repeat == Repeat::Always && entry.repeats < MAX_REPEATS => {
                entry.repeats += 1;
                entry.stage = Some(Stage::Waiting(command));
                return self.wait(key);
            }
            _ => Error::InDoubt { command: entry.command },
        };
        self.end(key, command, Err(error));
    }

    /// Ends all requests, since the session has ended. `lost` are the commands that the target had.
    pub(super) fn fail(&mut self, lost: Vec<Command>, error: &Error) {
        for command in lost {
            let key = Key::from_u64(command.user);
            self.end(key, command, Err(error.clone()));
        }
        for entry in self.entries.drain() {
            if let (Some(Stage::Waiting(command)), Some(completion)) = (entry.stage, entry.completion) {
                tell(completion, command, Err(error.clone()));
            }
        }
        self.waiting.clear();
        self.resting.clear();
        self.to_abort.clear();
    }

    fn end(&mut self, key: Key, command: Command, result: Result<Reply, Error>) {
        if let Some(completion) = self.entries.remove(key).and_then(|entry| entry.completion) {
            tell(completion, command, result);
        }
    }

    /// Cancels a request: aborts its task if it was sent.
    pub(super) fn cancel(&mut self, id: RequestId, now: Time) {
        let Some((key, entry)) = self.entries.iter_mut().find(|(_, entry)| entry.id == id) else { return };
        entry.completion = None;
        match entry.stage {
            Some(Stage::Sent(tag)) => {
                entry.stage = Some(Stage::Aborting { tag, asked: Asked::Nothing, since: now });
                self.to_abort.push_back(key);
            }
            Some(Stage::Waiting(_)) => {
                if let Ok(at) = self.waiting.binary_search_by_key(&entry.order, |(order, _)| *order) {
                    self.waiting.remove(at);
                }
                self.entries.remove(key);
            }
            _ => {}
        }
    }

    /// The task of a request that the target has, and its logical unit.
    pub(super) fn task_of(&self, id: RequestId) -> Option<(LunField, TaskTag)> {
        let entry = self.entries.iter().map(|(_, entry)| entry).find(|entry| entry.id == id)?;
        match entry.stage {
            Some(Stage::Sent(tag) | Stage::Aborting { tag, .. }) => Some((entry.lun, tag)),
            _ => None,
        }
    }

    /// The end of the first pause.
    pub(super) fn next_rested(&self) -> Option<Time> {
        self.resting.peek().map(|Reverse((at, _))| *at)
    }

    /// Handles what is due: pauses that end, requests past their deadline, aborts without effect.
    pub(super) fn time_has_come(&mut self, abort_timeout: Duration, now: Time) -> Vec<Escalation> {
        while self.next_rested().is_some_and(|at| at <= now)
            && let Some(Reverse((_, key))) = self.resting.pop()
        {
            self.wait(key);
        }
        let (overdue, escalations) = self.take_too_long(abort_timeout, now);
        self.time_out(&overdue);
        self.share_resets(&escalations, now);
        escalations
    }

    /// Starts aborts of sent requests that are past their deadline. Gives the overdue requests that were not sent, and the next steps
    /// for aborts without effect.
    fn take_too_long(&mut self, abort_timeout: Duration, now: Time) -> (Vec<Key>, Vec<Escalation>) {
        let mut overdue = Vec::new();
        let mut escalations = Vec::new();
        for (key, entry) in self.entries.iter_mut() {
            match &mut entry.stage {
                Some(Stage::Waiting(_)) if entry.deadline <= now => overdue.push(key),
                Some(Stage::Sent(tag)) if entry.deadline <= now => {
                    entry.stage = Some(Stage::Aborting { tag: *tag, asked: Asked::Nothing, since: now });
                    self.to_abort.push_back(key);
                }
                Some(Stage::Aborting { asked, since, .. }) if *since + abort_timeout <= now => {
                    let escalation = match asked {
                        Asked::Nothing | Asked::AbortTask => Escalation::LogicalUnitReset(entry.lun),
                        Asked::LogicalUnitReset => Escalation::Reconnect,
                    };
                    (*asked, *since) = (Asked::LogicalUnitReset, now);
                    if !escalations.contains(&escalation) {
                        escalations.push(escalation);
                    }
                }
                _ => {}
            }
        }
        (overdue, escalations)
    }

    /// Ends requests that could not be sent in time.
    fn time_out(&mut self, overdue: &[Key]) {
        for key in overdue {
            let Some(entry) = self.entries.get_mut(*key) else { continue };
            let error = Error::TimedOut { command: entry.command, timeout: entry.timeout };
            if let Some(Stage::Waiting(command)) = entry.stage.take() {
                self.end(*key, command, Err(error));
            }
        }
        if !overdue.is_empty() {
            self.waiting.retain(|(_, key)| self.entries.get(*key).is_some());
        }
    }

    /// A reset of a logical unit ends all its tasks, so one is enough for all requests to be aborted there.
    fn share_resets(&mut self, escalations: &[Escalation], now: Time) {
        for (_, entry) in self.entries.iter_mut() {
            if let Some(Stage::Aborting { asked, since, .. }) = &mut entry.stage
                && *asked != Asked::LogicalUnitReset
                && escalations.contains(&Escalation::LogicalUnitReset(entry.lun))
            {
                (*asked, *since) = (Asked::LogicalUnitReset, now);
            }
        }
    }
}

/// Ends a request, and gives its buffers back.
fn tell(completion: Completion, command: Command, result: Result<Reply, Error>) {
    let Command { data_in, data_out, .. } = command;
    completion.complete(Outcome { result, data_in, data_out });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use lunette_scsi::Lun;

    use super::*;

    const NOW: Time = Time::new(Duration::from_secs(100));

    fn accept(requests: &mut Requests, id: u64, request: Request) -> std::sync::mpsc::Receiver<Outcome> {
        let (ended, end) = channel();
        let completion = Completion::call(move |outcome| drop(ended.send(outcome)));
        requests.accept(RequestId(id), request, completion, Duration::from_secs(30), NOW);
        end
    }

    fn command() -> Request {
        Request { repeat: Repeat::Always, ..Request::new(Lun::ZERO, [0; 16]) }
    }

    #[test]
    fn what_is_sent_again_has_its_old_place() {
        let mut requests = Requests::default();
        let _ends: Vec<_> = (0..4).map(|id| accept(&mut requests, id, command())).collect();
        let sent: Vec<_> = requests.waiting.drain(..3).collect();
        // As the events of a reset bring them, one by one.
        for (_, key) in &sent {
            let Some(Stage::Waiting(command)) = requests.entries.get_mut(*key).unwrap().stage.take() else {
                panic!("not waiting")
            };
            requests.lost(command);
        }
        let orders: Vec<u64> = requests.waiting.iter().map(|(order, _)| *order).collect();
        assert_eq!(orders, [1, 2, 3, 4]);
    }

    #[test]
    fn what_was_cancelled_or_timed_out_makes_room() {
        let mut requests = Requests::default();
        for id in 0..2 * MAX_UNFINISHED_REQUESTS as u64 {
            let end = accept(&mut requests, id, command());
            assert!(end.try_recv().is_err(), "request {id} is taken");
            requests.cancel(RequestId(id), NOW);
        }
        assert!(requests.waiting.is_empty());
        let end = accept(&mut requests, 0, command());
        requests.time_has_come(Duration::from_secs(5), NOW + Duration::from_secs(30));
        assert!(matches!(end.try_recv().unwrap().result, Err(Error::TimedOut { .. })));
        assert!(requests.waiting.is_empty() && requests.is_empty());
    }

    #[test]
    fn what_fits_no_header_ends_at_once() {
        let mut requests = Requests::default();
        let end = accept(&mut requests, 0, Request { cdb_rest: vec![0; 245].into(), ..command() });
        assert!(matches!(end.try_recv().unwrap().result, Err(Error::TooMuch { .. })));
        let end = accept(&mut requests, 1, Request { cdb_rest: vec![0; 244].into(), ..command() });
        assert!(end.try_recv().is_err());
    }
}
