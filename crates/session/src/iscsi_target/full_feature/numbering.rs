//! The command numbers of one connection: the requests that are due, those that came before their turn, and the tasks
//! that hold a place in the window of the session (RFC 7143 section 4.2.2.1).
//!
//! A SCSI command waits beside the stream, with its task; immediate commands behind it pass. A data segment waits in
//! the stream: the driver has not said yet where it goes. From recovery level 1 on what is missing may come behind it
//! in the same stream, so nothing waits there: see [`recovery`](super::recovery).

use std::time::Duration;

use lunette_pdu::{Cid, LogoutRequest, NopOut, RejectReason, SerialNumber, TaskManagementRequest, TextRequest};

use crate::Time;
use crate::iscsi_target::event::{Command, Signal, TaskTag};
use crate::iscsi_target::tasks::window::{Arrival, Waiters};
use crate::iscsi_target::turn_context::TurnContext;
use crate::iscsi_target::violation::Violation;

/// When a request is to be dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The command is the next one, or needs no turn.
    Now,
    /// Others come first: [`Numbering::hold`] it.
    Later,
    /// The command is ignored without an answer.
    Never,
}

/// The kinds of PDUs that wait.
pub(super) enum Waiting {
    Command(Command),
    TaskManagement(TaskManagementRequest),
    Logout(LogoutRequest),
    /// Verified, at recovery level 1 and above.
    Ping(NopOut, Vec<u8>),
    /// A text request with its text.
    Text(TextRequest, Vec<u8>),
    /// The PDU that stands at the front of the stream.
    Stream,
}

/// The order of the requests of one connection among those of its session.
pub(super) struct Numbering {
    cid: Cid,
    /// Whether requests may come before others that have smaller numbers.
    may_have_gaps: bool,
    /// Tasks that hold a place in the session's command window.
    tasks: u32,
    /// The PDUs that came before their turn.
    early: Vec<Early>,
    /// The connections that waited for the request that is being dealt with.
    waiters: Waiters,
}

struct Early {
    cmd_sn: SerialNumber,
    waiting: Waiting,
    /// When it came: what has just come is seen by [`Numbering::take_due`] before anything else.
    since: Option<Time>,
    /// Whether it is immediate: it uses up no number, and waits for those before its own.
    immediate: bool,
}

/// A request whose turn has come.
pub(super) struct Due {
    pub(super) request: Waiting,
    pub(super) waited: Duration,
    /// The connections whose turn follows; see [`Numbering::resume`].
    pub(super) waiters: Waiters,
}

impl Numbering {
    pub(super) fn new(cid: Cid, may_have_gaps: bool) -> Self {
        Self { cid, may_have_gaps, tasks: 0, early: Vec::new(), waiters: Waiters::None }
    }

    /// Counts the number of a request. Connections that waited for it are told when it has been dealt with.
    pub(super) fn arrive(
        &mut self,
        immediate: bool,
        cmd_sn: SerialNumber,
        cx: &mut TurnContext<'_>,
    ) -> Result<Turn, Violation> {
        if immediate {
            return Ok(Turn::Now);
        }
        match cx.window.arrive(cmd_sn) {
            Arrival::Next(waiters) => {
                self.waiters = waiters;
                Ok(Turn::Now)
            }
            Arrival::Ignored => Ok(Turn::Never),
            Arrival::Early if self.may_have_gaps => Ok(Turn::Later),
            // Only another connection could bring what is missing, and there is none.
            Arrival::Early => Err(Violation::fatal(
                RejectReason::PROTOCOL_ERROR,
                format!("CmdSN {} leaves a gap on the only connection of the session", cmd_sn.0),
            )),
        }
    }

    /// Resumes the PDUs that waited for the one that has just arrived.
    pub(super) fn resume_waiters(&mut self, cx: &mut TurnContext<'_>) {
        let waiters = std::mem::replace(&mut self.waiters, Waiters::None);
        self.resume(waiters, cx);
    }

    /// Lets the driver know of connections that have something to deliver. This one finds out by itself.
    pub(super) fn resume(&self, waiters: Waiters, cx: &mut TurnContext<'_>) {
        match waiters {
            Waiters::None => {}
            Waiters::One(cid) if cid == self.cid => {}
            Waiters::One(cid) => cx.events.push_back(Signal::Resume(Some(cid))),
            Waiters::Any => cx.events.push_back(Signal::Resume(None)),
        }
    }

    /// Keeps a request until its turn.
    pub(super) fn hold(&mut self, cmd_sn: SerialNumber, waiting: Waiting, cx: &mut TurnContext<'_>) {
        cx.window.hold(cmd_sn, self.cid);
        self.early.push(Early { cmd_sn, waiting, since: None, immediate: false });
    }

