//! Answers that wait until the initiator has received what other connections of its session sent before: response
//! fences (RFC 7143 section 4.2.2.3).
//!
//! The answer to a task management function waits in every session. Where TaskReporting is ResponseFence or FastAbort,
//! so do responses that tell of such a function of others and the end of PREEMPT AND ABORT, and whatever follows a
//! fenced response waits until that is acknowledged too.

use lunette_pdu::{LunField, SerialNumber, TaskManagementFunction as Function};

use super::Session;
use crate::Time;
use crate::iscsi_target::connection::Connection;
use crate::iscsi_target::event::{Response, TaskManagement, TaskTag};
use crate::iscsi_target::session_info::SessionInfo;
use crate::keys::TaskReporting;
use crate::limits::DATA_OUT_GRACE;

/// One answer, and what it waits for.
pub(super) struct Fence<H> {
    connection: H,
    answer: Answer,
    behind: Vec<(H, SerialNumber)>,
    data: Option<OwedData>,
    /// When the connections that it is behind have had time enough to acknowledge; none before it was looked at.
    until: Option<Time>,
}

enum Answer {
    TaskManagement(TaskManagement),
    /// The response of a task. `fenced`: what follows waits too.
    Response {
        task: TaskTag,
        fenced: bool,
    },
    /// The response has been sent; later ones wait for its acknowledgement.
    Sent,
}

/// Data of aborted tasks that the session still has to send (RFC 7143 section 4.2.3.3): of a logical unit, or of all.
/// Not every initiator does, so it is not waited for without end.
struct OwedData {
    lun: Option<LunField>,
    until: Time,
}

/// The tasks of a session that a task management request covers.
#[derive(Clone, Copy)]
pub(super) struct Covered {
    /// The logical unit concerned; `None`: all.
    pub(super) lun: Option<LunField>,
    /// Sent before this request.
    pub(super) before: SerialNumber,
}

impl<H: Copy> Fence<H> {
    /// The connection that the answer is for.
    pub(super) fn connection(&self) -> H {
        self.connection
    }
}

impl TaskManagement {
    /// The logical unit whose tasks the request ends, when it ends those of one; `None`: it ends all, or one.
    fn unit(&self) -> Option<LunField> {
        let is_of_unit =
            matches!(self.function, Function::ABORT_TASK_SET | Function::CLEAR_TASK_SET | Function::LOGICAL_UNIT_RESET);
        is_of_unit.then_some(self.lun)
    }

    /// The tasks of other connections that the request ends, when it ends more than one.
    pub(super) fn covers(&self) -> Option<Covered> {
        let lun = self.unit();
        let is_of_all = matches!(
            self.function,
            Function::TARGET_WARM_RESET | Function::TARGET_COLD_RESET | Function::I_T_NEXUS_RESET
        );
        let before = self.before.filter(|_| is_of_all || lun.is_some())?;
        Some(Covered { lun, before })
    }

    /// Whether the answer waits for the data of the tasks that the request ends. Where it closes connections nothing
    /// comes any more.
    fn awaits_data(&self) -> bool {
        self.unit().is_some() || self.function == Function::TARGET_WARM_RESET
    }
}

impl SessionInfo {
    /// Whether responses are fenced: it was agreed on, and there are several connections to order.
    fn fences_responses(&self) -> bool {
        self.parameters.task_reporting != TaskReporting::Rfc3720 && self.parameters.max_connections > 1
    }
}

/// Whether a response tells of tasks that others have cleared, or of a reset (RFC 7143 section 4.2.2.3.4).
fn tells_of_aborts(sense: &[u8]) -> bool {
    const UNIT_ATTENTION: u8 = 0x06;
    const COMMANDS_CLEARED: u8 = 0x2f;
    const RESET: u8 = 0x29;
    // SPC-4 section 4.5: descriptor and fixed format.
    let (key, code) = match sense.first().map(|format| format & 0x7f) {
        Some(0x72) => (sense.get(1), sense.get(2)),
        Some(0x70) => (sense.get(2), sense.get(12)),
        _ => return false,
    };
    key.is_some_and(|key| key & 0x0f == UNIT_ATTENTION) && matches!(code, Some(&(COMMANDS_CLEARED | RESET)))
}

