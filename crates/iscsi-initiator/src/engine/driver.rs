//! One session: its connections, its requests, and how it reconnects.

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
use super::env::Env;
use super::message::{Done, Opened, Question, SessionKey};
use super::reconnect::ReconnectPolicy;
use super::redirect::Redirections;
use super::requests::{Escalation, OWN, Requests};
use crate::error::Error;
use crate::limits::TIMEOUT_TICK;
use crate::options::Options;
use crate::portal::Portal;

/// A session with at least one TCP connection: the protocol, and the connections that it runs over.
struct ActiveSession {
    session: Session,
    connections: Vec<Connection>,
    /// Whether the leading connection is logged in; others may still be joining.
    logged_in: bool,
    /// The number of connections that are being made to join the session.
    joining: u32,
    /// Replaces lost connections; at recovery level 2 only.
    replacer: Option<ConnectionReplacer>,
    coalescing: Coalescing,
}

/// One TCP connection of a session.
#[derive(Clone, Copy)]
struct Connection {
    cid: Cid,
    id: ConnectionId,
    logged_in: bool,
}

impl ActiveSession {
    /// The number of connections that are logged in.
    fn logged_in_connections(&self) -> usize {
        self.connections.iter().filter(|connection| connection.logged_in).count()
    }

    fn connection(&mut self, cid: Cid) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.cid == cid)
    }
}

enum Phase {
    /// The TCP connection of a login is being made.
    Dialing,
    Active(Box<ActiveSession>),
    /// Waits until the next attempt to connect.
    Pausing {
        until: Time,
    },
    /// The session has ended for good.
    Over(Error),
}

/// Drives one session: connects, logs in, hands requests to the protocol as the command window allows, and reconnects.
pub(super) struct SessionDriver {
    key: SessionKey,
    /// The portal that the caller named, or that a permanent redirection has put in its place.
    base_portal: Portal,
    /// The portal of the present attempt, after temporary redirections.
    portal: Portal,
    target: Option<String>,
    options: Arc<Options>,
    isid: Option<Isid>,
    phase: Phase,
    /// Tells the results of earlier attempts to connect from those of the present one.
    attempt: u64,
    redirections: Redirections,
    opening: Option<Done<Opened>>,
    requests: Requests,
    /// Questions that are under way, with their deadlines.
    questions: HashMap<u64, (Time, Question)>,
    last_question: u64,
    /// The power-on counts of logical units, which disks hold.
    power_ons: Vec<PowerOns>,
    reconnect: ReconnectPolicy,
    time2wait: Duration,
    /// The counts of the sessions before the present one.
    recoveries: Recoveries,
    /// When the deadlines of requests and questions are checked next.
    check_at: Option<Time>,
    closing: Option<Closing>,
    gone: bool,
    pub(super) watched_for: Option<Time>,
}

/// How often a logical unit was powered on, as a disk counts it.
type PowerOns = (LunField, Weak<AtomicU64>);

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

    /// Whether the session was closed, or never opened: no caller has a handle to it.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether its logout is under way.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// The active session and the CID of one of its connections.
    fn active(&mut self, id: ConnectionId) -> Option<(&mut ActiveSession, Cid)> {
        let Phase::Active(active) = &mut self.phase else { return None };
        let cid = active.connections.iter().find(|connection| connection.id == id)?.cid;
        Some((active, cid))
    }

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
                // If the request cannot be sent, the next escalation makes a new connection, as if it were not
                // answered.
                active.session.manage_tasks(OWN, TaskManagementFunction::LOGICAL_UNIT_RESET, lun, None);
            }
            Escalation::Reconnect => {
                tracing::warn!(portal = %self.portal, "a task does not end; making a new connection");
                self.lost(SessionError::Disconnected, env);
            }
        }
    }

    /// Ends all requests without telling the target. The event loop has ended.
    pub(super) fn end(mut self) {
        let unfinished = match std::mem::replace(&mut self.phase, Phase::Dialing) {
            Phase::Active(active) => active.session.into_unfinished(),
            _ => Vec::new(),
        };
        self.requests.fail(unfinished, &Error::Closed);
    }

    /// Sends what can be sent: requests to the protocol, and its output to the sockets. Then schedules the next check
    /// of deadlines.
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
