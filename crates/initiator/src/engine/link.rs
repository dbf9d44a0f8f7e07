//! One session: its connections, its requests, and what it does when it is lost.

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use lunette_pdu::{AsyncEvent, Cid, Isid, LoginStatus, LunField, TaskManagementFunction};
use lunette_reactor::{Closed, ConnectionId, Gather};
use lunette_session::Entropy;
use lunette_session::Time;
use lunette_session::initiator::{Event, LoginError, Session, SessionConfig, SessionError};

use super::dial::dial;
use super::judge::may_lose_cache;
use super::patience::Patience;
use super::requests::{Escalation, OWN, Requests};
use super::{Done, Env, Owner, Question, SessionKey, Ticket, refuse};
use crate::limits::{LOGOUT_TIMEOUT, MAX_REDIRECTS, TIMEOUT_TICK};
use crate::options::{Options, Portal};
use crate::request::{Completion, Request};
use crate::{Error, Opened, SessionEvent};

/// The connections that are open, and the protocol that runs over them.
struct Live {
    session: Session,
    wires: Vec<Wire>,
    /// The leading connection is; others may be on their way.
    logged_in: bool,
    /// Connections that are being made to join the session.
    joining: u32,
}

/// One connection.
#[derive(Clone, Copy)]
struct Wire {
    cid: Cid,
    id: ConnectionId,
    logged_in: bool,
}

impl Live {
    fn wire(&mut self, cid: Cid) -> Option<&mut Wire> {
        self.wires.iter_mut().find(|wire| wire.cid == cid)
    }
}

enum Phase {
    /// A TCP connection is being made.
    Dialing,
    Live(Box<Live>),
    /// Until the next attempt.
    Pausing {
        until: Time,
    },
    /// For good.
    Over(Error),
}

