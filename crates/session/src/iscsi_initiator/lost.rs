//! Connections that were lost at recovery level 2, until others have taken over what was under way on them (RFC 7143
//! sections 7.1.4.3, 7.2.2 and 7.5).
//!
//! A lost connection waits for Time2Wait. Then it is logged out for recovery: by a request over another connection, or
//! by the login of one with its CID. Now its tasks belong to no connection: those that the target has are reassigned,
//! the others are sent again. When Time2Retain is over before that, the session is lost.

use std::time::Duration;

use lunette_pdu::{Cid, LogoutResponse, LogoutResponseCode, SerialNumber, TaskManagementResponseCode};

use super::event::TaskTag;
use crate::Time;
use crate::limits::RECOVERY_PAUSE;

/// The connection of what has none. No connection of ours has this number: numbers are counted from zero.
pub(crate) const NOBODY: Cid = Cid(u16::MAX);

/// How far the recovery of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The connection has to be logged out.
    Lost,
    /// The logout is under way, or the login that stands for it.
    LoggingOut,
    /// The connection's tasks can be taken over.
    LoggedOut,
}

/// A connection that was lost.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) cid: Cid,
    pub(crate) stage: Stage,
    /// The next StatSN that was expected on it (RFC 7143 sections 11.12.9 and 11.14.4).
    pub(crate) exp_stat_sn: SerialNumber,
    /// The tasks that were under way on it, in the order of submission; some may have ended since.
    tasks: Vec<TaskTag>,
    requests: Vec<TaskTag>,
    /// Nothing is done about it before.
    pause: Option<Time>,
    /// The target keeps its tasks until then.
    until: Time,
}

/// The answer of the target to a step of a recovery.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    LoggedOut {
        lost: Cid,
        response: LogoutResponse,
    },
    Reassigned {
        task: TaskTag,
        response: TaskManagementResponseCode,
    },
    /// Too many immediate requests at once: one for the task, or for the logout, is to be sent again.
    TaskBusy {
        task: TaskTag,
        from: Cid,
    },
    LogoutBusy {
        lost: Cid,
    },
}

/// All connections that are being recovered; mostly none.
#[derive(Debug, Default)]
pub(crate) struct LostConnections {
    lost: Vec<Lost>,
    /// In the order of their arrival; not dealt with yet.
    pub(crate) answers: Vec<Answer>,
}

