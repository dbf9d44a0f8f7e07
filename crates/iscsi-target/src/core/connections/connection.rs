//! One connection: its protocol, its nexus, its tasks.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lunette_device::{Nexus, TargetDevice};
use lunette_reactor::{Closed, ConnectionId, Context};
use lunette_session::Time;
use lunette_session::iscsi_target::{
    AdmitRequest, CloseReason, Connection, ConnectionMut, LoginClaims, LoginConnection, Origin, SessionInfo, SessionKey,
};

use super::pace::UnderWay;
use super::table::TaskKeys;
use crate::core::buffers::{Account, Reservation};
use crate::core::mesh::{Came, Home, Permit};
use crate::core::tasks::SlowCommand;

pub(super) type Sessions = lunette_session::iscsi_target::Sessions<ConnectionId>;

pub(in crate::core) struct Conn {
    /// Until it is in its session.
    pub(in crate::core) login: Option<Box<LoginConnection>>,
    /// The session that it is in, or has a place in.
    pub(in crate::core) key: Option<SessionKey>,
    pub(in crate::core) peer: SocketAddr,
    /// The identities of its certificate, as [`Origin::identities`] has them.
    pub(in crate::core) identities: Arc<[String]>,
    pub(in crate::core) came: Came,
    /// The facts about that session, until the connection is over.
    pub(in crate::core) session: Option<Arc<SessionInfo>>,
    pub(in crate::core) device: Option<Arc<TargetDevice>>,
    /// The nexus of the session, which all its connections share.
    pub(in crate::core) nexus: Option<Arc<Nexus>>,
    pub(in crate::core) tasks: TaskKeys,
    /// The bytes of buffers that its tasks and answers hold.
    pub(in crate::core) account: Rc<Account>,
    /// The bytes of it that answers hold.
    pub(in crate::core) answers: Reservation,
    /// Commands that the initiator waits for, as far as one can tell here: running tasks, and those whose answers it
    /// had not seen when it last sent something.
    pub(in crate::core) under_way: UnderWay,
    /// The commands that use its part of the command window.
    pub(super) window_used: usize,
    pub(in crate::core) touched: bool,
    pub(in crate::core) watched_for: Option<Time>,
    /// While the connection has a stream.
    pub(in crate::core) permit: Option<Permit>,
    /// Where its session lives, among several cores.
    pub(in crate::core) home: Option<Home>,
    /// The target of a TARGET COLD RESET that the connection has asked for, and whose answer is on its way.
    pub(in crate::core) target_reset: Option<Arc<TargetDevice>>,
    /// The core that the connection waits to go to, with its login.
    pub(in crate::core) departure: Option<Departure>,
    paused: bool,
}

/// Where a connection is to go.
pub(in crate::core) struct Departure {
    pub(in crate::core) home: Home,
    pub(in crate::core) request: Box<AdmitRequest>,
}

impl Conn {
    /// A connection that logs in.
    pub(in crate::core) fn new(login: Box<LoginConnection>, peer: SocketAddr, came: Came, permit: Permit) -> Self {
        Self::with_login(Some(login), peer, came, permit)
    }

    fn with_login(login: Option<Box<LoginConnection>>, peer: SocketAddr, came: Came, permit: Permit) -> Self {
        let account = Rc::default();
        Self {
            login,
            key: None,
            peer,
            identities: Arc::default(),
            came,
            session: None,
            device: None,
            nexus: None,
            tasks: TaskKeys::default(),
            answers: Reservation::new(&account),
            account,
            under_way: UnderWay::default(),
            window_used: 0,
            touched: false,
            watched_for: None,
            permit: Some(permit),
            home: None,
            target_reset: None,
            departure: None,
            paused: false,
        }
    }

    /// A connection of a session that an earlier process has left.
    pub(in crate::core) fn of_session(peer: SocketAddr, came: Came, permit: Permit) -> Self {
        Self::with_login(None, peer, came, permit)
    }

    /// The place that it comes from.
    pub(in crate::core) fn origin(&self) -> Origin {
        Origin { peer: self.peer.ip(), identities: Arc::clone(&self.identities) }
    }

    /// Counts what it holds for this account from now on.
    pub(in crate::core) fn join(&mut self, account: Rc<Account>) {
        self.answers = Reservation::new(&account);
        self.account = account;
    }

    /// Whether it does not read from its socket.
    pub(super) fn is_held_up(&self) -> bool {
        self.paused
    }

    /// Reads nothing until it is told otherwise.
    pub(super) fn pause(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        if !std::mem::replace(&mut self.paused, true) {
            cx.pause(id);
        }
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

    /// The protocol of the connection, for changes.
    #[inline]
    pub(super) fn protocol_mut<'a>(&self, id: ConnectionId, sessions: &'a mut Sessions) -> Option<ConnectionMut<'a>> {
        sessions.get_mut(self.key?)?.connection_mut(id)
    }

    /// Whether the connection has no target, and waits for one. One that goes to another core has passed its login. One
    /// that was refused lingers until its peer has read the answer.
    pub(super) fn is_targetless(&self) -> bool {
        let target = self.session.as_ref().and_then(|session| session.target.as_ref());
        target.is_none() && self.departure.is_none()
    }

    pub(in crate::core) fn log_close(&self, reason: &CloseReason) {
        if let Some(login) = &self.login {
            let LoginClaims { initiator, target } = login.claims();
            tracing::warn!(peer = %self.peer, initiator, target, %reason, "login failed");
            return;
        }
        let (peer, initiator) = (self.peer, self.initiator());
        match reason {
            CloseReason::Logout | CloseReason::ConnectionLogout | CloseReason::RecoveryLogout => {
                tracing::info!(%peer, initiator, "logged out");
            }
            reason => tracing::warn!(%peer, initiator, %reason, "connection ended"),
        }
    }

    /// A command has taken longer than the threshold. All times are in milliseconds.
    pub(in crate::core) fn log_slow(&self, SlowCommand { lun, opcode, took, waits }: &SlowCommand) {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(
            peer = %self.peer,
            initiator = self.initiator(),
            target = self.device.as_ref().map_or("-", |device| device.name()),
            %lun,
            command = ?opcode,
            took_ms = millis(*took),
            store_ms = millis(waits.store),
            network_ms = millis(waits.network),
            buffer_ms = millis(waits.buffer),
            order_ms = millis(waits.order),
            window_ms = millis(waits.window),
            "slow command"
        );
    }

    pub(in crate::core) fn log_closed(&self, why: &Closed) {
        if let (Some(_), Closed::Error(error)) = (&self.login, why)
            && error.kind() == io::ErrorKind::InvalidData
        {
            return tracing::warn!(peer = %self.peer, portal = %self.came.to, %error, "connection refused");
        }
        // Without a session it was ended by us and told of before, or never became one.
        if self.session.is_some() {
            tracing::info!(peer = %self.peer, initiator = self.initiator(), ?why, "connection lost");
        }
    }

    pub(in crate::core) fn initiator(&self) -> &str {
        self.session.as_ref().map_or("-", |session| &session.initiator_name)
    }
}
