//! The reaction of the session to lost connections at recovery level 2. The stages are in
//! [`recovery`](super::super::lost).

use std::time::Duration;

use lunette_pdu::{AsyncMessage, Cid, LoginStatus, SerialNumber, TaskManagementResponseCode};

use super::Session;
use crate::Time;
use crate::iscsi_initiator::connection::Connection;
use crate::iscsi_initiator::error::{LoginError, SessionError};
use crate::iscsi_initiator::event::{Event, TaskTag};
use crate::iscsi_initiator::full_feature::FullFeature;
use crate::iscsi_initiator::lost::{Answer, NOBODY, Stage};
use crate::iscsi_initiator::request::{Request, Underway};
use crate::iscsi_initiator::turn_context::TurnContext;
use crate::limits::{CONNECTION_RECOVERY_LEVEL, MAX_REASSIGNMENTS};

impl Session {
    /// Whether the session lives on only when the driver [`connect`](Self::connect)s now: at recovery level 2, all its
    /// connections are lost. When that does not succeed in the time that the target keeps the tasks, the session
    /// [is over](Self::why_over).
    pub fn wants_connection(&self) -> bool {
        self.place_to_fill().is_some() && self.connections.iter().all(Connection::is_closed)
    }

    /// Whether the tasks of a lost connection have yet to be taken over.
    pub fn is_recovering(&self) -> bool {
        !self.shared.lost.is_idle()
    }

    /// The lost connection whose place the login of another one takes.
    pub(super) fn place_to_fill(&self) -> Option<Cid> {
        self.shared.lost.due(Stage::Lost).first().copied()
    }

    /// Whether the loss of a connection can be recovered from: its tasks are not terminated by it.
    pub(super) fn is_recoverable(&self, why: &SessionError) -> bool {
        let failed = matches!(
            why,
            SessionError::Disconnected
                | SessionError::Dropped
                | SessionError::PingTimeout
                | SessionError::Damaged(_)
                | SessionError::Unrecovered(_)
        );
        failed
            && self.shared.agreed.parameters().error_recovery_level >= CONNECTION_RECOVERY_LEVEL
            && !self.shared.logging_out
            && self.shared.over.is_none()
    }

    /// A connection is lost; what was under way on it is not.
    pub(super) fn begin_recovery(&mut self, cid: Cid, now: Time) {
        let parameters = self.shared.agreed.parameters();
        let negotiated = (parameters.time2wait_s, parameters.time2retain_s);
        let Some(connection) = self.connections.get_mut(usize::from(cid.0)) else { return };
        let (wait, retain) = connection.announced_times().unwrap_or(negotiated);
        if retain == 0 {
            return self.end(SessionError::RecoveryFailed("the target keeps no tasks of lost connections"));
        }
        let exp_stat_sn = connection.clear(&mut self.shared);
        let (wait, retain) = (Duration::from_secs(wait.into()), Duration::from_secs(retain.into()));
        self.shared.lost.begin(cid, exp_stat_sn, wait, retain, now);
        // Requests that failed on this connection have not been tried on the next one.
        self.shared.unacknowledged = None;
        let tasks = self.shared.tasks_where(|task| task.cid == cid);
        for tag in &tasks {
            self.shared.move_task(*tag, NOBODY);
        }
        self.shared.lost.park(cid, &tasks);
        self.park_requests(cid);
        if !self.connections.iter().any(Connection::takes_requests) {
            // One that was to leave is the only one left.
            self.connections.iter_mut().for_each(Connection::stay);
        }
    }

    /// The target says over one connection that it has dropped another one: that counts as the end of its stream (RFC
    /// 7143 section 7.1.4.3). It names only the number, and may have said so long ago: then it meant one that had the
    /// number before.
    pub(super) fn dropped(&mut self, messenger: Cid, message: &AsyncMessage, now: Time) {
        let cid = Cid(message.parameter1);
        if cid == messenger || !self.is_recoverable(&SessionError::Dropped) {
            return;
        }
        let Some((connection, shared)) = self.connection_mut(cid) else { return };
        if connection.is_successor() {
            return connection.doubt(shared, now);
        }
        for event in connection.dropped(message) {
            if let Event::Closed { why, .. } = &event {
                self.closed(cid, why, now);
            }
            self.news.push_back(event);
        }
    }

