//! One connection: its protocol, its nexus, its tasks.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use lunette_device::{Nexus, TargetDevice};
use lunette_reactor::{Closed, ConnectionId, Context};
use lunette_session::Time;
use lunette_session::iscsi_target::{CloseReason, Connection, ConnectionConfig, Entropy, Session};

use super::Core;
use super::answers::Answers;
use super::homes::Home;
use super::orders::Departure;
use super::places::Place;
use super::shares::Holdings;
use super::table::TaskKeys;

pub(super) struct Conn {
    pub(super) protocol: Connection,
    pub(super) peer: SocketAddr,
    pub(super) session: Option<Arc<Session>>,
    pub(super) device: Option<Arc<TargetDevice>>,
    /// That of the session, which all its connections share.
    pub(super) nexus: Option<Arc<Nexus>>,
    pub(super) tasks: TaskKeys,
    pub(super) holdings: Holdings,
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
    /// It waits to go to another core.
    pub(super) departure: Option<Departure>,
    paused: bool,
}

impl Conn {
    /// It comes to another event loop, which reads from it and knows nothing of it yet.
    pub(super) fn arrive(&mut self) {
        (self.touched, self.watched_for, self.paused) = (false, None, false);
    }

    /// Whether it does not read from its socket.
    pub(super) fn is_held_up(&self) -> bool {
        self.paused
    }

    /// Reads or pauses, and sends what there is.
    pub(super) fn update_socket(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        let paused = !self.protocol.wants_input();
        if paused != self.paused {
            self.paused = paused;
            if paused { cx.pause(id) } else { cx.resume(id) }
        }
        if self.protocol.has_output() {
            cx.send(id);
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
        Ok(Conn {
            protocol: Connection::new(config, self.time(cx)),
            peer,
            session: None,
            device: None,
            nexus: None,
            tasks: TaskKeys::default(),
            holdings: Holdings::default(),
            answers: Answers::default(),
            under_way: 0,
            touched: false,
            watched_for: None,
            place: Some(place),
            home: None,
            departure: None,
            paused: false,
        })
    }
}
