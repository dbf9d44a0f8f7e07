//! The way of a core to a standstill, for a handover, and sessions that an earlier process has left.
//!
//! A core comes to rest by itself: it begins no request, and ends what it has begun. It says so, and stands still. What
//! its sessions are is asked when all cores stand still, for until then a task elsewhere may concern them.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};

use lunette_device::NexusName;
use lunette_handover as handover;
use lunette_pdu::Isid;
use lunette_reactor::{ConnectionId, Context};
use lunette_session::Time;
use lunette_session::iscsi_target::{Connection, InheritError, Session, SessionKey, Sessions};
use lunette_tls::Source;

use super::Core;
use super::admission::{attach, nexus_name, owner_of};
use super::connections::Conn;
use super::mesh::{Came, CoreMessage};
use crate::control::{LeftSession, Part, RestMark, Told};
use crate::limits::{NEGOTIATION_GRACE, PEER_PATIENCE};

/// The interval at which a core looks whether it has come to rest while nothing happens: young logins are waited for.
const REST_LOOK: Duration = Duration::from_millis(10);

/// The age from which on a login is not waited for.
const LOGIN_PATIENCE: Duration = Duration::from_millis(500);

/// How long answers are waited for that their initiators do not take.
const SEND_PATIENCE: Duration = Duration::from_millis(50);

/// The way of this core to a standstill.
pub(super) struct Resting {
    mark: Arc<RestMark>,
    told: Sender<Told>,
    began: Instant,
    /// Whether no login is on its way between cores. The first core knows, and tells the others, whose home it may be.
    logins_have_ended: bool,
    /// When it had ended all that it had begun.
    since: Option<Instant>,
    stands_still: bool,
}

impl Core {
    /// Has all cores come to rest.
    pub(super) fn bring_to_rest(&mut self, cx: &mut Context<'_>, mark: Arc<RestMark>, told: Sender<Told>) {
        if self.resting.is_some() || self.lifecycle.is_stopping() {
            // The caller sees the end of its channel.
            return;
        }
        // The caller may have given up: then it says so, too.
        let _ = told.send(Told::Cores(self.mesh.all().len()));
        self.mesh.send_to_others(|| CoreMessage::ComeToRest(Arc::clone(&mark), told.clone()));
        self.come_to_rest(cx, mark, told);
    }

    pub(super) fn come_to_rest(&mut self, cx: &mut Context<'_>, mark: Arc<RestMark>, told: Sender<Told>) {
        cx.hold_accepting(true);
        for key in self.connections.sessions_where(|_| true) {
            self.connections.change_session(key, Session::come_to_rest);
        }
        self.resting =
            Some(Resting { mark, told, began: cx.now(), logins_have_ended: false, since: None, stands_still: false });
    }

    /// The first core has no login any more that this one could get.
    pub(super) fn note_end_of_logins(&mut self, mark: &Arc<RestMark>) {
        if let Some(resting) = self.resting.as_mut().filter(|resting| Arc::ptr_eq(&resting.mark, mark)) {
            resting.logins_have_ended = true;
        }
    }

    /// A session has begun while the core comes to rest.
    pub(super) fn join_rest(&mut self, key: SessionKey) {
        if self.resting.is_some() {
            self.connections.change_session(key, Session::come_to_rest);
        }
    }

    /// Whether nothing is to be done but to wait for the word to go on.
    pub(super) fn stands_still(&self) -> bool {
        self.resting.as_ref().is_some_and(|resting| resting.stands_still)
    }

    /// When to look again whether the core has come to rest.
    pub(super) fn next_rest_look(&self, now: Instant) -> Option<Instant> {
        self.resting.as_ref().filter(|resting| !resting.stands_still).map(|_| now + REST_LOOK)
    }

    /// Stands still if the core has come to rest.
    pub(super) fn look_for_rest(&mut self, cx: &mut Context<'_>) {
        if self.resting.is_none() || self.stands_still() {
            return;
        }
        self.look_for_logins(self.time(cx));
        let background_rests = self.tasks.rest_in_background();
        if !background_rests || self.restless(cx).is_some() {
            return;
        }
        let has_output = self.connections.have_output();
        let Some(resting) = &mut self.resting else { return };
        let since = *resting.since.get_or_insert(cx.now());
        if !has_output || cx.now() - since >= SEND_PATIENCE {
            resting.stands_still = true;
            self.connections.stand_still(cx);
            // A caller that has given up says so.
            let _ = resting.told.send(Told::AtRest);
        }
    }

    /// Tells the others, once, when all logins have ended or gone to their homes. A connection on its way is in no
    /// table, and it comes before this message.
    fn look_for_logins(&mut self, now: Time) {
        if !self.mesh.is_first() || self.has_young_login(now) {
            return;
        }
        let Some(resting) = self.resting.as_mut().filter(|resting| !resting.logins_have_ended) else { return };
        resting.logins_have_ended = true;
        let mark = Arc::clone(&resting.mark);
        self.mesh.send_to_others(|| CoreMessage::LoginsHaveEnded(Arc::clone(&mark)));
    }