    fn park_requests(&mut self, cid: Cid) {
        let requests = self.shared.requests.iter().filter(|(_, underway)| underway.cid == cid);
        let requests: Vec<TaskTag> = requests.map(|(tag, _)| tag).collect();
        for tag in requests {
            let Some(underway) = self.shared.requests.get_mut(tag) else { continue };
            underway.cid = NOBODY;
            if let Request::LogOutLost { lost } = underway.request {
                self.shared.lost.set(lost, Stage::Lost);
            }
            if underway.request.ends_with_connection() {
                self.shared.requests.remove(tag);
            } else {
                self.shared.lost.park_requests(cid, &[tag]);
            }
        }
    }

    /// The login of a connection has failed.
    pub(super) fn login_failed(&mut self, cid: Cid, why: &SessionError) {
        if !self.shared.lost.holds(cid) {
            return;
        }
        let refused = match why {
            SessionError::Login(LoginError::Refused(status)) => status.class == LoginStatus::CLASS_INITIATOR_ERROR,
            SessionError::Login(error) => *error != LoginError::Timeout,
            SessionError::Protocol { .. } => true,
            _ => false,
        };
        if refused {
            self.end(why.clone());
        } else {
            self.shared.lost.set(cid, Stage::Lost);
        }
    }

    /// Does what can be done for lost connections now.
    pub(super) fn recover(&mut self, now: Time) {
        self.shared.lost.wake(now);
        for answer in std::mem::take(&mut self.shared.lost.answers) {
            self.answered(answer, now);
        }
        if self.shared.lost.overdue(now).is_some() {
            return self.end(SessionError::RecoveryFailed("no connection took over its tasks in time"));
        }
        for cid in self.shared.lost.due(Stage::Lost) {
            self.log_out_lost(cid);
        }
        for cid in self.shared.lost.due(Stage::LoggedOut) {
            self.take_over(cid);
        }
    }

    fn answered(&mut self, answer: Answer, now: Time) {
        match answer {
            Answer::LoggedOut { lost, response } => {
                if !self.shared.lost.logged_out(lost, &response, now) {
                    self.end(SessionError::RecoveryFailed("the target refuses to log it out for recovery"));
                }
            }
            Answer::LogoutBusy { lost } => {
                self.shared.lost.set(lost, Stage::Lost);
                self.shared.lost.rest(lost, now);
            }
            Answer::Reassigned { task, response } => match response {
                TaskManagementResponseCode::FUNCTION_COMPLETE => self.shared.recoveries.reassignments += 1,
                // It ended without an answer: by a task management function whose own answer was lost too.
                TaskManagementResponseCode::TASK_DOES_NOT_EXIST => self.give_back(task),
                _ => self.end(SessionError::RecoveryFailed("the target refuses to reassign a task")),
            },
            Answer::TaskBusy { task, from } => {
                self.shared.move_task(task, NOBODY);
                self.shared.lost.park(from, &[task]);
                self.shared.lost.rest(from, now);
            }
        }
    }

    fn give_back(&mut self, task: TaskTag) {
        if let Some(task) = self.shared.remove_task(task) {
            self.news.push_back(Event::Aborted(task.command));
        }
    }

    /// The connection with the fewest commands under way, to send something that another one had.
    fn any_connection(&mut self) -> Option<(&mut FullFeature, TurnContext<'_>)> {
        let index = self.least_loaded()?;
        self.connections[index].for_recovery(&mut self.shared, &mut self.news)
    }

    fn is_known(&self, cmd_sn: SerialNumber) -> bool {
        self.shared.window.is_acknowledged(cmd_sn)
    }

    fn log_out_lost(&mut self, cid: Cid) {
        let Some(exp_stat_sn) = self.shared.lost.get(cid).map(|lost| lost.exp_stat_sn) else { return };
        let Some((_, mut context)) = self.any_connection() else { return };
        if FullFeature::log_out_lost(cid, exp_stat_sn, &mut context) {
            self.shared.lost.set(cid, Stage::LoggingOut);
        }
    }

