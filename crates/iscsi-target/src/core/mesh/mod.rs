//! The relations between the cores of a server: messages, and the core on which each session lives.

mod affinity;
mod limit;
mod message;

use std::sync::Arc;

use lunette_handover as handover;
use lunette_pdu::LoginStatus;
use lunette_session::iscsi_target::AdmitRequest;
use lunette_tls::Source;

pub(crate) use affinity::{Home, SessionAffinity};
pub(crate) use limit::{ConnectionLimit, Permit};
pub(crate) use lunette_reactor::Mailbox;
pub(in crate::core) use message::Came;
pub(crate) use message::{Arrival, CoreMessage, RemoteBarrier};

use super::tasks::BarrierKey;

/// The core that listens, applies changes and leads the stop.
pub(crate) const FIRST: usize = 0;

/// One core among all. The core sends what concerns others, and carries out what they send.
pub(super) struct Mesh {
    mailbox: Mailbox<CoreMessage>,
    affinity: Arc<SessionAffinity>,
    limit: ConnectionLimit,
}

impl Mesh {
    pub(super) fn new(mailbox: Mailbox<CoreMessage>, affinity: Arc<SessionAffinity>, limit: ConnectionLimit) -> Self {
        Self { mailbox, affinity, limit }
    }

    pub(super) fn is_first(&self) -> bool {
        self.mailbox.me() == FIRST
    }

    pub(super) fn is_alone(&self) -> bool {
        self.mailbox.is_alone()
    }

    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        self.mailbox.others()
    }

    pub(super) fn all(&self) -> std::ops::Range<usize> {
        0..self.mailbox.cores()
    }

    /// A barrier of this core, for another core to answer to.
    pub(super) fn remote(&self, barrier: BarrierKey) -> RemoteBarrier {
        RemoteBarrier { core: self.mailbox.me(), barrier }
    }

    pub(super) fn send(&self, core: usize, message: CoreMessage) {
        self.mailbox.send(core, message);
    }

    pub(super) fn send_to_others(&self, message: impl Fn() -> CoreMessage) {
        self.others().for_each(|core| self.send(core, message()));
    }

    /// Sends a message to this core itself, for the next batch.
    pub(super) fn defer(&self, message: CoreMessage) {
        self.send(self.mailbox.me(), message);
    }

    pub(super) fn take_messages(&self) -> impl Iterator<Item = CoreMessage> + use<> {
        self.mailbox.take().into_iter()
    }

    /// Claims the home of the session that a login makes or joins. `None` while there is one core.
    ///
    /// # Errors
    ///
    /// The login status to refuse the login with, when there are too many sessions.
    pub(super) fn claim_home(&self, request: &AdmitRequest) -> Result<Option<Home>, LoginStatus> {
        if self.is_alone() { Ok(None) } else { self.affinity.find(request).map(Some) }
    }

    /// The home of a session that an earlier process has left to this core. `None` while there is one core.
    pub(super) fn claim_home_of(&self, session: &handover::Session) -> Option<Home> {
        (!self.is_alone()).then(|| self.affinity.claim_at(self.mailbox.me(), session))
    }

    /// A permit for one more connection from `source`, unless there are too many on all cores.
    pub(super) fn permit(&self, source: Source) -> Option<Permit> {
        self.limit.take(source)
    }

    /// The number of connections of all cores.
    pub(super) fn connections(&self) -> usize {
        self.limit.taken()
    }

    pub(super) fn is_here(&self, home: &Home) -> bool {
        home.core() == self.mailbox.me()
    }
}
