//! Answers that wait until the initiator has received what other connections of its session sent before: response fences (RFC
//! 7143 section 4.2.2.3).
//!
//! The answer to a task management function waits in every session. Where TaskReporting is ResponseFence or FastAbort, so do
//! responses that tell of such a function of others and the end of PREEMPT AND ABORT, and whatever follows a fenced response
//! waits until that is acknowledged too.

use std::sync::Arc;

use lunette_device::{Response, TargetDevice};
use lunette_pdu::{InitiatorTaskTag, LunField, SerialNumber, TaskManagementResponseCode};
use lunette_reactor::{ConnectionId, Context};
use lunette_scsi::{SenseData, SenseKey};
use lunette_session::Time;
use lunette_session::iscsi_target::{Connection, SessionInfo, SessionKey};
use lunette_session::keys::TaskReporting;

use super::Core;
use super::running::{TaskKey, Waiting};
use super::siblings::Covered;
use crate::limits::DATA_OUT_GRACE;

/// One answer, and what it waits for.
pub(super) struct Fence {
    session: SessionKey,
    connection: ConnectionId,
    answer: Answer,
    behind: Vec<(ConnectionId, SerialNumber)>,
    data: Option<Data>,
    /// When the connections that it is behind have had time enough to acknowledge; none before it was looked at.
    until: Option<Time>,
}

impl Fence {
    /// The connection that the answer is for.
    pub(super) fn connection(&self) -> ConnectionId {
        self.connection
    }
}

enum Answer {
    TaskManagement {
        itt: InitiatorTaskTag,
        response: TaskManagementResponseCode,
        covers: Option<Covered>,
        then: Then,
    },
    /// Of a task. `fenced`: what follows waits too.
    Response {
        key: TaskKey,
        response: Response,
        fenced: bool,
    },
    /// It has been sent; what follows waits for its acknowledgement.
    Sent,
}

/// The answer to a task management function.
pub(super) struct Managed {
    pub(super) itt: InitiatorTaskTag,
    pub(super) response: TaskManagementResponseCode,
    pub(super) covers: Option<Covered>,
    pub(super) remains: Remains,
    pub(super) then: Then,
}

impl Managed {
    /// Of a function that concerns one task.
    pub(super) fn of_one(itt: InitiatorTaskTag, response: TaskManagementResponseCode) -> Self {
        Self { itt, response, covers: None, remains: Remains::Nothing, then: Then::GoOn }
    }
}

/// What follows the answer.
pub(super) enum Then {
    GoOn,
    /// All connections of a target are closed: TARGET COLD RESET.
    DropTarget(Arc<TargetDevice>),
    /// All connections of the session are closed: I_T NEXUS RESET.
    DropSession,
}

/// A connection that has tasks on a logical unit that were ended by a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Affected {
    connection: ConnectionId,
    lun: LunField,
    /// Those with smaller numbers.
    before: SerialNumber,
}

/// Data of aborted tasks that the issuing session still has to send (RFC 7143 section 4.2.3.3). Not every initiator does, so
/// it is not waited for without end.
struct Data {
    of: Remains,
    until: Time,
}

/// What may be left of the data of tasks that a task management function has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remains {
    /// Nothing that the answer waits for.
    Nothing,
    OfUnit(LunField),
    OfAll,
}

impl Remains {
    /// The logical unit; `None` for all.
    fn lun(self) -> Option<LunField> {
        if let Self::OfUnit(lun) = self { Some(lun) } else { None }
    }
}

/// Whether responses of the session are fenced: it was agreed on, and there are several connections to order.
fn fences_responses(session: &SessionInfo) -> bool {
    session.parameters.task_reporting != TaskReporting::Rfc3720 && session.parameters.max_connections > 1
}

/// Whether a response tells of tasks that others have cleared, or of a reset (RFC 7143 section 4.2.2.3.4).
fn tells_of_aborts(response: &Response) -> bool {
    const COMMANDS_CLEARED: u8 = 0x2f;
    const RESET: u8 = 0x29;
    let sense = response.sense.as_ref().and_then(|sense| SenseData::decode(sense).ok());
    sense.is_some_and(|sense| {
        sense.key == SenseKey::UNIT_ATTENTION && matches!(sense.code.asc, COMMANDS_CLEARED | RESET)
    })
}

impl Core {
    /// Answers a task management request once the initiator has acknowledged what was sent on other connections before (an
    /// answer that it has not received yet would be one to a task that is gone), and has sent what `remains` of the data of the
    /// tasks that it ended.
    pub(super) fn answer_behind_fence(
        &mut self,
        cx: &mut Context<'_>,
        connection: ConnectionId,
        Managed { itt, response, covers, remains, then }: Managed,
    ) {
        let Some((session, key)) = self.session_with_key(connection) else {
            return self.follow(cx, connection, then);
        };
        let behind = self.unacknowledged(connection, false);
        let standard = session.parameters.task_reporting != TaskReporting::FastAbort;
        let of = if standard { remains } else { Remains::Nothing };
        let data = self.owes_data(key, of).then(|| Data { of, until: self.time(cx) + DATA_OUT_GRACE });
        let answer = Answer::TaskManagement { itt, response, covers, then };
        self.raise_fence(Fence { session: key, connection, answer, behind, data, until: None });
    }

