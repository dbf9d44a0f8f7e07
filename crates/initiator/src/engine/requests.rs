//! The requests of a session, from their submission to their end.

use std::collections::VecDeque;
use std::time::Duration;

use lunette_pdu::{LunField, Residual};
use lunette_scsi::{SenseData, SenseKey, Status};
use lunette_session::Time;
use lunette_session::initiator::{Command, Response, Session, TaskTag};
use slotmap::{DenseSlotMap, Key as _, KeyData, new_key_type};

use super::judge::{Verdict, judge};
use super::{Ticket, refuse};
use crate::Error;
use crate::limits::{MAX_REPEATS, MAX_WAITING_REQUESTS, TIMEOUT_TICK};
use crate::request::{Completion, Outcome, Repeat, Reply, Request};

new_key_type! {
    struct RequestKey;
}

/// Where a request is.
enum Stage {
    /// Not sent, or to be sent again.
    Waiting(Command),
    /// The target has it.
    Sent(TaskTag),
    /// Its abort was asked for.
    Aborting { tag: TaskTag, asked: Asked, since: Time },
}

/// How far the abort of a request has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    AbortTask,
    LogicalUnitReset,
}

struct Entry {
    ticket: Ticket,
    /// None: nobody waits for it any more.
    completion: Option<Completion>,
    command: &'static str,
    repeat: Repeat,
    repeats: u32,
    timeout: Duration,
    deadline: Time,
    lun: LunField,
    stage: Option<Stage>,
}

/// An abort to be asked for, and where.
pub(super) struct Abort {
    pub(super) tag: TaskTag,
    pub(super) lun: LunField,
    pub(super) step: Step,
}

/// What to do about a task that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    AbortTask,
    LogicalUnitReset,
    /// Nothing helps but a new connection.
    Reconnect,
}

/// All requests of one session. A command carries the key of its request through the protocol.
#[derive(Default)]
pub(super) struct Requests {
    entries: DenseSlotMap<RequestKey, Entry>,
    /// To be sent, oldest first.
    waiting: VecDeque<RequestKey>,
    /// To be sent later.
    resting: Vec<(Time, RequestKey)>,
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes a request, or ends it when there are too many.
    pub(super) fn accept(
        &mut self,
        ticket: Ticket,
        request: Request,
        completion: Completion,
        timeout: Duration,
        now: Time,
    ) {
        if self.waiting.len() >= MAX_WAITING_REQUESTS {
            let error = Error::TooMuch { what: "the number of requests that wait", limit: MAX_WAITING_REQUESTS };
            return refuse(request, completion, error);
        }
        let command_name = request.name();
        let Request { lun, cdb, cdb_rest, attribute, data_out, data_in, repeat, timeout: own } = request;
        let timeout = own.unwrap_or(timeout);
        let lun = LunField(lun.encode());
        let key = self.entries.insert(Entry {
            ticket,
            completion: Some(completion),
            command: command_name,
            repeat,
            repeats: 0,
            timeout,
            deadline: now + timeout,
            lun,
            stage: None,
        });
        let user = key.data().as_ffi();
        let command = Command { user, lun, cdb, cdb_rest, attribute, data_out, data_in };
        self.entries[key].stage = Some(Stage::Waiting(command));
        self.waiting.push_back(key);
    }

    /// Sends what waits, as far as the target's window goes.
    pub(super) fn send(&mut self, session: &mut Session, now: Time) {
        while session.room() > 0
            && let Some(key) = self.waiting.pop_front()
        {
            let Some(entry) = self.entries.get_mut(key) else { continue };
            let Some(Stage::Waiting(command)) = entry.stage.take() else { continue };
            match session.submit(command, now) {
                Ok(tag) => entry.stage = Some(Stage::Sent(tag)),
                Err(command) => {
                    entry.stage = Some(Stage::Waiting(command));
                    self.waiting.push_front(key);
                    return;
                }
            }
        }
    }

    /// A command has ended at the target. Gives the unit attention, when that was how.
    pub(super) fn completed(&mut self, command: Command, response: Response, now: Time) -> Option<SenseData> {
        let key = RequestKey::from(KeyData::from_ffi(command.user));
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
        match judge(entry.repeat, entry.repeats, status, sense.as_ref()) {
            Verdict::Again { after } if wanted => {
                entry.repeats += 1;
                entry.stage = Some(Stage::Waiting(command));
                if after.is_zero() {
                    self.waiting.push_front(key);
                } else {
                    self.resting.push((now + after, key));
                }
            }
            Verdict::Again { .. } | Verdict::Tell => {
                let reply = Reply {
                    command: entry.command,
                    status,
                    sense: response.sense,
                    data_in_len: response.data_in_len,
                    residual: response.residual.filter(|residual| *residual != Residual::None),
                };
                self.end(key, command, Ok(reply));
            }
        }
        attention
    }

