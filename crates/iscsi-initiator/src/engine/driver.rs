//! One session: its connections, its requests, and what it does when it is lost.

mod callers;
mod connections;
mod ending;
mod events;
mod replacer;

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lunette_pdu::{Cid, Isid, LunField, TaskManagementFunction};
use lunette_reactor::ConnectionId;
use lunette_session::Time;
use lunette_session::iscsi_initiator::{Recoveries, Session, SessionError};

use self::replacer::ConnectionReplacer;
use super::coalescing::Coalescing;
use super::reconnect::ReconnectPolicy;
use super::redirect::Redirections;
use super::requests::{Escalation, OWN, Requests};
use super::{Done, Env, Question, SessionKey};
use crate::limits::TIMEOUT_TICK;
use crate::options::{Options, Portal};
use crate::{Error, Opened};

/// The connections that are open, and the protocol that runs over them.
struct ActiveSession {
    session: Session,
    connections: Vec<Connection>,
    /// The leading connection is; others may be on their way.
    logged_in: bool,
    /// Connections that are being made to join the session.
    joining: u32,
    /// At recovery level 2.
    replacer: Option<ConnectionReplacer>,
    coalescing: Coalescing,
}

/// One connection.
#[derive(Clone, Copy)]
struct Connection {
    cid: Cid,
    id: ConnectionId,
    logged_in: bool,
}

impl ActiveSession {
    /// How many are logged in.
    fn logged_in_connections(&self) -> usize {
        self.connections.iter().filter(|connection| connection.logged_in).count()
    }

    fn connection(&mut self, cid: Cid) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.cid == cid)
    }
}

enum Phase {
    /// A TCP connection is being made.
    Dialing,
    Active(Box<ActiveSession>),
    /// Until the next attempt.
    Pausing {
        until: Time,
    },
    /// For good.
    Over(Error),
}

pub(super) struct SessionDriver {
    key: SessionKey,
    /// Where the target is by what the caller said, or by a permanent redirection since.
    base_portal: Portal,
    /// Where it is this time.
    portal: Portal,
    target: Option<String>,
    options: Arc<Options>,
    isid: Option<Isid>,
    phase: Phase,
    /// Tells the answers of old dialing attempts from those of the last one.
    attempt: u64,
    redirections: Redirections,
    opening: Option<Done<Opened>>,
    requests: Requests,
    /// With the time until which they may be answered.
    questions: HashMap<u64, (Time, Question)>,
    last_question: u64,
    /// Who wants to know how often a logical unit was powered on.
    power_ons: Vec<(LunField, Weak<AtomicU64>)>,
    reconnect: ReconnectPolicy,
    time2wait: Duration,
    /// By the sessions that are over.
    recoveries: Recoveries,
    /// When requests and questions want to be looked at.
    check_at: Option<Time>,
    closing: Option<Closing>,
    gone: bool,
    pub(super) watched_for: Option<Time>,
}

struct Closing {
    done: Vec<Done<()>>,
    until: Time,
}

impl SessionDriver {
    pub(super) fn new(
        key: SessionKey,
        portal: Portal,
        target: Option<String>,
        options: Arc<Options>,
        done: Done<Opened>,
    ) -> Self {
        Self {
            key,
            base_portal: portal.clone(),
            portal,
            target,
            isid: options.isid,
            options,
            phase: Phase::Dialing,
            attempt: 0,
            redirections: Redirections::default(),
            opening: Some(done),
            requests: Requests::default(),
            questions: HashMap::new(),
            last_question: 0,
            power_ons: Vec::new(),
            reconnect: ReconnectPolicy::default(),
            time2wait: Duration::ZERO,
            recoveries: Recoveries::default(),
            check_at: None,
            closing: None,
            gone: false,
            watched_for: None,
        }
    }