    fn session_with_key(&self, id: ConnectionId) -> Option<(Arc<SessionInfo>, SessionKey)> {
        let conn = self.connections.get(id)?;
        Some((conn.session.clone()?, conn.key?))
    }

    /// Holds the response of a task back when a fence concerns it. Gives it back when none does.
    pub(super) fn hold_response(&mut self, key: TaskKey, response: Response) -> Option<Response> {
        let Some(running) = self.tasks.get(key) else { return Some(response) };
        let (connection, aborted_others) = (running.connection, running.aborted_others);
        if self.fences.is_empty() && response.sense.is_none() && !aborted_others {
            return Some(response);
        }
        let Some((session, session_key)) = self.session_with_key(connection) else { return Some(response) };
        if !fences_responses(&session) {
            return Some(response);
        }
        let fenced = aborted_others || tells_of_aborts(&response);
        if !fenced && !self.fences.iter().any(|fence| fence.session == session_key) {
            return Some(response);
        }
        let behind = if fenced { self.unacknowledged(connection, false) } else { Vec::new() };
        if let Some(running) = self.tasks.get_mut(key)
            && let Some(conn) = self.connections.get_mut(connection)
            && let Some(mut protocol) = conn.protocol_mut(connection, &mut self.sessions)
        {
            running.waiting = Waiting::Fence;
            // The acknowledgement that the fence waits for may lie behind that data.
            protocol.decline_data(running.tag);
            self.touch(connection);
        }
        let answer = Answer::Response { key, response, fenced };
        self.raise_fence(Fence { session: session_key, connection, answer, behind, data: None, until: None });
        None
    }

    fn raise_fence(&mut self, fence: Fence) {
        self.fences.push(fence);
        // Nothing may hold it up.
        self.fences_moved = true;
    }

    /// What the initiator has yet to acknowledge on the connections beside this one, or on this one `alone`.
    fn unacknowledged(&mut self, id: ConnectionId, alone: bool) -> Vec<(ConnectionId, SerialNumber)> {
        let connections = if alone { vec![id] } else { self.siblings(id) };
        let mut behind = Vec::new();
        for other in connections {
            if let Some(stat_sn) = self.link(other).and_then(|(_, mut protocol)| protocol.ask_acknowledgement()) {
                behind.push((other, stat_sn));
                self.touch(other);
            }
        }
        behind
    }

    /// A connection has taken over a task. Its answer may have been sent before on the connection that was lost, so answers that
    /// wait for what others have sent wait for this connection too.
    pub(super) fn wait_for_adopted(&mut self, adopter: ConnectionId) {
        let Some(conn) = self.connections.get(adopter).filter(|conn| conn.session.is_some()) else { return };
        let Some(session) = conn.key else { return };
        let is_concerned = |fence: &&mut Fence| {
            fence.session == session && fence.connection != adopter && !matches!(fence.answer, Answer::Sent)
        };
        let mut concerned = self.fences.iter_mut().filter(is_concerned).peekable();
        if concerned.peek().is_none() {
            return;
        }
        let protocol = conn.protocol_mut(adopter, &mut self.sessions);
        let Some(stat_sn) = protocol.and_then(|mut protocol| protocol.ask_acknowledgement()) else { return };
        for fence in concerned {
            fence.behind.retain(|(id, _)| *id != adopter);
            fence.behind.push((adopter, stat_sn));
        }
    }

    fn owes_data(&self, session: SessionKey, of: Remains) -> bool {
        if of == Remains::Nothing {
            return false;
        }
        let Some(session) = self.sessions.get(session) else { return false };
        session.connections().any(|id| session.connection(id).is_some_and(|protocol| protocol.owes_data(of.lun())))
    }

    /// When an answer stops to wait for data, or for acknowledgements.
    pub(super) fn next_fence_timeout(&self) -> Option<Time> {
        let timeouts = |fence: &Fence| {
            let acknowledged = fence.until.filter(|_| !fence.behind.is_empty());
            fence.data.as_ref().map(|data| data.until).into_iter().chain(acknowledged)
        };
        self.fences.iter().flat_map(timeouts).min()
    }

    /// Gives the answers that nothing holds up any more. A connection that is gone holds up nothing.
    pub(super) fn pass_fences(&mut self, cx: &mut Context<'_>) {
        self.fences_moved = false;
        if self.fences.is_empty() {
            return;
        }
        let now = self.time(cx);
        // Sessions of which an earlier answer waits.
        let mut blocked: Vec<SessionKey> = Vec::new();
        let mut waiting = Vec::new();
        for mut fence in std::mem::take(&mut self.fences) {
            fence.behind.retain(|(id, stat_sn)| {
                self.protocol(*id).is_some_and(|protocol| !protocol.has_acknowledged(*stat_sn))
            });
            self.end_overdue(&mut fence, now);
            if let Some(data) = fence.data.take_if(|data| data.until <= now) {
                self.forget_data(fence.session, data.of);
            }
            let owes_data = fence.data.as_ref().is_some_and(|data| self.owes_data(fence.session, data.of));
            let is_ordered = !matches!(fence.answer, Answer::TaskManagement { .. });
            if !fence.behind.is_empty() || owes_data || (is_ordered && blocked.contains(&fence.session)) {
                blocked.push(fence.session);
                waiting.push(fence);
                continue;
            }
            if let Some(sent) = self.answer_fenced(cx, fence) {
                blocked.push(sent.session);
                waiting.push(sent);
            }
        }
        // What came up meanwhile comes after them.
        waiting.append(&mut self.fences);
        self.fences = waiting;
    }