    /// A command was ended by task management, or lost with its connection: nobody knows whether it ran.
    pub(super) fn lost(&mut self, command: Command) -> Option<u64> {
        let key = RequestKey::from(KeyData::from_ffi(command.user));
        let entry = self.entries.get_mut(key)?;
        let error = match entry.stage {
            Some(Stage::Aborting { .. }) => Error::TimedOut { command: entry.command, timeout: entry.timeout },
            _ if entry.completion.is_some() && entry.repeat == Repeat::Always && entry.repeats < MAX_REPEATS => {
                entry.repeats += 1;
                entry.stage = Some(Stage::Waiting(command));
                return Some(key.data().as_ffi());
            }
            _ => Error::InDoubt { command: entry.command },
        };
        self.end(key, command, Err(error));
        None
    }

    /// Puts lost commands in front of all others, in their old order, to be sent again.
    pub(super) fn replay(&mut self, lost: Vec<Command>) {
        let again: Vec<u64> = lost.into_iter().filter_map(|command| self.lost(command)).collect();
        for user in again.into_iter().rev() {
            self.waiting.push_front(RequestKey::from(KeyData::from_ffi(user)));
        }
    }

    /// Ends everything: the session is over. `lost` are the commands that the target had.
    pub(super) fn fail(&mut self, lost: Vec<Command>, error: &Error) {
        for command in lost {
            let key = RequestKey::from(KeyData::from_ffi(command.user));
            self.end(key, command, Err(error.clone()));
        }
        let waiting: Vec<RequestKey> = self.entries.keys().collect();
        for key in waiting {
            if let Some(Stage::Waiting(command)) = self.entries[key].stage.take() {
                self.end(key, command, Err(error.clone()));
            }
        }
        self.entries.clear();
        self.waiting.clear();
        self.resting.clear();
    }

    fn end(&mut self, key: RequestKey, command: Command, result: Result<Reply, Error>) {
        let Some(completion) = self.entries.remove(key).and_then(|entry| entry.completion) else { return };
        let Command { data_in, data_out, .. } = command;
        completion.complete(Outcome { result, data_in, data_out });
    }

    /// Nobody waits for this request any more. Gives the abort to ask for, when the target has it.
    pub(super) fn cancel(&mut self, ticket: Ticket, now: Time) -> Option<Abort> {
        let (key, entry) = self.entries.iter_mut().find(|(_, entry)| entry.ticket == ticket)?;
        entry.completion = None;
        match entry.stage {
            Some(Stage::Sent(tag)) => Some(entry.abort(tag, Asked::AbortTask, now)),
            Some(Stage::Waiting(_)) => {
                self.entries.remove(key);
                None
            }
            _ => None,
        }
    }

    /// When [`time_has_come`](Self::time_has_come) should be called, at the latest.
    pub(super) fn next_check(&self, now: Time) -> Option<Time> {
        let tick = (!self.entries.is_empty()).then(|| now + TIMEOUT_TICK);
        self.resting.iter().map(|(at, _)| *at).chain(tick).min()
    }

    /// Sees to what is due: pauses that are over, requests that take too long, aborts that do not help.
    pub(super) fn time_has_come(&mut self, abort_timeout: Duration, now: Time) -> Vec<Abort> {
        self.resting.retain(|(at, key)| {
            let due = *at <= now;
            if due {
                self.waiting.push_back(*key);
            }
            !due
        });
        let mut aborts = Vec::new();
        let mut overdue = Vec::new();
        for (key, entry) in &mut self.entries {
            match entry.stage {
                Some(Stage::Waiting(_)) if entry.deadline <= now => overdue.push(key),
                Some(Stage::Sent(tag)) if entry.deadline <= now => {
                    aborts.push(entry.abort(tag, Asked::AbortTask, now));
                }
                Some(Stage::Aborting { tag, asked, since }) if since + abort_timeout <= now => {
                    let mut abort = entry.abort(tag, Asked::LogicalUnitReset, now);
                    if asked == Asked::LogicalUnitReset {
                        abort.step = Step::Reconnect;
                    }
                    aborts.push(abort);
                }
                _ => {}
            }
        }
        for key in overdue {
            let entry = &mut self.entries[key];
            let error = Error::TimedOut { command: entry.command, timeout: entry.timeout };
            if let Some(Stage::Waiting(command)) = entry.stage.take() {
                self.end(key, command, Err(error));
            }
        }
        aborts
    }
}

impl Entry {
    fn abort(&mut self, tag: TaskTag, asked: Asked, now: Time) -> Abort {
        self.stage = Some(Stage::Aborting { tag, asked, since: now });
        let step = match asked {
            Asked::AbortTask => Step::AbortTask,
            Asked::LogicalUnitReset => Step::LogicalUnitReset,
        };
        Abort { tag, lun: self.lun, step }
    }
}
