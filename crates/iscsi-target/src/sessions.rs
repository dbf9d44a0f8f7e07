//! The sessions of a server, for an administrator who looks at them or ends one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use lunette_session::ChapAlgorithm;
use lunette_session::keys::Parameters;

/// A session as it is now.
#[derive(Debug, Clone)]
pub struct SessionStatus {
    /// The server's number for the session. It is given again after 65,535 others.
    pub tsih: u16,
    /// The initiator's part of the session's name, in hexadecimal.
    pub isid: String,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The target; `None` in a discovery session.
    pub target: Option<String>,
    /// The initiator's host; `None` in a discovery session.
    pub host: Option<String>,
    /// The CHAP user that its first login proved to be.
    pub user: Option<String>,
    /// The identities that its certificate has: URIs and DNS names, then the fingerprint.
    pub identities: Arc<[String]>,
    /// The algorithm of that proof.
    pub chap_algorithm: Option<ChapAlgorithm>,
    /// The portal group that the session uses.
    pub portal_group: u16,
    /// Where its connections come from.
    pub peers: Vec<SocketAddr>,
    /// The addresses of the server that they have come to.
    pub portals: Vec<SocketAddr>,
    /// How long ago the first of them came.
    pub age: Duration,
    /// Commands under way.
    pub commands: usize,
    /// The parameters on which both sides agreed.
    pub parameters: Parameters,
}

/// Something that has happened to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEvent {
    /// Whether it has begun, or else ended.
    pub has_begun: bool,
    /// The server's number for the session.
    pub tsih: u16,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The target; `None` in a discovery session.
    pub target: Option<String>,
}

/// Is told of sessions that begin and end, on the threads of the event loops, so it must not wait for anything.
pub type SessionObserver = Arc<dyn Fn(SessionEvent) + Send + Sync>;

/// A login of an initiator that belongs to a [template](lunette_session::iscsi_target::Host::is_template). It waits for
/// an update that has a host for this initiator, or for [`Control::refuse_host`](crate::Control::refuse_host).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostRequest {
    /// The target.
    pub target: String,
    /// The name of the template.
    pub template: String,
    /// The initiator's iSCSI name.
    pub initiator: String,
}

/// Is told of logins that wait for hosts, on the threads of the event loops, so it must not wait for anything. Several
/// connections may ask for one initiator.
pub type HostMaker = Arc<dyn Fn(HostRequest) + Send + Sync>;

/// The question to each core. A core drops it when it has answered, and all have when nothing more can come.
#[derive(Clone)]
pub(crate) enum SessionQuery {
    /// Tell all sessions.
    List(Sender<SessionStatus>),
    /// Ask the initiator of the session with this number to log out, if it is there.
    End { tsih: u16, found: Sender<()> },
}