    /// Whether a login is under way that is waited for.
    fn has_young_login(&self, now: Time) -> bool {
        let is_young = |conn: &Conn| conn.login.as_ref().is_some_and(|login| now - login.began() < LOGIN_PATIENCE);
        self.connections.any(is_young)
    }

    /// The reason why the core is not at rest. After a while, what only an initiator can bring to an end is none.
    fn restless(&self, cx: &Context<'_>) -> Option<String> {
        let now = self.time(cx);
        let is_patient = self.resting.as_ref().is_some_and(|resting| cx.now() - resting.began < PEER_PATIENCE);
        let own = [
            (self.lifecycle.is_stopping(), "the server stops"),
            (self.tasks.any(|task| is_patient || !task.waits_for_initiator()), "a task has not ended"),
            (!self.barriers.is_empty(), "something waits for the end of tasks"),
            (self.lifecycle.is_removing(), "a disk is being removed"),
        ];
        let awaits_logins = self.resting.as_ref().is_some_and(|resting| !resting.logins_have_ended);
        let of_session = |key: &SessionKey| {
            let session = self.connections.session(*key)?;
            session.restless().map(|why| format!("{why} (session of {})", session.info().initiator_name))
        };
        // Tasks end with a response of their session, so the session knows more.
        let keys = self.connections.sessions_where(|_| true);
        let of_sessions = if is_patient { keys.iter().find_map(of_session) } else { None };
        of_sessions
            .or_else(|| own.into_iter().find_map(|(holds, why)| holds.then(|| why.to_owned())))
            .or_else(|| (awaits_logins || self.has_young_login(now)).then(|| "a login has not ended".to_owned()))
    }

    /// Gives the sessions of all cores.
    pub(super) fn hand_over_all(&mut self, cx: &Context<'_>, answer: &Sender<Part>) {
        self.mesh.send_to_others(|| CoreMessage::HandOver(answer.clone()));
        self.hand_over(cx, answer);
    }

    pub(super) fn hand_over(&mut self, cx: &Context<'_>, answer: &Sender<Part>) {
        let mut part = Part::default();
        // A login may have come from another core when this one stood still. Its session has not begun, and its
        // initiator logs in again.
        let has_begun = |key: &SessionKey| {
            let session = self.connections.session(*key);
            session.is_some_and(|session| session.members().any(|member| session.connection(member).is_some()))
        };
        for key in self.connections.sessions_where(|_| true).into_iter().filter(has_begun) {
            match self.leave_session(cx, key) {
                Some(left) => part.sessions.push(left),
                None => part.lost += 1,
            }
        }
        part.listeners = self.lifecycle.portals().duplicate_listeners(cx);
        // A caller that has given up says so.
        let _ = answer.send(part);
    }

    /// A session with its sockets; `None` when another process cannot go on with it.
    fn leave_session(&self, cx: &Context<'_>, key: SessionKey) -> Option<LeftSession> {
        let session = self.connections.session(key)?;
        if session.restless().is_some() {
            return None;
        }
        let (mut value, ids) = session.hand_over();
        let mut sockets = Vec::new();
        for (connection, id) in value.connections.iter_mut().zip(&ids) {
            let conn = self.connections.get(*id)?;
            let protocol = self.connections.protocol(*id)?;
            sockets.push(self.duplicate(cx, *id, protocol)?);
            connection.peer = conn.peer;
            connection.came_us = micros_of(conn.came.at);
            connection.received.extend_from_slice(cx.unseen(*id));
            if let Some(nexus) = &conn.nexus {
                value.nexus = nexus.handover();
            }
        }
        Some(LeftSession { value, sockets })
    }

    /// The socket of a connection; `None` when its state is not all that another process would need.
    fn duplicate(&self, cx: &Context<'_>, id: ConnectionId, protocol: &Connection) -> Option<TcpStream> {
        if !protocol.can_be_handed_over() {
            return None;
        }
        // One end of a pair within this process has no peer, and neither has a connection that was reset.
        cx.duplicate(id).ok().filter(|socket| self.leaves_pairs || socket.peer_addr().is_ok())
    }

    /// Has all cores go on. `reasons` learns what has kept each from its rest.
    pub(super) fn go_on_all(
        &mut self,
        cx: &mut Context<'_>,
        mark: &Arc<RestMark>,
        reasons: Option<&Sender<Vec<String>>>,
    ) {
        self.mesh.send_to_others(|| CoreMessage::GoOn(Arc::clone(mark), reasons.cloned()));
        let stood_still = self.stands_still();
        self.go_on(cx, mark, reasons);
        if stood_still && !self.stands_still() {
            // What was asked for meanwhile was left alone, and nothing wakes this core for it again.
            self.begin_stop_if_asked(cx);
            self.apply_updates(cx);
        }
    }

