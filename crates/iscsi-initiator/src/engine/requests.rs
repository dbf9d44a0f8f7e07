//! The requests of a session, from their submission to their end.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use lunette_buffer::{Buffer, SharedBuffer};
use lunette_pdu::{LunField, TaskManagementFunction};
use lunette_reactor::{Key, Slab};
use lunette_scsi::{SenseData, SenseKey, Status};
use lunette_session::Time;
use lunette_session::iscsi_initiator::{Command, Response, Session, TaskTag};

use super::retry::{self, Decision};
use crate::Error;
use crate::limits::{MAX_CDB_BYTES, MAX_REPEATS, MAX_REQUEST_BYTES, MAX_UNFINISHED_REQUESTS};
use crate::request::{Completion, Repeat, Reply, RequestId, Submission, name};

/// The user data of task management requests of the session itself; those of callers count from zero.
pub(super) const OWN: u64 = u64::MAX;

/// The stage of a request.
#[derive(Clone, Copy)]
enum Stage {
    /// The command was not sent, or is to be sent again: where it is kept meanwhile.
    Waiting(Key),
    /// The target has the command.
    Sent(TaskTag),
    /// The command is to be aborted.
    Aborting { tag: TaskTag, step: AbortStep, since: Time },
}

/// The last step of the abort of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AbortStep {
    /// Nothing was sent: the protocol had no room for another task management request yet.
    Nothing,
    AbortTask,
    LogicalUnitReset,
}

struct Entry {
    id: RequestId,
    /// `None` once the request was cancelled.
    completion: Option<Completion>,
    repeat: Repeat,
    repeats: u32,
    /// The position of the request among all, in the order of submission.
    order: u64,
    timeout: Duration,
    accepted: Time,
    lun: LunField,
    stage: Stage,
}

impl Entry {
    fn is_overdue(&self, now: Time) -> bool {
        self.accepted + self.timeout <= now
    }
}

/// The next step when an abort has not ended the task in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escalation {
    LogicalUnitReset(LunField),
    /// Lose the connection and make a new one.
    Reconnect,
}

/// All requests of one session. A command carries the key of its request through the protocol, as its user data.
///
/// A request that nothing holds up is sent as it is accepted, so that its command is moved once.
#[derive(Default)]
pub(super) struct Requests {
    entries: Slab<Entry>,
    /// The commands of requests that wait or rest.
    parked: Slab<Command>,
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

    /// Accepts a request, or ends it if it exceeds a limit. It is sent over `session`, unless others are to be sent
    /// before, or the command window is closed; without a session, requests wait for one. Its time limit is `timeout`
    /// if it has none of its own.
    #[inline]
    pub(super) fn accept(
        &mut self,
        submission: &mut Submission,
        session: Option<&mut Session>,
        timeout: Duration,
        now: Time,
    ) {
        if let Some(error) = self.too_much(&submission.command) {
            return submission.refuse(error);
        }
        let Submission { id, command, completion, repeat, timeout: own } = submission;
        self.last_order += 1;
        let (order, lun) = (self.last_order, command.lun);
        let key = self.entries.next_key();
        command.user = key.to_u64();
        let session = session.filter(|_| self.waiting.is_empty() && self.to_abort.is_empty());
        let stage = if let Some(tag) = session.and_then(|session| session.try_submit(command, now)) {
            Stage::Sent(tag)
        } else {
            self.waiting.push_back((order, key));
            Stage::Waiting(self.parked.insert(command.take()))
        };
        self.entries.insert(Entry {
            id: *id,
            completion: completion.take(),
            repeat: *repeat,
            repeats: 0,
            order,
            timeout: own.unwrap_or(timeout),
            accepted: now,
            lun,
            stage,
        });
    }