impl<H: Copy + PartialEq> Session<H> {
    /// Answers a task management request once the initiator has acknowledged what was sent on other connections before
    /// (an answer that it has not received yet would be one to a task that is gone), and has sent what is left of the
    /// data of the tasks that it ended.
    pub(super) fn answer_behind_fence(&mut self, connection: H, request: TaskManagement, now: Time) {
        let behind = self.unacknowledged(|other| other != connection);
        let standard = self.info.parameters.task_reporting != TaskReporting::FastAbort;
        let lun = request.unit();
        let waits = standard && request.awaits_data() && self.owes_data(lun);
        let data = waits.then(|| OwedData { lun, until: now + DATA_OUT_GRACE });
        let answer = Answer::TaskManagement(request);
        self.raise_fence(Fence { connection, answer, behind, data, until: None });
    }

    /// Ends a task with its response, which may wait for others.
    #[inline]
    pub fn complete(&mut self, connection: H, task: TaskTag, response: Response) {
        let concerned = !self.fences.is_empty() || !response.sense.is_empty() || response.aborted_others;
        if concerned && self.is_held(connection, task, &response) {
            return self.complete_behind_fence(connection, task, response);
        }
        if let Some(mut protocol) = self.connection_mut(connection) {
            protocol.complete(task, response);
        }
    }

    #[cold]
    fn complete_behind_fence(&mut self, connection: H, task: TaskTag, response: Response) {
        let fenced = response.aborted_others || tells_of_aborts(&response.sense);
        let behind = if fenced { self.unacknowledged(|other| other != connection) } else { Vec::new() };
        if let Some(mut protocol) = self.connection_mut(connection) {
            protocol.hold_answer(task, response);
        }
        let answer = Answer::Response { task, fenced };
        self.raise_fence(Fence { connection, answer, behind, data: None, until: None });
    }

    /// Whether a response has to wait.
    fn is_held(&self, connection: H, task: TaskTag, response: &Response) -> bool {
        let fenced = response.aborted_others || tells_of_aborts(&response.sense);
        self.info.fences_responses()
            && (fenced || !self.fences.is_empty())
            && self.connection(connection).is_some_and(|protocol| protocol.has_task(task))
    }

    fn raise_fence(&mut self, fence: Fence<H>) {
        // Nothing may hold it up.
        self.touch(fence.connection);
        self.fences.push(fence);
    }

    /// The numbers that the initiator has yet to acknowledge on these connections.
    fn unacknowledged(&mut self, concerned: impl Fn(H) -> bool) -> Vec<(H, SerialNumber)> {
        let connections: Vec<H> = self.connections().filter(|other| concerned(*other)).collect();
        let mut behind = Vec::new();
        for other in connections {
            if let Some(stat_sn) = self.connection_mut(other).and_then(|mut protocol| protocol.ask_acknowledgement()) {
                behind.push((other, stat_sn));
                self.touch(other);
            }
        }
        behind
    }

    /// A connection has taken over a task. Its answer may have been sent before on the connection that was lost, so
    /// answers that wait for what others have sent wait for this connection too.
    pub(super) fn wait_for_adopted(&mut self, adopter: H) {
        let is_concerned = |fence: &Fence<H>| fence.connection != adopter && !matches!(fence.answer, Answer::Sent);
        if !self.fences.iter().any(is_concerned) {
            return;
        }
        let asked = self.connection_mut(adopter).and_then(|mut protocol| protocol.ask_acknowledgement());
        let Some(stat_sn) = asked else { return };
        for fence in self.fences.iter_mut().filter(|fence| is_concerned(fence)) {
            fence.behind.retain(|(other, _)| *other != adopter);
            fence.behind.push((adopter, stat_sn));
        }
    }

    /// A task whose answer may wait has another name.
    pub(super) fn move_fenced(&mut self, from: (H, TaskTag), to: (H, TaskTag)) {
        for fence in &mut self.fences {
            if let Answer::Response { task, .. } = &mut fence.answer
                && (fence.connection, *task) == from
            {
                (fence.connection, *task) = to;
            }
        }
    }

    fn owes_data(&self, lun: Option<LunField>) -> bool {
        self.connections().any(|other| self.connection(other).is_some_and(|protocol| protocol.owes_data(lun)))
    }

    /// When an answer stops to wait for data, or for acknowledgements.
    pub(super) fn next_fence_timeout(&self) -> Option<Time> {
        let timeouts = |fence: &Fence<H>| {
            let acknowledged = fence.until.filter(|_| !fence.behind.is_empty());
            fence.data.as_ref().map(|data| data.until).into_iter().chain(acknowledged)
        };
        self.fences.iter().flat_map(timeouts).min()
    }

