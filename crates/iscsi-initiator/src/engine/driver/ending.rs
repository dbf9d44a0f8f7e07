//! How a session is lost, reconnects, or ends.

use lunette_pdu::LoginStatus;
use lunette_session::iscsi_initiator::{Command, LoginError, Session, SessionError};

use super::{Phase, SessionDriver};
use crate::engine::env::Env;
use crate::error::Error;
use crate::session_event::SessionEvent;

impl SessionDriver {
    /// Closes all connections. Gives the protocol that ran over them.
    pub(super) fn hang_up(&mut self, env: &mut Env<'_, '_>) -> Option<Session> {
        match std::mem::replace(&mut self.phase, Phase::Dialing) {
            Phase::Active(active) => {
                for connection in &active.connections {
                    env.cx.close(connection.id);
                }
                self.recoveries += *active.session.recoveries();
                Some(active.session)
            }
            _ => None,
        }
    }

    /// The session was lost with its connections: reconnects, or ends it.
    pub(super) fn lost(&mut self, why: SessionError, env: &mut Env<'_, '_>) {
        let was_logged_in = matches!(&self.phase, Phase::Active(active) if active.logged_in);
        let unfinished = self.hang_up(env).map(Session::into_unfinished).unwrap_or_default();
        let error = Error::Session { portal: self.portal.to_string(), why: why.clone() };
        for (_, question) in std::mem::take(&mut self.questions).into_values() {
            question.refuse(error.clone());
        }
        if self.closing.is_some() {
            return self.over(Error::Closed, unfinished);
        }
        if self.opening.is_some() || is_final(&why) {
            return self.over(error, unfinished);
        }
        if was_logged_in {
            tracing::warn!(portal = %self.portal, %why, commands = unfinished.len(), "session lost");
            self.tell(&SessionEvent::Lost { why });
        }
        for command in unfinished {
            self.requests.lost(command);
        }
        self.failed(error, env);
    }

    /// An attempt to connect has failed, or the session was lost: schedules the next attempt, or ends the session.
    pub(super) fn failed(&mut self, error: Error, env: &mut Env<'_, '_>) {
        if self.opening.is_some() || self.closing.is_some() {
            return self.over(error, Vec::new());
        }
        // A temporary redirection holds for one attempt.
        self.portal = self.base_portal.clone();
        self.redirections.clear();
        let limit = self.options.reconnect_for;
        let Some(pause) = self.reconnect.failed(limit, self.time2wait, env.now) else {
            let (portal, last) = (self.base_portal.to_string(), Box::new(error));
            return self.over(Error::Lost { portal, given_up_after: limit, last }, Vec::new());
        };
        self.phase = Phase::Pausing { until: env.now + pause };
    }

    /// Ends the session for good.
    pub(super) fn over(&mut self, error: Error, unfinished: Vec<Command>) {
        let error = match self.redirections.last() {
            Some(from) if error.is_of_portal(&self.portal) => {
                Error::Redirected { from: from.to_string(), error: Box::new(error) }
            }
            _ => error,
        };
        self.requests.fail(unfinished, &error);
        self.phase = Phase::Over(error.clone());
        if let Some(done) = self.opening.take() {
            self.gone = true;
            done(Err(error));
        } else if let Some(closing) = self.closing.take() {
            self.gone = true;
            for done in closing.done {
                done(Ok(()));
            }
        } else {
            self.tell(&SessionEvent::Over(error));
        }
    }
}

/// Whether another attempt would fail for the same reason, or the target broke a rule of the protocol.
fn is_final(why: &SessionError) -> bool {
    match why {
        SessionError::Login(LoginError::Refused(status)) => {
            matches!(*status, LoginStatus::AUTHENTICATION_FAILURE | LoginStatus::AUTHORIZATION_FAILURE)
        }
        SessionError::Protocol { .. }
        | SessionError::Login(
            LoginError::TargetAuthentication | LoginError::SameSecret | LoginError::Incompatible(_),
        ) => true,
        _ => false,
    }
}