    fn too_much(&self, command: &Command) -> Option<Error> {
        let too_much = |what, limit| Some(Error::TooMuch { what, limit });
        let data_in_len = command.data_in.as_ref().map_or(0, Buffer::len);
        let longest = data_in_len.max(command.data_out.as_ref().map_or(0, SharedBuffer::len));
        if self.entries.len() >= MAX_UNFINISHED_REQUESTS {
            too_much("the number of unfinished requests", MAX_UNFINISHED_REQUESTS)
        } else if longest > MAX_REQUEST_BYTES {
            too_much("the length of a request", MAX_REQUEST_BYTES)
        } else if command.cdb.len() + command.cdb_rest.len() > MAX_CDB_BYTES {
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
        while !self.waiting.is_empty()
            && session.room() > 0
            && let Some((order, key)) = self.waiting.pop_front()
        {
            let Some(command) = self.unpark(key) else { continue };
            match session.submit(command, now) {
                Ok(tag) => self.set_stage(key, Stage::Sent(tag)),
                Err(command) => {
                    self.park(key, command);
                    self.waiting.push_front((order, key));
                    return;
                }
            }
        }
    }

    fn set_stage(&mut self, key: Key, stage: Stage) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.stage = stage;
        }
    }

    /// Keeps the command of a request that is to be sent later.
    fn park(&mut self, key: Key, command: Command) {
        let parked = self.parked.insert(command);
        self.set_stage(key, Stage::Waiting(parked));
    }

    /// Takes the command of a request that waits or rests.
    fn unpark(&mut self, key: Key) -> Option<Command> {
        let Stage::Waiting(parked) = self.entries.get(key)?.stage else { return None };
        self.parked.remove(parked)
    }

    fn send_aborts(&mut self, session: &mut Session, now: Time) {
        while let Some(key) = self.to_abort.front() {
            if let Some(Entry { lun, stage: Stage::Aborting { tag, step: step @ AbortStep::Nothing, since }, .. }) =
                self.entries.get_mut(*key)
            {
                if !session.manage_tasks(OWN, TaskManagementFunction::ABORT_TASK, *lun, Some(*tag)) {
                    return;
                }
                (*step, *since) = (AbortStep::AbortTask, now);
            }
            self.to_abort.pop_front();
        }
    }

    /// A command has ended at the target. Gives its unit attention, if it has one.
    #[inline]
    pub(super) fn completed(&mut self, command: &mut Command, response: &mut Response, now: Time) -> Option<SenseData> {
        let key = Key::from_u64(command.user);
        let entry = self.entries.get_mut(key)?;
        let status = Status(response.status);
        if response.response != 0 {
            let error = Error::TargetFailure { command: name(&command.cdb), response: response.response };
            self.end(key, command, Err(error));
            return None;
        }
        let sense = match status {
            Status::GOOD => None,
            _ => SenseData::decode(&response.sense).ok(),
        };
        let attention = sense.filter(|sense| sense.key == SenseKey::UNIT_ATTENTION);
        let wanted = matches!(entry.stage, Stage::Sent(_)) && entry.completion.is_some();
        match retry::decide(entry.repeat, entry.repeats, status, response.status_qualifier, sense.as_ref()) {
            Decision::Retry { after } if wanted => {
                entry.repeats += 1;
                self.park(key, command.take());
                if after.is_zero() {
                    self.wait(key);
                } else {
                    self.resting.push(Reverse((now + after, key)));
                }
            }
            Decision::Retry { .. } | Decision::Report => {
                let completion = entry.completion.take();
                self.entries.discard(key);
                let reply = Reply {
                    command: name(&command.cdb),
                    status,
                    status_qualifier: response.status_qualifier,
                    sense: std::mem::take(&mut response.sense),
                    data_in_len: response.data_in_len,
                    residual: response.residual,
                    read_residual: response.read_residual,
                };
                if let Some(completion) = completion {
                    completion.end(command, Ok(reply));
                }
            }
        }
        attention
    }

    /// A command was ended by task management, or lost with its connection, so it may have run. It is sent again, in
    /// its old position, if it may run twice.
    pub(super) fn lost(&mut self, mut command: Command) {
        let key = Key::from_u64(command.user);
        let Some(entry) = self.entries.get_mut(key) else { return };
        let name = name(&command.cdb);
        let error = match entry.stage {
            Stage::Aborting { .. } => Error::TimedOut { command: name, timeout: entry.timeout },
            _ if entry.completion.is_some() && entry.repeat == Repeat::Always && entry.repeats < MAX_REPEATS => {
                entry.repeats += 1;
                self.park(key, command);
                return self.wait(key);
            }
            _ => Error::InDoubt { command: name },
        };
        self.end(key, &mut command, Err(error));
    }

    /// Ends all requests, since the session has ended. `lost` are the commands that the target had.
    pub(super) fn fail(&mut self, lost: Vec<Command>, error: &Error) {
        for mut command in lost {
            let key = Key::from_u64(command.user);
            self.end(key, &mut command, Err(error.clone()));
        }
        for entry in self.entries.drain() {
            if let (Stage::Waiting(parked), Some(completion)) = (entry.stage, entry.completion)
                && let Some(mut command) = self.parked.remove(parked)
            {
                completion.end(&mut command, Err(error.clone()));
            }
        }
        self.waiting.clear();
        self.resting.clear();
        self.to_abort.clear();
    }

    fn end(&mut self, key: Key, command: &mut Command, result: Result<Reply, Error>) {
        let completion = self.entries.get_mut(key).and_then(|entry| entry.completion.take());
        self.entries.discard(key);
        if let Some(completion) = completion {
            completion.end(command, result);
        }
    }

    /// Cancels a request: aborts its task if it was sent.
    pub(super) fn cancel(&mut self, id: RequestId, now: Time) {
        let Some((key, entry)) = self.entries.iter_mut().find(|(_, entry)| entry.id == id) else { return };
        entry.completion = None;
        match entry.stage {
            Stage::Sent(tag) => {
                entry.stage = Stage::Aborting { tag, step: AbortStep::Nothing, since: now };
                self.to_abort.push_back(key);
            }
            Stage::Waiting(parked) => {
                if let Ok(at) = self.waiting.binary_search_by_key(&entry.order, |(order, _)| *order) {
                    self.waiting.remove(at);
                }
                self.entries.discard(key);
                self.parked.discard(parked);
            }
            Stage::Aborting { .. } => {}
        }
    }

    /// The task of a request that the target has, and its logical unit.
    pub(super) fn task_of(&self, id: RequestId) -> Option<(LunField, TaskTag)> {
        let entry = self.entries.iter().map(|(_, entry)| entry).find(|entry| entry.id == id)?;
        match entry.stage {
            Stage::Sent(tag) | Stage::Aborting { tag, .. } => Some((entry.lun, tag)),
            Stage::Waiting(_) => None,
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

    /// Starts aborts of sent requests that are past their deadline. Gives the overdue requests that were not sent, and
    /// the next steps for aborts without effect.
    fn take_too_long(&mut self, abort_timeout: Duration, now: Time) -> (Vec<Key>, Vec<Escalation>) {
        let mut overdue = Vec::new();
        let mut escalations = Vec::new();
        for (key, entry) in self.entries.iter_mut() {
            let is_overdue = entry.is_overdue(now);
            match &mut entry.stage {
                Stage::Waiting(_) if is_overdue => overdue.push(key),
                Stage::Sent(tag) if is_overdue => {
                    entry.stage = Stage::Aborting { tag: *tag, step: AbortStep::Nothing, since: now };
                    self.to_abort.push_back(key);
                }
                Stage::Aborting { step, since, .. } if *since + abort_timeout <= now => {
                    let escalation = match step {
                        AbortStep::Nothing | AbortStep::AbortTask => Escalation::LogicalUnitReset(entry.lun),
                        AbortStep::LogicalUnitReset => Escalation::Reconnect,
                    };
                    (*step, *since) = (AbortStep::LogicalUnitReset, now);
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
            let Some(timeout) = self.entries.get(*key).map(|entry| entry.timeout) else { continue };
            if let Some(mut command) = self.unpark(*key) {
                let error = Error::TimedOut { command: name(&command.cdb), timeout };
                self.end(*key, &mut command, Err(error));
            }
        }
        if !overdue.is_empty() {
            self.waiting.retain(|(_, key)| self.entries.get(*key).is_some());
        }
    }

    /// A reset of a logical unit ends all its tasks, so one is enough for all requests to be aborted there.
    fn share_resets(&mut self, escalations: &[Escalation], now: Time) {
        for (_, entry) in self.entries.iter_mut() {
            if let Stage::Aborting { step, since, .. } = &mut entry.stage
                && *step != AbortStep::LogicalUnitReset
                && escalations.contains(&Escalation::LogicalUnitReset(entry.lun))
            {
                (*step, *since) = (AbortStep::LogicalUnitReset, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use lunette_scsi::Lun;

    use super::*;
    use crate::{Outcome, Request};

    const NOW: Time = Time::new(Duration::from_secs(100));

    fn accept(requests: &mut Requests, id: u64, request: Request) -> std::sync::mpsc::Receiver<Outcome> {
        let (ended, end) = channel();
        let completion = Completion::call(move |outcome| drop(ended.send(outcome)));
        let mut submission = Submission::new(RequestId(id), request, completion);
        requests.accept(&mut submission, None, Duration::from_secs(30), NOW);
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
            let command = requests.unpark(*key).unwrap();
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
        assert!(requests.waiting.is_empty() && requests.parked.is_empty());
        let end = accept(&mut requests, 0, command());
        requests.time_has_come(Duration::from_secs(5), NOW + Duration::from_secs(30));
        assert!(matches!(end.try_recv().unwrap().result, Err(Error::TimedOut { .. })));
        assert!(requests.waiting.is_empty() && requests.is_empty() && requests.parked.is_empty());
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