impl LostConnections {
    pub(crate) fn is_idle(&self) -> bool {
        self.lost.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// A connection is lost. Nothing is done before `wait` is over; `retain` begins then.
    ///
    /// It may have taken the place of one whose tasks are not all taken over yet. They wait with its own: some may have
    /// moved to it, and those cannot be taken over before it is logged out.
    pub(crate) fn begin(&mut self, cid: Cid, exp_stat_sn: SerialNumber, wait: Duration, retain: Duration, now: Time) {
        let before = self.lost.iter().position(|lost| lost.cid == cid).map(|at| self.lost.remove(at));
        let (tasks, requests) = before.map(|before| (before.tasks, before.requests)).unwrap_or_default();
        self.lost.push(Lost {
            cid,
            stage: Stage::Lost,
            exp_stat_sn,
            tasks,
            requests,
            pause: pause(wait, now),
            until: now + wait + retain,
        });
    }

    /// Parks tasks that have no connection any more.
    pub(crate) fn park(&mut self, cid: Cid, tasks: &[TaskTag]) {
        if let Some(lost) = self.get_mut(cid) {
            lost.tasks.extend(tasks);
        }
    }

    /// The tasks that wait for another connection. Those that find none are to be parked again.
    pub(crate) fn take_tasks(&mut self, cid: Cid) -> Vec<TaskTag> {
        self.get_mut(cid).map(|lost| std::mem::take(&mut lost.tasks)).unwrap_or_default()
    }

    pub(crate) fn park_requests(&mut self, cid: Cid, requests: &[TaskTag]) {
        if let Some(lost) = self.get_mut(cid) {
            lost.requests.extend(requests);
        }
    }

    pub(crate) fn take_requests(&mut self, cid: Cid) -> Vec<TaskTag> {
        self.get_mut(cid).map(|lost| std::mem::take(&mut lost.requests)).unwrap_or_default()
    }

    /// Whether nothing that was under way on it is left.
    pub(crate) fn is_empty(&self, cid: Cid) -> bool {
        self.get(cid).is_none_or(|lost| lost.tasks.is_empty() && lost.requests.is_empty())
    }

    /// The lost connection that a task was on.
    pub(crate) fn home(&self, task: TaskTag) -> Option<Cid> {
        self.lost.iter().find(|lost| lost.tasks.contains(&task)).map(|lost| lost.cid)
    }

    pub(crate) fn get(&self, cid: Cid) -> Option<&Lost> {
        self.lost.iter().find(|lost| lost.cid == cid)
    }

    pub(crate) fn holds(&self, cid: Cid) -> bool {
        self.get(cid).is_some()
    }

    pub(crate) fn set(&mut self, cid: Cid, stage: Stage) {
        if let Some(lost) = self.get_mut(cid) {
            lost.stage = stage;
        }
    }

    fn get_mut(&mut self, cid: Cid) -> Option<&mut Lost> {
        self.lost.iter_mut().find(|lost| lost.cid == cid)
    }

    /// Everything that was under way on it has another connection.
    pub(crate) fn end(&mut self, cid: Cid) {
        self.lost.retain(|lost| lost.cid != cid);
    }

    /// The connections that can be recovered now, in the order of their loss.
    pub(crate) fn due(&self, stage: Stage) -> Vec<Cid> {
        let due = self.lost.iter().filter(|lost| lost.stage == stage && lost.pause.is_none());
        due.map(|lost| lost.cid).collect()
    }

    /// Does nothing about a connection for a moment: the target is busy.
    pub(crate) fn rest(&mut self, cid: Cid, now: Time) {
        if let Some(lost) = self.get_mut(cid) {
            lost.pause = Some(now + RECOVERY_PAUSE);
        }
    }

    /// The answer to a logout for recovery (RFC 7143 section 11.15). False when the target does not do such a thing.
    pub(crate) fn logged_out(&mut self, cid: Cid, response: &LogoutResponse, now: Time) -> bool {
        let Some(lost) = self.get_mut(cid) else { return true };
        let wait = Duration::from_secs(response.time2wait.into());
        let retain = Duration::from_secs(response.time2retain.into());
        match response.response {
            LogoutResponseCode::CLOSED => {
                (lost.stage, lost.pause) = (Stage::LoggedOut, pause(wait, now));
                if !retain.is_zero() {
                    lost.until = now + wait + retain;
                }
            }
            // Logged out before, by a request whose answer was lost with another connection.
            LogoutResponseCode::CID_NOT_FOUND => (lost.stage, lost.pause) = (Stage::LoggedOut, None),
            LogoutResponseCode::CLEANUP_FAILED => {
                (lost.stage, lost.pause) = (Stage::Lost, pause(wait.max(RECOVERY_PAUSE), now));
            }
            _ => return false,
        }
        true
    }

    /// Ends the pauses that are over.
    pub(crate) fn wake(&mut self, now: Time) {
        for lost in &mut self.lost {
            lost.pause.take_if(|at| *at <= now);
        }
    }

    /// A connection that was not recovered in time.
    pub(crate) fn overdue(&self, now: Time) -> Option<Cid> {
        self.lost.iter().find(|lost| lost.until <= now).map(|lost| lost.cid)
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.lost.iter().map(|lost| lost.pause.map_or(lost.until, |pause| pause.min(lost.until))).min()
    }
}

/// The end of a pause; none when there is nothing to wait for.
fn pause(span: Duration, now: Time) -> Option<Time> {
    (!span.is_zero()).then(|| now + span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_lost_again_has_to_be_logged_out_again() {
        let (cid, tag) = (Cid(0), |slot| TaskTag { slot, generation: 0 });
        let mut lost = LostConnections::default();
        let begin = |lost: &mut LostConnections, stat_sn| {
            lost.begin(cid, SerialNumber(stat_sn), Duration::ZERO, Duration::from_secs(20), Time::default());
        };
        begin(&mut lost, 1);
        lost.park(cid, &[tag(1)]);
        lost.set(cid, Stage::LoggedOut);
        begin(&mut lost, 9);
        lost.park(cid, &[tag(2)]);
        assert_eq!((lost.due(Stage::LoggedOut), lost.due(Stage::Lost)), (vec![], vec![cid]));
        assert_eq!(lost.get(cid).map(|lost| lost.exp_stat_sn), Some(SerialNumber(9)));
        assert_eq!(lost.take_tasks(cid), [tag(1), tag(2)]);
        lost.end(cid);
        assert!(lost.is_idle());
    }
}