    /// Gives the answers that nothing holds up any more. A connection that is gone holds up nothing. True when there
    /// were any.
    pub(super) fn pass_fences(&mut self, now: Time) -> bool {
        if self.fences.is_empty() {
            return false;
        }
        // An earlier answer waits.
        let mut blocked = false;
        let mut passed = false;
        let mut waiting = Vec::new();
        for mut fence in std::mem::take(&mut self.fences) {
            fence.behind.retain(|(other, stat_sn)| {
                self.connection(*other).is_some_and(|protocol| !protocol.has_acknowledged(*stat_sn))
            });
            self.end_overdue(&mut fence, now);
            if let Some(data) = fence.data.take_if(|data| data.until <= now) {
                self.forget_data(data.lun);
            }
            let owes_data = fence.data.as_ref().is_some_and(|data| self.owes_data(data.lun));
            let is_ordered = !matches!(fence.answer, Answer::TaskManagement(_));
            if !fence.behind.is_empty() || owes_data || (is_ordered && blocked) {
                blocked = true;
                waiting.push(fence);
                continue;
            }
            passed = true;
            self.touch(fence.connection);
            if let Some(sent) = self.answer_fenced(&fence) {
                blocked = true;
                waiting.push(sent);
            }
        }
        // What came up meanwhile comes after them.
        waiting.append(&mut self.fences);
        self.fences = waiting;
        passed
    }

    /// Ends the connections that have had time enough to acknowledge. They hold up nothing then.
    fn end_overdue(&mut self, fence: &mut Fence<H>, now: Time) {
        let progress = self.timers.progress;
        let until = fence.until.get_or_insert(now + progress);
        if fence.behind.is_empty() || *until > now {
            return;
        }
        *until = now + progress;
        for (other, _) in &fence.behind {
            if let Some(mut protocol) = self.connection_mut(*other) {
                protocol.acknowledgement_overdue();
            }
            self.touch(*other);
        }
    }

    /// Sends an answer. Gives the fence that it leaves behind.
    fn answer_fenced(&mut self, fence: &Fence<H>) -> Option<Fence<H>> {
        let connection = fence.connection;
        let fenced = match &fence.answer {
            Answer::TaskManagement(request) => {
                let covers = request.covers();
                // What was sent on a connection that was lost meanwhile is not acknowledged, and could be taken over.
                if let Some(covered) = covers {
                    self.silence(connection, covered, Connection::is_suspended);
                    self.let_go_of_empty();
                }
                self.task_management_done(connection, request);
                covers.is_some()
            }
            Answer::Response { task, fenced } => {
                if let Some(mut protocol) = self.connection_mut(connection) {
                    protocol.release_answer(*task);
                }
                *fenced
            }
            Answer::Sent => false,
        };
        if !fenced || !self.info.fences_responses() {
            return None;
        }
        let behind = self.unacknowledged(|other| other == connection);
        let sent = Fence { connection, answer: Answer::Sent, behind, data: None, until: None };
        (!sent.behind.is_empty()).then_some(sent)
    }

    /// Stops waiting for that data; its later PDUs are dropped.
    fn forget_data(&mut self, lun: Option<LunField>) {
        self.for_each_served(|protocol| protocol.forget_data(lun));
    }

    /// Tasks of a connection on a logical unit were ended by a function that `issuing` has asked for, or that came over
    /// no connection of this session. RFC 7143 sections 4.2.3.4 and 4.2.3.5: where FastAbort was agreed on, connections
    /// other than the issuing one are told so, and on the issuing one no more data comes. Call it when nothing works
    /// for them any more: the initiator may repeat their work. `before`: of those on their way, the commands with
    /// smaller numbers were ended.
    pub fn tasks_terminated(&mut self, connection: H, issuing: Option<H>, lun: LunField, before: SerialNumber) {
        let is_fast = self.info.parameters.task_reporting == TaskReporting::FastAbort;
        let Some(mut protocol) = self.connection_mut(connection).filter(|_| is_fast) else { return };
        if issuing == Some(connection) {
            protocol.forget_data(Some(lun));
        } else {
            protocol.tasks_terminated(lun, before);
        }
        self.touch(connection);
    }
}
