//! Options of sessions.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use lunette_ecl_endpoint::DatagramOptions;
use lunette_pdu::Isid;
use lunette_reactor::TcpOptions;
use lunette_session::Timers;
use lunette_session::iscsi_initiator::ChapIdentity;
use lunette_session::keys::{Choices, Offer};

use crate::portal::Portal;
use crate::session_event::SessionEvent;
use crate::tls::ClientTls;

/// The transport of a session's PDUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Transport {
    /// TCP (RFC 7143).
    #[default]
    Tcp,
    /// The Effective Cross Layer, over UDP or, where the portal is on an Ethernet, below IP: one connection, without
    /// digests of iSCSI and without markers, because its packets are checked and its headers authenticated.
    Ecl,
}

impl Transport {
    /// The part of the requested offer that a login over it may make.
    pub(crate) fn narrow(self, offer: &Offer) -> Offer {
        match self {
            Self::Tcp => offer.clone(),
            Self::Ecl => Offer {
                header_digest: NO_DIGEST,
                data_digest: NO_DIGEST,
                max_connections: 1,
                error_recovery_level: 0,
                marker_interval: None,
                ..offer.clone()
            },
        }
    }
}

/// The choice of no digest.
const NO_DIGEST: Choices = Choices(0b01);

/// Called on the event loop's thread for each event of a session. It must not block.
pub type Listener = Arc<dyn Fn(&SessionEvent) + Send + Sync>;

/// Makes a connection to a portal, in a way of its own: through a proxy, or within the process. Called on a thread of
/// its own for each attempt, so it may wait. The stream need not be TCP: one end of a pair of sockets will do.
pub type Connector = Arc<dyn Fn(&Portal) -> io::Result<TcpStream> + Send + Sync>;

/// How a session logs in, and what it does when something fails.
///
/// Made by [`Options::new`] or [`Url::options`](crate::Url::options); fields can then be set.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// InitiatorName: the iSCSI name to log in with.
    pub initiator_name: String,
    /// The transport of its PDUs.
    pub transport: Transport,
    /// InitiatorAlias, a name for people; not sent if absent.
    pub initiator_alias: Option<String>,
    /// The CHAP credentials, one-way or mutual. Without them the session offers no authentication.
    pub chap: Option<ChapIdentity>,
    /// The values that the login offers for each key.
    ///
    /// With `error_recovery_level` 2 and a `time2retain_s` above 0, a lost connection costs no command: it is replaced,
    /// and commands under way continue. `max_connections` is the number of connections that the session makes if the
    /// target agrees, up to [`MAX_CONNECTIONS`](crate::limits::MAX_CONNECTIONS). A connection that cannot be made is
    /// left out until the session reconnects; at recovery level 2 it is tried again.
    pub offer: Offer,
    /// Time limits of the protocol: for the login, for pings, and for what is sent again.
    pub timers: Timers,
    /// How it is carried over datagrams. A target that wants all payloads encrypted drops others.
    pub datagrams: DatagramOptions,
    /// TLS around TCP connections.
    pub tls: Option<ClientTls>,
    /// Makes the connections in place of the library; for [`Transport::Tcp`]. TLS goes around them all the same.
    pub connector: Option<Connector>,
    /// The options of TCP connections. They cannot be made when the system refuses it.
    pub tcp: TcpOptions,
    /// The time limit for making a TCP connection, for each address of the host.
    pub connect_timeout: Duration,
    /// The time limit for one request, from its submission. Then its task is aborted. Time without a connection counts,
    /// too.
    pub request_timeout: Duration,
    /// The time limit for ABORT TASK. When it passes, the logical unit is reset; when it passes again, the connection
    /// is closed.
    pub abort_timeout: Duration,
    /// When 16 commands and more are under way on the only connection, and their answers come one by one, several of
    /// them are let come before they are dealt with, at most half of what is under way and for a millisecond. That
    /// saves CPU time, and is given up when it costs answers: they are timed with and without it.
    pub coalesce: bool,
    /// The time for which a lost session tries to log in again; zero: not at all. Then the session ends with
    /// [`Error::Lost`](crate::Error::Lost).
    pub reconnect_for: Duration,
    /// ISID, the initiator's part of the session identifier; random if absent. A session that reinstates another one
    /// needs the same (RFC 7143 section 6.3.5).
    pub isid: Option<Isid>,
    /// The listener for connections, losses, asynchronous messages and unit attentions.
    pub listener: Option<Listener>,
}

impl Options {
    /// The defaults for an initiator of this name: no authentication, no digests, and all keys set for fast transfers.
    pub fn new(initiator_name: impl Into<String>) -> Self {
        Self {
            initiator_name: initiator_name.into(),
            transport: Transport::default(),
            initiator_alias: None,
            chap: None,
            offer: Offer::initiator(),
            timers: Timers::default(),
            datagrams: DatagramOptions::default(),
            tls: None,
            connector: None,
            tcp: TcpOptions::default(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            abort_timeout: Duration::from_secs(5),
            coalesce: true,
            reconnect_for: Duration::from_mins(1),
            isid: None,
            listener: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("initiator_name", &self.initiator_name)
            .field("offer", &self.offer)
            .field("request_timeout", &self.request_timeout)
            .field("reconnect_for", &self.reconnect_for)
            .finish_non_exhaustive()
    }
}
