//! The messages between cores.

use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::time::Instant;

use lunette_device::{LogicalUnit, NexusId, TargetDevice};
use lunette_reactor::Stream;
use lunette_session::iscsi_target::{AdmitRequest, LoginConnection};

use super::affinity::Home;
use super::limit::Permit;
use crate::control::{Asker, LeftSession, Part, RestMark, Told};
use crate::core::lifecycle::{ConfigChange, Removed};
use crate::core::tasks::{AbortScope, BarrierKey};
use crate::sessions::{HostRequest, SessionQuery};

/// A message from one core to another, read between two batches.
pub(crate) enum CoreMessage {
    /// The session of this connection lives on your core.
    Take(Box<Arrival>),
    /// End these tasks, and answer when no store works for them any more.
    Abort { answer_to: RemoteBarrier, scope: AbortScope },
    /// Aborts tasks for a login, whose initiator may have closed connections before it: check these first.
    AbortLost { answer_to: RemoteBarrier, scope: AbortScope },
    /// The tasks are gone; these nexuses `lost` tasks by it.
    Aborted { barrier: BarrierKey, lost: Vec<NexusId> },
    /// TARGET COLD RESET: end all sessions of the target.
    Reset(Arc<TargetDevice>),
    /// Something else is served from now on. Answer when your sessions know.
    Change { answer_to: RemoteBarrier, change: ConfigChange },
    /// The unit is frozen. Answer when its store has ended what it had begun for you, unless the asker is gone.
    Freeze { answer_to: RemoteBarrier, unit: Arc<LogicalUnit>, asker: Weak<Asker> },
    /// The answer: what was asked for is so here.
    Answered { barrier: BarrierKey },
    /// No connection or task here works any more with what was removed.
    Unused(Removed),
    /// An administrator asks about sessions.
    Sessions(SessionQuery),
    /// The logins that wait for this host are refused.
    RefuseHost(HostRequest),
    /// Begin no request, and say when what has begun has ended.
    ComeToRest(Arc<RestMark>, Sender<Told>),
    /// No more logins come from the core that accepts them: you may stand still.
    LoginsHaveEnded(Arc<RestMark>),
    /// Give your sessions.
    HandOver(Sender<Part>),
    /// Go on, and say what kept you from your rest.
    GoOn(Arc<RestMark>, Option<Sender<Vec<String>>>),
    /// Go on with sessions of the process before.
    Inherit(Vec<LeftSession>),
    /// End all sessions.
    Stop { deadline: Instant },
    /// All sessions have ended.
    Quiet,
    /// Leave the event loop.
    Leave,
}

/// A barrier of another core, which an answer goes to.
#[derive(Clone, Copy)]
pub(crate) struct RemoteBarrier {
    pub(in crate::core) core: usize,
    pub(in crate::core) barrier: BarrierKey,
}

/// When a connection has come, and to which address of the server. For people: the protocol has its own clock.
#[derive(Clone, Copy)]
pub(in crate::core) struct Came {
    pub(in crate::core) to: SocketAddr,
    pub(in crate::core) at: Instant,
}

/// A connection on its way to its home.
pub(crate) struct Arrival {
    pub(in crate::core) login: Box<LoginConnection>,
    pub(in crate::core) peer: SocketAddr,
    pub(in crate::core) identities: Arc<[String]>,
    pub(in crate::core) came: Came,
    pub(in crate::core) permit: Permit,
    pub(in crate::core) home: Home,
    pub(in crate::core) stream: Stream,
    pub(in crate::core) request: Box<AdmitRequest>,
}
