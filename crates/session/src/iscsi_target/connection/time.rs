//! The work that is due at its time: the end of a wait, or a ping to an initiator that is silent.

use super::{Connection, ConnectionMut, Phase};
use crate::Time;
use crate::iscsi_target::event::CloseReason;
use crate::limits::DATA_OUT_TIMEOUT;

impl Connection {
    /// When [`time_has_come`](ConnectionMut::time_has_come) wants to be called.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let ping = match &self.phase {
            Phase::FullFeature(_) if self.deadline.is_none() => Some(self.last_received + self.timers.ping_after),
            _ => None,
        };
        let deadline = self.deadline.as_ref().map(|(at, _)| *at);
        let room = self.room_due.map(|(at, _)| at);
        ping.into_iter()
            .chain(deadline)
            .chain(self.gap_ends)
            .chain(room)
            .chain(self.data_due)
            .chain(self.progress.next())
            .min()
    }

    /// Nothing was read or sent for a while. That was not the initiator's silence: its time begins now.
    pub(super) fn excuse_silence(&mut self, now: Time) {
        if let Some((at, CloseReason::PingTimeout)) = &mut self.deadline {
            *at = now + self.timers.ping_answer;
        }
        self.progress.put_off(now + self.timers.progress);
    }

    /// Takes any PDU for a sign of life, which also answers a ping. A logout that we asked for still has to come.
    pub(super) fn heard(&mut self, now: Time) {
        self.last_received = now;
        self.deadline.take_if(|(_, reason)| *reason == CloseReason::PingTimeout);
    }
}

impl ConnectionMut<'_> {
    /// Does what is due at `now`.
    pub fn time_has_come(&mut self, now: Time) {
        if let Some((_, before)) = self.room_due.take_if(|(at, _)| *at <= now)
            && let Some(retained) = self.sender.retained()
        {
            retained.forget_data_before(before);
        }
        if self.data_due.take_if(|at| *at <= now).is_some()
            && let Some((full, mut cx)) = self.full()
            && full.ask_for_overdue(&mut cx)
        {
            self.data_due = Some(now + DATA_OUT_TIMEOUT);
        }
        self.check_progress(now);
        if self.gap_ends.is_some_and(|at| at <= now) {
            return self.close(CloseReason::Gap);
        }
        if let Some((_, reason)) = self.deadline.take_if(|(at, _)| *at <= now) {
            if reason == CloseReason::PingTimeout && self.waits_for_driver() {
                // The answer may lie behind bytes that we do not take. That is our silence, not the initiator's.
                self.deadline = Some((now + self.timers.ping_answer, reason));
            } else {
                self.close(reason);
            }
            return;
        }
        if self.next_timeout().is_none_or(|at| at > now) || self.deadline.is_some() {
            return;
        }
        if let Some((full, mut cx)) = self.full() {
            full.ping(&mut cx);
            self.deadline = Some((now + self.timers.ping_answer, CloseReason::PingTimeout));
        }
    }
}