    /// Nobody can ask anything of it any more.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// The session, and which of its connections this is.
    fn active(&mut self, id: ConnectionId) -> Option<(&mut ActiveSession, Cid)> {
        let Phase::Active(active) = &mut self.phase else { return None };
        let cid = active.connections.iter().find(|connection| connection.id == id)?.cid;
        Some((active, cid))
    }

    // Time.

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let of_phase = match &self.phase {
            Phase::Active(active) => {
                let replacer = active.replacer.as_ref().and_then(ConnectionReplacer::next_timeout);
                active.session.next_timeout().into_iter().chain(replacer).min()
            }
            Phase::Pausing { until } => Some(*until),
            Phase::Dialing | Phase::Over(_) => None,
        };
        let closing = self.closing.as_ref().map(|closing| closing.until);
        of_phase.into_iter().chain(self.check_at).chain(closing).min()
    }

    pub(super) fn time_has_come(&mut self, env: &mut Env<'_, '_>) {
        if self.closing.as_ref().is_some_and(|closing| closing.until <= env.now) {
            let unfinished = self.hang_up(env).map(Session::into_unfinished).unwrap_or_default();
            return self.over(Error::Closed, unfinished);
        }
        if self.check_at.take_if(|at| *at <= env.now).is_some() {
            self.end_questions(env.now);
            for escalation in self.requests.time_has_come(self.options.abort_timeout, env.now) {
                self.escalate(escalation, env);
            }
        }
        match &mut self.phase {
            Phase::Active(active) => {
                active.session.time_has_come(env.now);
                let ids: Vec<ConnectionId> = active.connections.iter().map(|connection| connection.id).collect();
                for id in ids {
                    self.drain(id, &[], env);
                }
            }
            Phase::Pausing { until } if *until <= env.now => self.dial(env),
            Phase::Pausing { .. } | Phase::Dialing | Phase::Over(_) => {}
        }
    }

    fn end_questions(&mut self, now: Time) {
        let timeout = self.options.request_timeout;
        for (_, (_, question)) in self.questions.extract_if(|_, (until, _)| *until <= now) {
            let command = question.name();
            question.refuse(Error::TimedOut { command, timeout });
        }
    }

    fn escalate(&mut self, escalation: Escalation, env: &mut Env<'_, '_>) {
        let Phase::Active(active) = &mut self.phase else { return };
        match escalation {
            Escalation::LogicalUnitReset(lun) => {
                tracing::warn!(portal = %self.portal, "a task was not aborted in time; resetting its logical unit");
                // One that cannot be sent is followed by a new connection, as one that is not answered.
                active.session.manage_tasks(OWN, TaskManagementFunction::LOGICAL_UNIT_RESET, lun, None);
            }
            Escalation::Reconnect => {
                tracing::warn!(portal = %self.portal, "a task does not end; making a new connection");
                self.lost(SessionError::Disconnected, env);
            }
        }
    }

    /// Ends everything without another word to the target: the event loop is over.
    pub(super) fn end(mut self) {
        let unfinished = match std::mem::replace(&mut self.phase, Phase::Dialing) {
            Phase::Active(active) => active.session.into_unfinished(),
            _ => Vec::new(),
        };
        self.requests.fail(unfinished, &Error::Closed);
    }

    /// Lets go what can go: requests to the target, bytes to the socket, and the next look at the requests.
    pub(super) fn settle(&mut self, env: &mut Env<'_, '_>) {
        self.replace_connections(env);
        if let Phase::Active(active) = &mut self.phase {
            if active.logged_in && self.closing.is_none() {
                self.requests.send(&mut active.session, env.now);
            }
            for connection in &active.connections {
                if active.session.has_output(connection.cid) {
                    env.cx.send(connection.id);
                }
            }
        }
        if self.requests.is_empty() && self.questions.is_empty() {
            self.check_at = None;
        } else {
            let tick = self.check_at.unwrap_or(env.now + TIMEOUT_TICK);
            self.check_at = self.requests.next_rested().into_iter().chain([tick]).min();
        }
    }
}