pub(super) struct Link {
    key: SessionKey,
    /// Where the target is by what the caller said, or by a permanent redirection since.
    home: Portal,
    /// Where it is this time.
    portal: Portal,
    target: Option<String>,
    options: Arc<Options>,
    isid: Option<Isid>,
    phase: Phase,
    /// Tells the answers of old dialing attempts from those of the last one.
    attempt: u64,
    redirects: u32,
    opening: Option<Done<Opened>>,
    requests: Requests,
    /// With the time until which they may be answered.
    questions: HashMap<u64, (Time, Question)>,
    last_question: u64,
    /// Who wants to know how often a logical unit was powered on.
    power_ons: Vec<(LunField, Weak<AtomicU64>)>,
    patience: Patience,
    time2wait: Duration,
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

impl Link {
    pub(super) fn new(
        key: SessionKey,
        portal: Portal,
        target: Option<String>,
        options: Arc<Options>,
        done: Done<Opened>,
    ) -> Self {
        Self {
            key,
            home: portal.clone(),
            portal,
            target,
            isid: options.isid,
            options,
            phase: Phase::Dialing,
            attempt: 0,
            redirects: 0,
            opening: Some(done),
            requests: Requests::default(),
            questions: HashMap::new(),
            last_question: 0,
            power_ons: Vec::new(),
            patience: Patience::default(),
            time2wait: Duration::ZERO,
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
    fn live(&mut self, id: ConnectionId) -> Option<(&mut Live, Cid)> {
        let Phase::Live(live) = &mut self.phase else { return None };
        let cid = live.wires.iter().find(|wire| wire.id == id)?.cid;
        Some((live, cid))
    }

    // The connections.

    pub(super) fn dial(&mut self, env: &mut Env<'_, '_>) {
        self.phase = Phase::Dialing;
        self.attempt += 1;
        dial(env.queue, self.key, self.attempt, self.portal.clone(), self.options.connect_timeout);
    }

    pub(super) fn dialed(&mut self, attempt: u64, result: Result<TcpStream, Error>, env: &mut Env<'_, '_>) {
        if attempt != self.attempt {
            return;
        }
        let leads = match &self.phase {
            Phase::Dialing => true,
            Phase::Live(_) => false,
            Phase::Pausing { .. } | Phase::Over(_) => return,
        };
        let done = result.and_then(|stream| {
            let begun = if leads { self.log_in(stream, env) } else { self.join(stream, env) };
            begun.map_err(|source| self.no_connection(source))
        });
        match done {
            Ok(()) => {}
            Err(error) if leads => self.failed(error, env),
            Err(error) => self.joined(Err(error), env),
        }
    }

    fn no_connection(&self, source: io::Error) -> Error {
        Error::Connect { portal: self.portal.to_string(), source: Arc::new(source) }
    }

    fn log_in(&mut self, stream: TcpStream, env: &mut Env<'_, '_>) -> io::Result<()> {
        let isid = match self.isid {
            Some(isid) => isid,
            None => *self.isid.insert(random_isid()?),
        };
        let session = Session::new(SessionConfig {
            initiator_name: self.options.initiator_name.clone(),
            initiator_alias: self.options.initiator_alias.clone(),
            target_name: self.target.clone(),
            isid,
            chap: self.options.chap.clone(),
            offers: self.options.offers.clone(),
            timers: self.options.timers,
        });
        let mut live = Live { session, wires: Vec::new(), logged_in: false, joining: 0 };
        let id = add_wire(&mut live, stream, env)?;
        self.phase = Phase::Live(Box::new(live));
        // A login that cannot begin has ended already.
        self.drain(id, &[], env);
        Ok(())
    }

    /// Logs in one more connection of the session.
    fn join(&mut self, stream: TcpStream, env: &mut Env<'_, '_>) -> io::Result<()> {
        let Phase::Live(live) = &mut self.phase else { return Ok(()) };
        let id = add_wire(live, stream, env)?;
        // A login that ends at once has its end to tell.
        self.drain(id, &[], env);
        Ok(())
    }

    pub(super) fn direct(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        let (live, cid) = self.live(id)?;
        live.session.direct(cid)
    }

    pub(super) fn direct_received(&mut self, id: ConnectionId, len: usize, env: &mut Env<'_, '_>) {
        let Some((live, cid)) = self.live(id) else { return };
        live.session.direct_received(cid, len, env.now);
        self.drain(id, &[], env);
    }

    pub(super) fn received(&mut self, id: ConnectionId, bytes: &[u8], env: &mut Env<'_, '_>) {
        self.drain(id, bytes, env);
    }

    fn drain(&mut self, id: ConnectionId, mut bytes: &[u8], env: &mut Env<'_, '_>) {
        while let Some((live, cid)) = self.live(id) {
            let Some(event) = live.session.next_event(cid, &mut bytes, env.now) else { return };
            self.handle(event, env);
        }
    }

    pub(super) fn gather<'a>(&'a self, id: ConnectionId, list: &mut Gather<'a>) {
        let Phase::Live(live) = &self.phase else { return };
        let Some(wire) = live.wires.iter().find(|wire| wire.id == id) else { return };
        for slice in live.session.slices(wire.cid) {
            if !list.push(slice) {
                return;
            }
        }
    }

    pub(super) fn sent(&mut self, id: ConnectionId, len: usize) {
        if let Some((live, cid)) = self.live(id) {
            live.session.sent(cid, len);
        }
    }

    pub(super) fn connection_closed(&mut self, id: ConnectionId, why: &Closed, env: &mut Env<'_, '_>) {
        let portal = self.portal.to_string();
        if let Some((live, cid)) = self.live(id) {
            tracing::debug!(%portal, ?cid, ?why, "connection lost");
            live.session.disconnected(cid, env.now);
            self.drain(id, &[], env);
        }
    }

    // Events.

    fn handle(&mut self, event: Event, env: &mut Env<'_, '_>) {
        match event {
            Event::LoggedIn(cid) => self.logged_in(cid, env),
            Event::Redirected { cid, .. } if self.is_joining(cid) => {
                self.hang_up_one(cid, SessionError::Disconnected, env);
            }
            Event::Redirected { addresses, permanent, .. } => self.redirected(&addresses, permanent, env),
            Event::Completed { command, response } => {
                self.patience.worked();
                let lun = command.lun;
                if let Some(sense) = self.requests.completed(command, response, env.now) {
                    if may_lose_cache(&sense) {
                        self.count_power_on(lun);
                    }
                    self.tell(&SessionEvent::UnitAttention { lun: lunette_scsi::Lun::decode(lun.0), sense });
                }
            }
            Event::Aborted(command) => self.requests.lost(command),
            Event::TaskManagementDone { user, response } => {
                if let Some((_, Question::TaskManagement { done, .. })) = self.questions.remove(&user) {
                    done(Ok(response));
                }
            }
            Event::Pong { user, intact } => {
                if let Some((_, Question::Ping { done, .. })) = self.questions.remove(&user) {
                    done(Ok(intact));
                }
            }
            Event::Text { user, pairs } => {
                if let Some((_, Question::Text { done, .. })) = self.questions.remove(&user) {
                    done(Ok(pairs));
                }
            }
            Event::Async { message, data } => {
                // RFC 7143 section 11.9.1: the target wants us to log out; a new connection follows.
                if message.event == AsyncEvent::LOGOUT_REQUEST
                    && let Phase::Live(live) = &mut self.phase
                {
                    live.session.logout();
                }
                self.tell(&SessionEvent::Async { message, data });
            }
            Event::Closed { cid, why } => match &self.phase {
                Phase::Live(live) if !live.session.is_over() => self.hang_up_one(cid, why, env),
                _ => self.lost(why, env),
            },
        }
    }

    fn count_power_on(&mut self, lun: LunField) {
        for (_, count) in self.power_ons.iter().filter(|(of, _)| *of == lun) {
            if let Some(count) = count.upgrade() {
                count.fetch_add(1, Ordering::Release);
            }
        }
    }

    fn logged_in(&mut self, cid: Cid, env: &Env<'_, '_>) {
        let Phase::Live(live) = &mut self.phase else { return };
        if let Some(wire) = live.wire(cid) {
            wire.logged_in = true;
        }
        if live.logged_in {
            return self.joined(Ok(()), env);
        }
        live.logged_in = true;
        self.redirects = 0;
        self.patience.logged_in(env.now);
        let Some(parameters) = live.session.parameters(cid).cloned() else { return };
        self.time2wait = Duration::from_secs(parameters.time2wait_s.into());
        live.joining = parameters.max_connections.saturating_sub(1);
        for _ in 0..live.joining {
            dial(env.queue, self.key, self.attempt, self.portal.clone(), self.options.connect_timeout);
        }
        self.tell(&SessionEvent::Connected { portal: self.portal.clone(), parameters: Box::new(parameters) });
        self.open_if_complete(env);
    }

    /// A connection has joined the session, or cannot.
    fn joined(&mut self, result: Result<(), Error>, env: &Env<'_, '_>) {
        let Phase::Live(live) = &mut self.phase else { return };
        live.joining = live.joining.saturating_sub(1);
        let connections = live.wires.iter().filter(|wire| wire.logged_in).count();
        match result {
            Ok(()) => self.tell(&SessionEvent::ConnectionAdded { connections }),
            Err(why) => {
                tracing::warn!(portal = %self.portal, %why, connections, "a connection cannot join the session");
                self.tell(&SessionEvent::ConnectionMissing { connections, why });
            }
        }
        self.open_if_complete(env);
    }

    /// Who opens the session gets it when all its connections are made, or have been tried in vain.
    fn open_if_complete(&mut self, env: &Env<'_, '_>) {
        let Phase::Live(live) = &mut self.phase else { return };
        let Some(parameters) = live.wires.first().and_then(|wire| live.session.parameters(wire.cid)) else { return };
        if live.joining == 0
            && let Some(done) = self.opening.take()
        {
            let target_alias = live.session.target_alias().map(Into::into);
            done(Ok(Opened { owner: Owner::new(env.queue, self.key), parameters: parameters.clone(), target_alias }));
        }
    }

    fn is_joining(&self, cid: Cid) -> bool {
        let Phase::Live(live) = &self.phase else { return false };
        live.logged_in && live.wires.iter().any(|wire| wire.cid == cid && !wire.logged_in)
    }

    /// Closes one connection of a session that goes on.
    fn hang_up_one(&mut self, cid: Cid, why: SessionError, env: &mut Env<'_, '_>) {
        let was_joining = self.is_joining(cid);
        let Phase::Live(live) = &mut self.phase else { return };
        for wire in live.wires.extract_if(.., |wire| wire.cid == cid) {
            env.cx.close(wire.id);
        }
        if was_joining {
            let portal = self.portal.to_string();
            self.joined(Err(Error::Session { portal, why }), env);
        }
    }

    fn redirected(&mut self, addresses: &[String], permanent: bool, env: &mut Env<'_, '_>) {
        self.hang_up(env);
        self.redirects += 1;
        let next = addresses.iter().find_map(|address| Portal::parse(address));
        match next {
            Some(portal) if self.redirects <= MAX_REDIRECTS => {
                tracing::info!(from = %self.portal, to = %portal, permanent, "redirected");
                if permanent {
                    self.home = portal.clone();
                }
                self.portal = portal;
                self.dial(env);
            }
            _ => self.over(Error::TooManyRedirects { portal: self.home.to_string(), limit: MAX_REDIRECTS }, Vec::new()),
        }
    }

    fn tell(&self, event: &SessionEvent) {
        if let Some(listener) = &self.options.listener {
            listener(event);
        }
    }

    // The end of a connection, and of the session.

    /// Closes all connections; gives the protocol that ran over them.
    fn hang_up(&mut self, env: &mut Env<'_, '_>) -> Option<Session> {
        match std::mem::replace(&mut self.phase, Phase::Dialing) {
            Phase::Live(live) => {
                for wire in &live.wires {
                    env.cx.close(wire.id);
                }
                Some(live.session)
            }
            _ => None,
        }
    }

    fn lost(&mut self, why: SessionError, env: &mut Env<'_, '_>) {
        let was_logged_in = matches!(&self.phase, Phase::Live(live) if live.logged_in);
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

    /// An attempt to connect has failed, or a connection was lost: the next attempt, or the end.
    fn failed(&mut self, error: Error, env: &mut Env<'_, '_>) {
        if self.opening.is_some() || self.closing.is_some() {
            return self.over(error, Vec::new());
        }
        // Where a redirection led to is not where the target must be next time.
        (self.portal, self.redirects) = (self.home.clone(), 0);
        let limit = self.options.reconnect_for;
        let Some(pause) = self.patience.failed(limit, self.time2wait, env.now) else {
            let (portal, last) = (self.home.to_string(), Box::new(error));
            return self.over(Error::Lost { portal, given_up_after: limit, last }, Vec::new());
        };
        self.phase = Phase::Pausing { until: env.now + pause };
    }

    fn over(&mut self, error: Error, unfinished: Vec<lunette_session::initiator::Command>) {
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

    // What callers ask.

    pub(super) fn accept(&mut self, ticket: Ticket, request: Request, completion: Completion, env: &mut Env<'_, '_>) {
        if let Phase::Over(error) = &self.phase {
            return refuse(request, completion, error.clone());
        }
        if self.closing.is_some() {
            return refuse(request, completion, Error::Closed);
        }
        self.requests.accept(ticket, request, completion, self.options.request_timeout, env.now);
    }

    pub(super) fn cancel(&mut self, ticket: Ticket, env: &mut Env<'_, '_>) {
        self.requests.cancel(ticket, env.now);
    }

    pub(super) fn watch(&mut self, lun: LunField, power_ons: Weak<AtomicU64>) {
        self.power_ons.retain(|(_, count)| count.strong_count() > 0);
        self.power_ons.push((lun, power_ons));
    }

    pub(super) fn ask(&mut self, question: Question, env: &mut Env<'_, '_>) {
        let live = match &mut self.phase {
            Phase::Live(live) if live.logged_in => live,
            Phase::Over(error) => return question.refuse(error.clone()),
            _ => return question.refuse(self.disconnected()),
        };
        self.last_question += 1;
        let user = self.last_question;
        let sent = match &question {
            Question::TaskManagement { function, lun, .. } => {
                live.session.manage_tasks(user, *function, LunField(lun.encode()), None)
            }
            Question::Ping { data, .. } => {
                live.wires.first().is_some_and(|wire| live.session.ping(user, wire.cid, data.clone()))
            }
            Question::Text { pairs, .. } => {
                let pairs: Vec<(&str, &str)> =
                    pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                live.session.text(user, &pairs)
            }
        };
        if sent {
            self.questions.insert(user, (env.now + self.options.request_timeout, question));
        } else {
            question.refuse(Error::TooMuch { what: "the number of requests of this kind in flight", limit: 1 });
        }
    }

    fn disconnected(&self) -> Error {
        Error::Session { portal: self.portal.to_string(), why: SessionError::Disconnected }
    }

    pub(super) fn close(&mut self, done: Option<Done<()>>, env: &mut Env<'_, '_>) {
        if let Some(closing) = &mut self.closing {
            return closing.done.extend(done);
        }
        self.closing = Some(Closing { done: done.into_iter().collect(), until: env.now + LOGOUT_TIMEOUT });
        let asked = match &mut self.phase {
            Phase::Live(live) => live.logged_in && live.session.logout(),
            _ => false,
        };
        if !asked {
            let unfinished = self.hang_up(env).map(Session::into_unfinished).unwrap_or_default();
            self.over(Error::Closed, unfinished);
        }
    }

    // Time.

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let of_phase = match &self.phase {
            Phase::Live(live) => live.session.next_timeout(),
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
            Phase::Live(live) => {
                live.session.time_has_come(env.now);
                let ids: Vec<ConnectionId> = live.wires.iter().map(|wire| wire.id).collect();
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
        let Phase::Live(live) = &mut self.phase else { return };
        match escalation {
            Escalation::LogicalUnitReset(lun) => {
                tracing::warn!(portal = %self.portal, "a task was not aborted in time; resetting its logical unit");
                // One that cannot be sent is followed by a new connection, as one that is not answered.
                live.session.manage_tasks(OWN, TaskManagementFunction::LOGICAL_UNIT_RESET, lun, None);
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
            Phase::Live(live) => live.session.into_unfinished(),
            _ => Vec::new(),
        };
        self.requests.fail(unfinished, &Error::Closed);
    }

    /// Lets go what can go: requests to the target, bytes to the socket, and the next look at the requests.
    pub(super) fn settle(&mut self, env: &mut Env<'_, '_>) {
        if let Phase::Live(live) = &mut self.phase {
            if live.logged_in && self.closing.is_none() {
                self.requests.send(&mut live.session, env.now);
            }
            for wire in &live.wires {
                if live.session.has_output(wire.cid) {
                    env.cx.send(wire.id);
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

/// Opens a connection of the session over a stream.
fn add_wire(live: &mut Live, stream: TcpStream, env: &mut Env<'_, '_>) -> io::Result<ConnectionId> {
    let mut entropy = [0; Entropy::BYTES];
    getrandom::fill(&mut entropy).map_err(io::Error::other)?;
    let id = env.cx.adopt(stream)?;
    env.adopted.push(id);
    let cid = live.session.connect(Entropy(entropy), env.now);
    live.wires.push(Wire { cid, id, logged_in: false });
    Ok(id)
}

/// Whether another attempt would end in the same way, or the target cannot be trusted with one.
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

/// RFC 7143 section 11.12.5: type 10b, a random number.
fn random_isid() -> io::Result<Isid> {
    const RANDOM: u8 = 0x80;
    let mut bytes = [0; 6];
    getrandom::fill(&mut bytes[1..]).map_err(io::Error::other)?;
    bytes[0] = RANDOM;
    Ok(Isid(bytes))
}
