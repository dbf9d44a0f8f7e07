//! The requests and questions of callers.

use std::sync::Weak;
use std::sync::atomic::AtomicU64;

use lunette_pdu::{LunField, TaskManagementFunction};
use lunette_reactor::Context;
use lunette_session::Time;
use lunette_session::iscsi_initiator::{Recoveries, Session, SessionError};

use super::{Closing, Phase, SessionDriver};
use crate::engine::env::Env;
use crate::engine::message::{Done, Question};
use crate::error::Error;
use crate::limits::LOGOUT_TIMEOUT;
use crate::request::{RequestId, Submission};
use crate::session_event::Observation;

/// Whether the negotiated iSCSIProtocolLevel includes the function.
fn may_ask(function: TaskManagementFunction, session: &Session) -> bool {
    function < TaskManagementFunction::QUERY_TASK || session.has_sam5_features()
}

impl SessionDriver {
    pub(in crate::engine) fn accept<'a>(&mut self, submissions: impl Iterator<Item = &'a mut Submission>, now: Time) {
        let mut session = match &mut self.phase {
            Phase::Over(error) => return submissions.for_each(|submission| submission.refuse(error.clone())),
            _ if self.closing.is_some() => return submissions.for_each(|submission| submission.refuse(Error::Closed)),
            Phase::Active(active) if active.logged_in => Some(&mut active.session),
            _ => None,
        };
        for submission in submissions {
            self.requests.accept(submission, session.as_deref_mut(), self.options.request_timeout, now);
        }
    }

    pub(in crate::engine) fn cancel(&mut self, id: RequestId, env: &mut Env<'_, '_>) {
        self.requests.cancel(id, env.now);
    }

    pub(in crate::engine) fn watch(&mut self, lun: LunField, power_ons: Weak<AtomicU64>) {
        self.power_ons.retain(|(_, count)| count.strong_count() > 0);
        self.power_ons.push((lun, power_ons));
    }

    pub(in crate::engine) fn ask(&mut self, question: Question, env: &mut Env<'_, '_>) {
        let active = match &mut self.phase {
            Phase::Active(active) if active.logged_in_connections() > 0 => active,
            Phase::Over(error) => return question.refuse(error.clone()),
            _ => return question.refuse(self.disconnected()),
        };
        self.last_question += 1;
        let user = self.last_question;
        let sent = match &question {
            Question::TaskManagement { function, .. } if !may_ask(*function, &active.session) => {
                return question.refuse(Error::NotAgreed { what: "iSCSIProtocolLevel=2" });
            }
            Question::TaskManagement { function, task: Some(id), .. } => {
                let Some((lun, tag)) = self.requests.task_of(*id) else {
                    return question.no_task();
                };
                active.session.manage_tasks(user, *function, lun, Some(tag))
            }
            Question::TaskManagement { function, lun, task: None, .. } => {
                active.session.manage_tasks(user, *function, LunField(lun.encode()), None)
            }
            Question::Ping { data, .. } => {
                let connection = active.connections.iter().find(|connection| connection.logged_in);
                connection.is_some_and(|connection| active.session.ping(user, connection.cid, data.clone()))
            }
            Question::Text { pairs, .. } => {
                let pairs: Vec<(&str, &str)> =
                    pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                active.session.text(user, &pairs)
            }
        };
        if sent {
            self.questions.insert(user, (env.now + self.options.request_timeout, question));
        } else {
            question.refuse(Error::TooMuch { what: "the number of requests of this kind in flight", limit: 1 });
        }
    }

    /// The counts of what was recovered since the session was opened, over all reconnections.
    pub(in crate::engine) fn recoveries(&self) -> Recoveries {
        let mut sum = self.recoveries;
        if let Phase::Active(active) = &self.phase {
            sum += *active.session.recoveries();
        }
        sum
    }

    pub(in crate::engine) fn observe(&self, cx: &Context<'_>) -> Observation {
        let Phase::Active(active) = &self.phase else { return Observation::default() };
        let connections = active.connections.iter().filter(|connection| connection.logged_in);
        Observation {
            connections: connections.filter_map(|connection| cx.tcp_info(connection.id)).collect(),
            command_window: active.session.commands() + active.session.room(),
        }
    }

    pub(super) fn disconnected(&self) -> Error {
        Error::Session { portal: self.portal.to_string(), why: SessionError::Disconnected }
    }

    pub(in crate::engine) fn close(&mut self, done: Option<Done<()>>, env: &mut Env<'_, '_>) {
        if let Some(closing) = &mut self.closing {
            return closing.done.extend(done);
        }
        self.closing = Some(Closing { done: done.into_iter().collect(), until: env.now + LOGOUT_TIMEOUT });
        let asked = match &mut self.phase {
            Phase::Active(active) => active.logged_in && active.session.logout(),
            _ => false,
        };
        if !asked {
            let unfinished = self.hang_up(env).map(Session::into_unfinished).unwrap_or_default();
            self.over(Error::Closed, unfinished);
        }
    }
}