    /// Keeps an immediate task management request until all commands before it have come: it concerns them (RFC 7143
    /// section 4.2.3.3). False when none is missing.
    pub(super) fn hold_until_complete(&mut self, request: &TaskManagementRequest, cx: &mut TurnContext<'_>) -> bool {
        if !self.may_have_gaps || cx.window.fence(request.cmd_sn) {
            return false;
        }
        let waiting = Waiting::TaskManagement(*request);
        self.early.push(Early { cmd_sn: request.cmd_sn, waiting, since: None, immediate: true });
        true
    }

    /// Bytes of data segments that wait for their turn.
    pub(super) fn early_bytes(&self) -> usize {
        let len = |early: &Early| match &early.waiting {
            Waiting::Ping(_, data) | Waiting::Text(_, data) => data.len(),
            _ => 0,
        };
        self.early.iter().map(len).sum()
    }

    /// Whether a command waits for its turn.
    pub(super) fn is_early(&self, tag: TaskTag) -> bool {
        self.early.iter().any(|early| early.is_command(tag))
    }

    /// Whether anything waits for its turn.
    pub(super) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// Whether the PDU at the front of the stream does.
    pub(super) fn stream_is_early(&self) -> bool {
        self.early.iter().any(|early| matches!(early.waiting, Waiting::Stream))
    }

    /// Takes one request that waits and is due.
    ///
    /// One at a time: the window moves on only when the driver has taken what it moved over. Else another connection
    /// could hand out a later command first.
    pub(super) fn take_due(&mut self, cx: &mut TurnContext<'_>, now: Time) -> Option<Due> {
        for new in self.early.iter_mut().rev().take_while(|early| early.since.is_none()) {
            new.since = Some(now);
        }
        let due = |early: &Early| {
            if early.immediate {
                cx.window.pass_fence(early.cmd_sn).then_some(Waiters::None)
            } else {
                cx.window.deliver(early.cmd_sn)
            }
        };
        let (at, waiters) = self.early.iter().map(due).enumerate().find_map(|(at, waiters)| Some((at, waiters?)))?;
        let Early { waiting: request, since, .. } = self.early.remove(at);
        Some(Due { request, waited: since.map_or(Duration::ZERO, |since| now - since), waiters })
    }

    /// Takes a command back that waits: it was aborted, or its data cannot be used. Its number counts as received (RFC
    /// 7143 section 11.6.1). False when it does not wait.
    pub(super) fn withdraw(&mut self, tag: TaskTag, cx: &mut TurnContext<'_>) -> bool {
        let Some(at) = self.early.iter().position(|early| early.is_command(tag)) else { return false };
        let cmd_sn = self.early.remove(at).cmd_sn;
        self.pass_over(cmd_sn, cmd_sn.next(), cx);
        true
    }

    /// Counts a command as received that will not be delivered. False when it is not one that is to come before
    /// `before`.
    pub(super) fn pass_over(&self, cmd_sn: SerialNumber, before: SerialNumber, cx: &mut TurnContext<'_>) -> bool {
        let waiters = cx.window.skip(cmd_sn, before);
        self.resume(waiters.unwrap_or(Waiters::None), cx);
        waiters.is_some()
    }

    /// Discards what has not been delivered, with its connection (RFC 7143 section 11.14). Returns the tasks of its
    /// commands, which are to be forgotten.
    pub(super) fn discard(&mut self, cx: &mut TurnContext<'_>) -> Vec<TaskTag> {
        let mut tasks = Vec::new();
        for early in self.early.drain(..) {
            if let Waiting::Command(command) = &early.waiting {
                tasks.push(command.task);
            }
            if early.immediate {
                cx.window.remove_fence(early.cmd_sn);
            } else {
                cx.window.discard(early.cmd_sn);
            }
        }
        tasks
    }

    /// Tasks that hold a place in the session's command window.
    pub(super) fn tasks(&self) -> u32 {
        self.tasks
    }

    /// A numbered command has become a task.
    pub(super) fn task_started(&mut self, cx: &mut TurnContext<'_>) {
        self.tasks += 1;
        cx.window.task_started();
    }

    /// The task of a numbered command has ended.
    pub(super) fn task_ended(&mut self, cx: &mut TurnContext<'_>) {
        self.tasks -= 1;
        cx.window.task_ended();
    }

    /// A task has left for another connection. It keeps its place in the command window, which bounds how many one
    /// connection can have.
    pub(super) fn task_left(&mut self) {
        self.tasks -= 1;
    }

    /// A task of another connection has come, with its place.
    pub(super) fn task_came(&mut self) {
        self.tasks += 1;
    }

    /// All tasks leave the command window with their connection.
    pub(super) fn tasks_lost(&mut self, cx: &mut TurnContext<'_>) {
        cx.window.tasks_lost(std::mem::take(&mut self.tasks));
    }
}

impl Early {
    fn is_command(&self, tag: TaskTag) -> bool {
        matches!(&self.waiting, Waiting::Command(command) if command.task == tag)
    }
}