    /// Gives what was under way on a connection to others. What the target has acknowledged is reassigned; it has
    /// dropped the rest, so that is sent again (RFC 7143 sections 7.2.1 and 11.14).
    fn take_over(&mut self, cid: Cid) {
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for tag in self.shared.lost.take_tasks(cid) {
            match self.shared.tasks.get(tag) {
                Some(task) if self.is_known(task.cmd_sn) => known.push(tag),
                Some(_) => unknown.push(tag),
                None => {}
            }
        }
        // First what closes gaps.
        unknown.retain(|tag| !self.send_again(*tag));
        self.fill_gaps(cid);
        let room = MAX_REASSIGNMENTS.saturating_sub(self.reassignments(None));
        let later = known.split_off(room.min(known.len()));
        known.retain(|tag| !self.reassign(*tag, cid));
        known.extend(later);
        self.shared.lost.park(cid, &unknown);
        self.shared.lost.park(cid, &known);
        if unknown.is_empty() && known.is_empty() && self.reassignments(Some(cid)) == 0 {
            self.repeat_requests(cid);
            if self.shared.lost.is_empty(cid) {
                self.shared.lost.end(cid);
                self.shared.recoveries.connections += 1;
            }
        }
    }

    /// False when it has to wait.
    fn send_again(&mut self, tag: TaskTag) -> bool {
        let Some((full, mut context)) = self.any_connection() else { return false };
        full.send_again(tag, &mut context);
        true
    }

    /// False when it has to wait.
    fn reassign(&mut self, tag: TaskTag, from: Cid) -> bool {
        let Some((full, mut context)) = self.any_connection() else { return false };
        full.reassign(tag, from, &mut context)
    }

    /// How many tasks are being reassigned: those of one connection, or of all.
    fn reassignments(&self, of: Option<Cid>) -> usize {
        let from = self.shared.requests.iter().filter_map(|(_, underway)| underway.request.reassigns());
        from.filter(|from| of.is_none_or(|of| of == *from)).count()
    }

    /// Requests that took numbers are not sent again under them, so that something else must (RFC 7143 section 7.3).
    fn fill_gaps(&mut self, cid: Cid) {
        let requests = self.shared.lost.take_requests(cid);
        for tag in &requests {
            let number = self.shared.requests.get(*tag).and_then(|underway| underway.cmd_sn);
            if let Some(cmd_sn) = number.filter(|number| !self.is_known(*number))
                && let Some((full, mut context)) = self.any_connection()
                && full.fill_gap(cmd_sn, &mut context)
                && let Some(underway) = self.shared.requests.get_mut(*tag)
            {
                underway.cmd_sn = None;
            }
        }
        self.shared.lost.park_requests(cid, &requests);
    }

    /// Sends the requests of a lost connection again, over others: they do not survive their connection (RFC 7143
    /// sections 7.14 and 11.5.1). Those that have to wait stay.
    fn repeat_requests(&mut self, cid: Cid) {
        for tag in self.shared.lost.take_requests(cid) {
            if let Some(waits_with) = self.repeat(tag, cid) {
                self.shared.lost.park_requests(waits_with, &[tag]);
            }
        }
    }

    /// Gives the lost connection that the request has to wait with, if any.
    fn repeat(&mut self, tag: TaskTag, cid: Cid) -> Option<Cid> {
        let underway = self.shared.requests.get(tag)?;
        if underway.cmd_sn.is_some_and(|number| !self.is_known(number)) {
            return Some(cid);
        }
        // RFC 7143 section 11.5.1: ABORT TASK goes where its task is now.
        let home = match &underway.request {
            Request::TaskManagement { referenced: Some(task), .. } => {
                if let Some(lost) = self.shared.lost.home(*task) {
                    return Some(lost);
                }
                self.shared.tasks.get(*task).map(|task| task.cid)
            }
            _ => None,
        };
        let is_text = matches!(underway.request, Request::Text(_));
        let fits = |connection: &&mut Connection| {
            connection.takes_requests()
                && home.is_none_or(|home| connection.cid() == home)
                && !(is_text && connection.full_feature().is_some_and(FullFeature::has_text))
        };
        let Some(connection) = self.connections.iter_mut().find(fits) else { return Some(cid) };
        let (full, mut context) = connection.for_recovery(&mut self.shared, &mut self.news)?;
        if let Some(Underway { request, .. }) = context.shared.requests.remove(tag) {
            full.repeat(request, &mut context);
        }
        None
    }
}
