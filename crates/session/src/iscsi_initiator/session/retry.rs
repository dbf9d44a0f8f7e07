//! Commands that the target does not acknowledge, from recovery level 1 on (RFC 7143 section 7.1.4.2).
//!
//! A target with few buffers may leave a command unread for as long as the commands before it need them. So attempts
//! are counted only while those make no progress. That ends: commands after the one that is missing are not executed
//! (section 4.2.2.1).

use lunette_pdu::SerialNumber;

use super::Session;
use crate::Time;
use crate::iscsi_initiator::attempts::Attempts;
use crate::iscsi_initiator::connection::Connection;
use crate::iscsi_initiator::error::SessionError;
use crate::iscsi_initiator::unacknowledged::{Progress, Unacknowledged};

const WHAT: &str = "an acknowledgement";

impl Session {
    /// Begins to wait for the acknowledgement of what has been sent, and for answers.
    pub(super) fn watch(&mut self, now: Time) {
        self.shared.requests.entries_mut().for_each(|underway| underway.watch(now));
        if self.shared.unacknowledged.is_none() {
            let shared = &self.shared;
            let waiting = |cmd_sn| {
                let before = Progress::before(cmd_sn, &shared.tasks);
                Unacknowledged { cmd_sn, attempts: Attempts::begin(now), before }
            };
            self.shared.unacknowledged = shared.window.waits_for().map(waiting);
        }
    }

    /// When the acknowledgement should have come.
    pub(super) fn acknowledgement_timeout(&self) -> Option<Time> {
        Some(self.shared.unacknowledged.as_ref()?.attempts.due(self.shared.config.timers.resend))
    }

    /// When the first of the requests should have been answered that no acknowledgement tells of.
    pub(super) fn answer_timeout(&self) -> Option<Time> {
        let patience = self.shared.config.timers.resend;
        let is_open = |cid| self.connection(cid).is_some_and(|connection| !connection.is_closed());
        let requests = self.shared.requests.iter().filter(|(_, underway)| is_open(underway.cid));
        requests.filter_map(|(_, underway)| underway.answer_due(patience)).min()
    }

    /// Sends again what the target waits for, when it has done so for long.
    pub(super) fn retry_unacknowledged(&mut self, now: Time) {
        if self.acknowledgement_timeout().is_none_or(|due| due > now) {
            return;
        }
        let waits_for = self.shared.window.waits_for();
        let Some(waiting) = self.shared.unacknowledged.as_mut().filter(|waiting| Some(waiting.cmd_sn) == waits_for)
        else {
            self.shared.unacknowledged = None;
            return self.watch(now);
        };
        let cmd_sn = waiting.cmd_sn;
        let silent =
            |connection: &Connection| connection.is_closed() || !waiting.attempts.was_before(connection.heard_at());
        if self.connections.iter().all(silent) {
            // Whether the target is there at all is the first question.
            waiting.attempts.wait(now);
            return self.ping_all();
        }
        let before = Progress::before(cmd_sn, &self.shared.tasks);
        if waiting.before != before {
            // The attempts so far say nothing.
            *waiting = Unacknowledged { cmd_sn, attempts: Attempts::begin(now), before };
            return self.retry(cmd_sn);
        }
        match waiting.attempts.after_silence(WHAT, now) {
            Ok(()) => self.retry(cmd_sn),
            Err(error) => self.give_up(cmd_sn, &error),
        }
    }

    fn ping_all(&mut self) {
        for connection in &mut self.connections {
            if let Some((full, mut context)) = connection.for_requests(&mut self.shared) {
                full.keep_alive(&mut context);
            }
        }
    }

    fn retry(&mut self, cmd_sn: SerialNumber) {
        for connection in &mut self.connections {
            let Some((full, mut context)) = connection.for_requests(&mut self.shared) else { continue };
            if full.retry(cmd_sn, &mut context) {
                return connection.fill(&mut self.shared);
            }
        }
        // The caller has given it up, or its connection is lost. In the first case a ping takes its place.
        let parked = self.shared.tasks.iter().any(|(_, task)| task.cmd_sn == cmd_sn)
            || self.shared.requests.iter().any(|(_, underway)| underway.cmd_sn == Some(cmd_sn));
        let able = self.connections.iter_mut().find(|connection| connection.takes_requests());
        if let Some((full, mut context)) = able.and_then(|able| able.for_requests(&mut self.shared))
            && !parked
        {
            full.fill_gap(cmd_sn, &mut context);
        }
    }

    /// The connection that should have brought it is no good.
    fn give_up(&mut self, cmd_sn: SerialNumber, error: &SessionError) {
        let shared = &self.shared;
        let task = shared.tasks.iter().find(|(_, task)| task.cmd_sn == cmd_sn).map(|(_, task)| task.cid);
        let request = || shared.requests.iter().find(|(_, underway)| underway.cmd_sn == Some(cmd_sn));
        let cid = task.or_else(|| request().map(|(_, underway)| underway.cid));
        for connection in &mut self.connections {
            if cid.is_none_or(|cid| cid == connection.cid()) {
                connection.close(error.clone());
            }
        }
    }
}
