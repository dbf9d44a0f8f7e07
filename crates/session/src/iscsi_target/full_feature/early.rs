//! Requests that came before their turn: commands with smaller numbers are on their way over other connections of the
//! session (RFC 7143 section 4.2.2.1).
//!
//! A SCSI command waits beside the stream, with its task; immediate commands behind it pass. A data segment waits in
//! the stream: the driver has not said yet where it goes. From recovery level 1 on what is missing may come behind it
//! in the same stream, so nothing waits there: see [`recovery`](super::recovery).

use std::time::Duration;

use lunette_pdu::{RejectReason, SerialNumber, TaskManagementRequest};

use super::FullFeature;
use super::numbering::{Early, Turn, Waiting};
use crate::Time;
use crate::iscsi_target::event::{Command, Signal, TaskTag};
use crate::iscsi_target::tasks::window::{Arrival, Waiters};
use crate::iscsi_target::turn_context::TurnContext;
use crate::iscsi_target::violation::Violation;

impl FullFeature {
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
        let arrival = cx.window.arrive(cmd_sn);
        match arrival {
            Arrival::Next(waiters) => {
                self.waiters = waiters;
                Ok(Turn::Now)
            }
            Arrival::Ignored => Ok(Turn::Never),
            Arrival::Early if self.session.may_have_gaps() => Ok(Turn::Later),
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

    /// Lets the driver know of connections that have something to deliver. This one looks for itself.
    fn resume(&self, waiters: Waiters, cx: &mut TurnContext<'_>) {
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
        if !self.session.may_have_gaps() || cx.window.fence(request.cmd_sn) {
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
        let waits = |early: &Early| matches!(&early.waiting, Waiting::Command(command) if command.task == tag);
        self.early.iter().any(waits)
    }

    /// Whether anything waits for its turn.
    pub(crate) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// Whether the PDU at the front of the stream does.
    pub(super) fn stream_is_early(&self) -> bool {
        self.early.iter().any(|early| matches!(early.waiting, Waiting::Stream))
    }

    /// Deals with one request that waits and is due. False when none is.
    ///
    /// One at a time: the window moves on only when the driver has taken what it moved over. Else another connection
    /// could hand out a later command first.
    pub(crate) fn deliver(&mut self, cx: &mut TurnContext<'_>, now: Time) -> bool {
        // Nothing follows a logout, and one at a time is answered.
        if self.is_logging_out() || self.logged_out.is_some() {
            return false;
        }
        for new in self.early.iter_mut().rev().take_while(|early| early.since.is_none()) {
            new.since = Some(now);
        }
        let Some((Early { waiting, since, .. }, waiters)) = self.take_due(cx) else { return false };
        match waiting {
            Waiting::Command(command) => {
                self.count_numbered(cx);
                cx.events.push_back(Signal::Command(Command {
                    window_wait: since.map_or(Duration::ZERO, |since| now - since),
                    ..command
                }));
            }
            Waiting::TaskManagement(request) => self.manage_tasks(&request, cx),
            Waiting::Logout(request) => self.log_out(&request, cx),
            Waiting::Ping(nop, data) => self.echo(&nop, data, cx),
            Waiting::Text(request, data) => {
                if let Err(violation) = self.text_request(&request, &data, cx)
                    && let Some(reason) = violation.reject
                {
                    cx.reject(reason, violation.data_sn, request.emit());
                }
            }
            Waiting::Stream => {}
        }
        self.resume(waiters, cx);
        true
    }

    fn take_due(&mut self, cx: &mut TurnContext<'_>) -> Option<(Early, Waiters)> {
        let due = |early: &Early| {
            if early.immediate {
                cx.window.pass_fence(early.cmd_sn).then_some(Waiters::None)
            } else {
                cx.window.deliver(early.cmd_sn)
            }
        };
        let (at, waiters) = self.early.iter().map(due).enumerate().find_map(|(at, waiters)| Some((at, waiters?)))?;
        Some((self.early.remove(at), waiters))
    }

    /// Takes a command back that waits: it was aborted, or its data cannot be used. Its number counts as received (RFC
    /// 7143 section 11.6.1). False when it does not wait.
    pub(super) fn withdraw(&mut self, tag: TaskTag, cx: &mut TurnContext<'_>) -> bool {
        let waits = |early: &Early| matches!(&early.waiting, Waiting::Command(command) if command.task == tag);
        let Some(at) = self.early.iter().position(waits) else { return false };
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

    /// RFC 7143 section 11.14: what has not been delivered is discarded with its connection.
    pub(super) fn discard_early(&mut self, cx: &mut TurnContext<'_>) {
        for early in self.early.drain(..) {
            if let Waiting::Command(command) = &early.waiting {
                self.tasks.remove(command.task);
            }
            if early.immediate {
                cx.window.remove_fence(early.cmd_sn);
            } else {
                cx.window.discard(early.cmd_sn);
            }
        }
    }
}