    /// Ends the connections that have had time enough to acknowledge. They hold up nothing then.
    fn end_overdue(&mut self, fence: &mut Fence, now: Time) {
        let until = fence.until.get_or_insert(now + self.timers.progress);
        if fence.behind.is_empty() || *until > now {
            return;
        }
        *until = now + self.timers.progress;
        for (id, _) in &fence.behind {
            if let Some((_, mut protocol)) = self.link(*id) {
                protocol.acknowledgement_overdue();
                self.touch(*id);
            }
        }
    }

    /// Sends an answer. Gives the fence that it leaves behind.
    fn answer_fenced(&mut self, cx: &mut Context<'_>, fence: Fence) -> Option<Fence> {
        let (connection, session) = (fence.connection, fence.session);
        let fenced = match fence.answer {
            Answer::TaskManagement { itt, response, covers, then } => {
                // What was sent on a connection that was lost meanwhile is not acknowledged, and could be taken over.
                if let Some(covered) = covers {
                    self.silence(connection, covered, Connection::is_suspended);
                    self.let_go_of_empty(connection);
                }
                self.answer_task_management(connection, itt, response);
                self.follow(cx, connection, then);
                covers.is_some()
            }
            Answer::Response { key, response, fenced } => {
                self.finish_now(key, response);
                fenced
            }
            Answer::Sent => false,
        };
        let session_fences =
            self.connections.get_mut(connection)?.session.as_ref().is_some_and(|session| fences_responses(session));
        if !fenced || !session_fences {
            return None;
        }
        let behind = self.unacknowledged(connection, true);
        (!behind.is_empty()).then_some(Fence {
            session,
            connection,
            answer: Answer::Sent,
            behind,
            data: None,
            until: None,
        })
    }

    /// What follows the answer to a function that `connection` has asked for. That connection may be gone.
    fn follow(&mut self, cx: &mut Context<'_>, connection: ConnectionId, then: Then) {
        match then {
            Then::GoOn => {}
            Then::DropTarget(device) => self.drop_target(cx, connection, &device),
            Then::DropSession => self.drop_session(cx, connection),
        }
    }

    /// Nobody waits for that data any more; what comes of it is dropped.
    fn forget_data(&mut self, session: SessionKey, of: Remains) {
        let Some(session) = self.sessions.get_mut(session) else { return };
        let all: Vec<_> = session.connections().collect();
        for id in all {
            if let Some(mut protocol) = session.connection_mut(id) {
                protocol.forget_data(of.lun());
            }
        }
    }

    // News of aborts.

    /// The connections that have tasks among these, which a request of connection `issuing` ends.
    pub(super) fn affected_by(
        &self,
        doomed: &[TaskKey],
        issuing: Option<ConnectionId>,
        before: Option<SerialNumber>,
    ) -> Vec<Affected> {
        let session_of = |id| self.session_of(id);
        let issuer = issuing.and_then(session_of).map(|session| session.info().tsih);
        let tasks = doomed.iter().filter_map(|key| self.tasks.get(*key)).filter(|task| !task.is_orphan());
        let affected = tasks.filter_map(|task| {
            let session = session_of(task.connection)?;
            let before = before.filter(|_| issuer == Some(session.info().tsih));
            let (connection, lun) = (task.connection, LunField(task.lun.encode()));
            Some(Affected { connection, lun, before: before.unwrap_or_else(|| session.exp_cmd_sn()) })
        });
        let mut affected: Vec<Affected> = affected.collect();
        affected.sort_unstable_by_key(|affected| (affected.connection.index(), affected.lun.0));
        affected.dedup();
        affected
    }

    /// RFC 7143 sections 4.2.3.4 and 4.2.3.5: where FastAbort was agreed on, connections other than the issuing one are told
    /// that the tasks are gone. On the issuing one no more data comes.
    pub(super) fn tell_of_aborts(&mut self, issuing: Option<ConnectionId>, affected: &[Affected]) {
        for Affected { connection, lun, before } in affected {
            let Some((conn, mut protocol)) = self.link(*connection) else { continue };
            if Some(*connection) != issuing {
                protocol.tasks_terminated(*lun, *before);
            } else if conn.session.as_ref().is_some_and(|session| is_fast(session)) {
                protocol.forget_data(Some(*lun));
            }
            self.touch(*connection);
        }
    }
}

fn is_fast(session: &SessionInfo) -> bool {
    session.parameters.task_reporting == TaskReporting::FastAbort
}
