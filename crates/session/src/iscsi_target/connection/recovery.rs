//! A connection whose stream is lost while its tasks live on, and the tasks that move to another one
//! (ErrorRecoveryLevel 2, RFC 7143 sections 7.2.2 and 6.3.4). See the crate's documentation for what the driver does.

use lunette_pdu::{Cid, InitiatorTaskTag, SerialNumber};

use super::{Connection, ConnectionMut, Phase};
use crate::Time;
use crate::held::Held;
use crate::iscsi_target::event::{CloseReason, TaskTag};
use crate::iscsi_target::expect::Expect;
use crate::iscsi_target::full_feature::suspended::MovedTask;
use crate::iscsi_target::tasks::known_task::KnownTask;
use crate::receiver::Stage;

impl Connection {
    /// Whether the connection is lost and its tasks wait to be taken over. It sends nothing new and receives nothing;
    /// the driver goes on answering for its tasks.
    pub(crate) fn is_suspended(&self) -> bool {
        matches!(self.phase, Phase::Suspended(_))
    }

    /// Whether the initiator can be told something on it: it has not ended and its stream is there.
    pub(crate) fn takes_announcements(&self) -> bool {
        matches!(self.phase, Phase::FullFeature(_))
    }

    /// The task of that name, unless it is forgotten.
    pub(crate) fn known_task(&self, itt: InitiatorTaskTag) -> Option<KnownTask> {
        match &self.phase {
            Phase::FullFeature(full) | Phase::Suspended(full) => full.known_task(itt, &self.sender),
            Phase::Closed => None,
        }
    }

    /// Whether that is the name of a request that is no command and was not answered. Such a request is not taken over
    /// (RFC 7143 section 11.5.1).
    pub(crate) fn is_request(&self, itt: InitiatorTaskTag) -> bool {
        match &self.phase {
            Phase::FullFeature(full) | Phase::Suspended(full) => full.is_request(itt),
            Phase::Closed => false,
        }
    }

    /// Whether a suspended connection has nothing that another one could take over.
    pub(crate) fn keeps_nothing(&self) -> bool {
        match &self.phase {
            Phase::Suspended(full) => full.keeps_nothing(&self.sender),
            _ => false,
        }
    }

    /// Says until when a suspended connection waits: Time2Wait and then Time2Retain, counted from its loss.
    pub(super) fn await_recovery(&mut self, now: Time) {
        if let (Phase::Suspended(full), None) = (&self.phase, &self.deadline) {
            self.deadline = full.session().recovery_time().map(|time| (now + time, CloseReason::NotRecovered));
        }
    }
}

impl ConnectionMut<'_> {
    /// The stream is gone. True when the connection is suspended now: keep it. False when it is over: end its tasks and
    /// forget it.
    pub(crate) fn stream_lost(&mut self, now: Time) -> bool {
        self.suspend();
        self.sender.outbox.clear();
        self.await_recovery(now);
        self.is_suspended()
    }

    /// The initiator has logged out of the connection for recovery, on another one or by a login that takes its place.
    /// The stream counts as lost; other connections may adopt the tasks from now on, and the time for that begins
    /// again. `received`: ExpStatSN, which that request says. False when the tasks do not wait: end them.
    pub(crate) fn log_out_for_recovery(&mut self, received: SerialNumber, now: Time) -> bool {
        self.sender.acknowledge(received);
        self.deadline = None;
        self.stream_lost(now)
    }

    /// Takes a task out, for another connection. [`known_task`](Connection::known_task) has told its tag, which ends
    /// here.
    pub(crate) fn release_task(&mut self, itt: InitiatorTaskTag) -> Option<MovedTask> {
        match self.alive() {
            Some((full, mut cx, true)) => full.release_task(itt, &mut cx),
            _ => None,
        }
    }

    /// Goes on with a task of another connection: what is missing of its data is asked for, or its answer is sent.
    /// `exp_data_sn` is that of the request. Gives its new tag, when the driver has the task; events may follow.
    pub(crate) fn adopt_task(&mut self, task: MovedTask, exp_data_sn: u32) -> Option<TaskTag> {
        let (full, mut cx) = self.full()?;
        full.adopt_task(task, exp_data_sn, &mut cx)
    }

    /// Lets the initiator know how far the command window is open (RFC 7143 section 11.19: a NOP-In without tags). A
    /// connection that is gone may have held it shut.
    pub(crate) fn announce_window(&mut self) {
        if let Some((_, mut cx)) = self.full() {
            cx.announce_window();
        }
    }

    /// Lets the initiator know that another connection of the session is lost (RFC 7143 section 11.9.1, event 2).
    pub(crate) fn announce_loss(&mut self, cid: Cid) {
        if self.outbox_is_full() {
            return;
        }
        if let Some((full, mut cx)) = self.full() {
            full.announce_loss(cid, &mut cx);
        }
    }

    /// Keeps the tasks of a connection that has lost its stream, or is losing it. False when they do not outlive it.
    pub(super) fn suspend(&mut self) -> bool {
        let waits = matches!(&self.phase, Phase::FullFeature(full) if full.session().recovery_time().is_some());
        if !waits {
            return false;
        }
        let arriving = match std::mem::replace(&mut self.expect, Expect::Nothing) {
            Expect::Data { task, offset, len } | Expect::Lost { task, offset, len }
                if self.receiver.stage() == Stage::Data =>
            {
                Some((task, offset, len))
            }
            _ => None,
        };
        if let Some((full, mut cx)) = self.full() {
            full.suspend(arriving, &mut cx);
        }
        self.phase = match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::FullFeature(full) => Phase::Suspended(full),
            other => other,
        };
        self.stop_timers();
        self.held = Held::default();
        true
    }
}
