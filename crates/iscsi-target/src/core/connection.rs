//! One connection: its protocol, its nexus, its tasks.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use lunette_device::{Nexus, TargetDevice};
use lunette_reactor::{Closed, ConnectionId, Context};
use lunette_session::Time;
use lunette_session::iscsi_target::{
    CloseReason, Connection, ConnectionConfig, ConnectionMut, Entropy, LoginConnection, Session, SessionInfo,
    SessionKey,
};

use super::Core;
use super::answers::Answers;
use super::buffers::Account;
use super::homes::Home;
use super::orders::Departure;
use super::places::Place;
use super::table::TaskKeys;
use crate::limits::LOGOUT_GRACE;

pub(super) type Sessions = lunette_session::iscsi_target::Sessions<ConnectionId>;

pub(super) struct Conn {
    /// Until it is in its session.
    pub(super) login: Option<Box<LoginConnection>>,
    /// The session that it is in, or has a place in.
    pub(super) key: Option<SessionKey>,
    pub(super) peer: SocketAddr,
    /// That session, until the connection is over.
    pub(super) session: Option<Arc<SessionInfo>>,
    pub(super) device: Option<Arc<TargetDevice>>,
    /// That of the session, which all its connections share.
    pub(super) nexus: Option<Arc<Nexus>>,
    pub(super) tasks: TaskKeys,
    /// The buffers that it holds. Everything it holds counts here.
    pub(super) account: Rc<Account>,
    pub(super) answers: Answers,
    /// Commands that the initiator waits for, as far as one can tell here: those in hand, and those whose answers it had not
    /// seen when it last sent something.
    pub(super) under_way: usize,
    pub(super) touched: bool,
    pub(super) watched_for: Option<Time>,
    /// While it is served.
    pub(super) place: Option<Place>,
    /// Where its session lives, among several cores.
    pub(super) home: Option<Home>,
    /// It has asked for a TARGET COLD RESET, whose answer is on its way.
    pub(super) target_reset: Option<Arc<TargetDevice>>,
    /// It waits to go to another core.
    pub(super) departure: Option<Departure>,
    paused: bool,
}

impl Conn {
    /// A connection that logs in.
    pub(super) fn new(login: Box<LoginConnection>, peer: SocketAddr, place: Place) -> Self {
        let account = Rc::default();
        Self {
            login: Some(login),
            key: None,
            peer,
            session: None,
            device: None,
            nexus: None,
            tasks: TaskKeys::default(),
            answers: Answers::new(&account),
            account,
            under_way: 0,
            touched: false,
            watched_for: None,
            place: Some(place),
            home: None,
            target_reset: None,
            departure: None,
            paused: false,
        }
    }

    /// Counts what it holds for this account from now on.
    pub(super) fn join(&mut self, account: Rc<Account>) {
        self.answers = Answers::new(&account);
        self.account = account;
    }

    /// Whether it does not read from its socket.
    pub(super) fn is_held_up(&self) -> bool {
        self.paused
    }

    /// Reads or pauses, and sends what there is.
    pub(super) fn update_socket(
        &mut self,
        cx: &mut Context<'_>,
        id: ConnectionId,
        wants_input: bool,
        has_output: bool,
    ) {
        let paused = !wants_input;
        if paused != self.paused {
            self.paused = paused;
            if paused { cx.pause(id) } else { cx.resume(id) }
        }
        if has_output {
            cx.send(id);
        }
    }

    /// The protocol's side of it, once it is in its session.
    #[inline]
    pub(super) fn protocol<'a>(&self, id: ConnectionId, sessions: &'a Sessions) -> Option<&'a Connection> {
        sessions.get(self.key?)?.connection(id)
    }

    /// The same, to work with.
    #[inline]
    pub(super) fn protocol_mut<'a>(&self, id: ConnectionId, sessions: &'a mut Sessions) -> Option<ConnectionMut<'a>> {
        sessions.get_mut(self.key?)?.connection_mut(id)
    }

    /// Asks the initiator to log out. A login that has not ended does so at once.
    pub(super) fn request_logout(&mut self, id: ConnectionId, sessions: &mut Sessions, now: Time) {
        if let Some(login) = &mut self.login {
            login.stop();
        } else if let Some(mut protocol) = self.protocol_mut(id, sessions) {
            protocol.request_logout(LOGOUT_GRACE, now);
        }
    }

    pub(super) fn log_close(&self, reason: &CloseReason) {
        let (peer, initiator) = (self.peer, self.initiator());
        match reason {
            CloseReason::Logout | CloseReason::ConnectionLogout | CloseReason::RecoveryLogout => {
                tracing::info!(%peer, initiator, "logged out");
            }
            reason => tracing::warn!(%peer, initiator, %reason, "connection ended"),
        }
    }

    pub(super) fn log_closed(&self, why: &Closed) {
        // Without a session it was ended by us and told of before, or never became one.
        if self.session.is_some() {
            tracing::info!(peer = %self.peer, initiator = self.initiator(), ?why, "connection lost");
        }
    }

    pub(super) fn initiator(&self) -> &str {
        self.session.as_ref().map_or("-", |session| &session.initiator_name)
    }
}

impl Core {
    /// Does something with the session of a connection, and takes note of the connections that it has touched.
    pub(super) fn in_session<R>(
        &mut self,
        id: ConnectionId,
        act: impl FnOnce(&mut Session<ConnectionId>) -> R,
    ) -> Option<R> {
        let session = self.sessions.get_mut(self.connections.get(id)?.key?)?;
        let result = act(session);
        for touched in session.take_touched() {
            self.touch(touched);
        }
        Some(result)
    }

    /// A connection with the protocol's side of it.
    #[inline]
    pub(super) fn link(&mut self, id: ConnectionId) -> Option<(&mut Conn, ConnectionMut<'_>)> {
        let conn = self.connections.get_mut(id)?;
        let protocol = conn.protocol_mut(id, &mut self.sessions)?;
        Some((conn, protocol))
    }

    /// The protocol's side of a connection that is in its session.
    #[inline]
    pub(super) fn protocol(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(id)?.protocol(id, &self.sessions)
    }

    /// A connection is gone.
    pub(super) fn remove(&mut self, id: ConnectionId) {
        if let Some(key) = self.connections.remove(id).and_then(|conn| conn.key) {
            self.sessions.remove(key, id);
            self.touch_members(key);
        }
    }

    /// Connections of a session may go on after something has changed for them.
    pub(super) fn touch_members(&mut self, key: SessionKey) {
        let touched = self.sessions.get_mut(key).map(Session::take_touched).unwrap_or_default();
        for id in touched {
            self.touch(id);
        }
    }

    pub(super) fn new_connection(
        &self,
        cx: &Context<'_>,
        place: Place,
        portal_group: u16,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> io::Result<Conn> {
        let mut entropy = [0; Entropy::BYTES];
        (self.entropy)(&mut entropy)?;
        let config = ConnectionConfig {
            directory: Arc::clone(&self.directory),
            local,
            portal_group,
            timers: self.timers,
            entropy: Entropy(entropy),
        };
        Ok(Conn::new(Box::new(LoginConnection::new(config, self.time(cx))), peer, place))
    }
}