    pub(super) fn go_on(&mut self, cx: &mut Context<'_>, mark: &Arc<RestMark>, reasons: Option<&Sender<Vec<String>>>) {
        // Another standstill may be under way.
        if !self.resting.as_ref().is_some_and(|resting| Arc::ptr_eq(&resting.mark, mark)) {
            return;
        }
        if let Some(reasons) = reasons {
            let _ = reasons.send(self.restless(cx).into_iter().collect());
        }
        self.resting = None;
        cx.hold_accepting(false);
        self.connections.go_on(self.time(cx));
    }

    /// Another process goes on with all sessions: the event loops end.
    pub(super) fn leave_to_another(&mut self, cx: &mut Context<'_>, mark: &Arc<RestMark>) {
        if self.resting.as_ref().is_some_and(|resting| Arc::ptr_eq(&resting.mark, mark)) {
            // The others are told when this one has ended.
            self.lifecycle.leave(true);
            cx.stop();
        }
    }

    // Sessions of an earlier process.

    pub(super) fn inherit(&mut self, cx: &mut Context<'_>, sessions: Vec<LeftSession>) {
        for LeftSession { value, sockets } in sessions {
            let (initiator, tsih) = (value.initiator_name.clone(), value.tsih);
            match self.inherit_session(cx, &value, sockets) {
                Ok(()) => tracing::debug!(initiator, tsih, "session goes on"),
                Err(error) => tracing::warn!(initiator, tsih, %error, "a session of the process before is ended"),
            }
        }
    }

    fn inherit_session(
        &mut self,
        cx: &mut Context<'_>,
        value: &handover::Session,
        sockets: Vec<TcpStream>,
    ) -> Result<(), InheritError> {
        if sockets.len() != value.connections.len() {
            return Err(InheritError::Malformed("sockets are missing"));
        }
        let adopted: Vec<ConnectionId> = sockets.into_iter().filter_map(|socket| cx.adopt(socket).ok()).collect();
        let inherited = if adopted.len() == value.connections.len() {
            self.inherit_connections(cx, value, &adopted)
        } else {
            Err(InheritError::TooMany)
        };
        if inherited.is_err() {
            for id in adopted {
                cx.close(id);
            }
        }
        inherited
    }

    fn inherit_connections(
        &mut self,
        cx: &Context<'_>,
        value: &handover::Session,
        ids: &[ConnectionId],
    ) -> Result<(), InheritError> {
        let (directory, now) = (Arc::clone(self.lifecycle.directory()), self.time(cx));
        let permits = value.connections.iter().map(|connection| self.mesh.permit(Source::of(connection.peer)));
        let permits: Vec<_> = permits.collect::<Option<_>>().ok_or(InheritError::TooMany)?;
        let key = self.connections.inherit(value, ids, &directory, self.timers, now)?;
        let session = self.connections.session(key).map(|session| Arc::clone(session.info()));
        let session = session.ok_or(InheritError::TooMany)?;
        let device = self.device_of(&session);
        let nexus = device.as_ref().map(|device| Arc::new(attach(device, &session)));
        if let Some(nexus) = &nexus {
            nexus.inherit(&value.nexus);
        }
        for ((connection, id), permit) in value.connections.iter().zip(ids).zip(permits) {
            let came = Came { to: connection.local, at: instant_of(connection.came_us) };
            let mut conn = Conn::of_session(connection.peer, came, permit);
            conn.join(self.buffers.open_account(owner_of(&session, connection.peer)));
            conn.home = self.mesh.claim_home_of(value);
            conn.key = Some(key);
            conn.device.clone_from(&device);
            conn.nexus.clone_from(&nexus);
            conn.session = Some(Arc::clone(&session));
            self.connections.insert(*id, conn);
            self.shared_sessions.add(&session, connection.peer.ip());
            self.touch(*id);
        }
        self.connections.change_session(key, |session| session.set_directory(&directory, NEGOTIATION_GRACE));
        Ok(())
    }
}

/// The nexuses that go on with these sessions.
pub(crate) fn nexuses_of(sessions: &[LeftSession]) -> Vec<NexusName> {
    let of_target = |session: &handover::Session| {
        let target = session.target.as_deref()?;
        Some(nexus_name(&session.initiator_name, Isid(session.isid), target, session.portal_group))
    };
    sessions.iter().filter_map(|left| of_target(&left.value)).collect()
}

/// Gives each core the sessions of the process before that live on it.
pub(crate) fn spread(sessions: Vec<LeftSession>, cores: usize) -> Vec<Vec<LeftSession>> {
    let mut spread: Vec<Vec<LeftSession>> = (0..cores).map(|_| Vec::new()).collect();
    for session in sessions {
        spread[Sessions::<ConnectionId>::table_of(&session.value, cores)].push(session);
    }
    spread
}

/// A moment as microseconds since 1970.
fn micros_of(at: Instant) -> u64 {
    let since =
        SystemTime::now().checked_sub(at.elapsed()).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// The moment, as far as the clocks of the machine allow.
fn instant_of(micros: u64) -> Instant {
    let now = Instant::now();
    let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + Duration::from_micros(micros));
    age.ok().and_then(|age| now.checked_sub(age)).unwrap_or(now)
}
