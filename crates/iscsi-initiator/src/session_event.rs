//! The news of a session, and its state at a moment.

use lunette_pdu::AsyncMessage;
use lunette_reactor::TcpInfo;
use lunette_scsi::{Lun, SenseData};
use lunette_session::iscsi_initiator::SessionError;
use lunette_session::keys::Parameters;

use crate::error::Error;
use crate::portal::Portal;

/// An event of a session, told to [`Options::listener`](crate::Options::listener).
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionEvent {
    /// The session is logged in: for the first time, or again.
    Connected {
        /// The portal, after redirections.
        portal: Portal,
        /// The parameters that were negotiated.
        parameters: Box<Parameters>,
    },
    /// One more connection has joined the session.
    ConnectionAdded {
        /// The number of connections that the session has now.
        connections: usize,
    },
    /// A connection could not join the session.
    ConnectionMissing {
        /// The number of connections that the session has now.
        connections: usize,
        /// Why the connection could not join.
        why: Error,
    },
    /// A connection was lost, and the session goes on: at recovery level 2 the connection is replaced, and no command
    /// fails.
    ConnectionLost {
        /// The number of connections that the session has now.
        connections: usize,
        /// Why it was lost.
        why: SessionError,
    },
    /// The session was lost with its connection. A new one is tried for as long as
    /// [`Options::reconnect_for`](crate::Options::reconnect_for) says.
    Lost {
        /// Why it was lost.
        why: SessionError,
    },
    /// A logical unit reported a unit attention in place of running a command.
    UnitAttention {
        /// The logical unit.
        lun: Lun,
        /// The sense data of the unit attention.
        sense: SenseData,
    },
    /// The target sent an asynchronous message (RFC 7143 section 11.9).
    Async {
        /// The header of the PDU.
        message: AsyncMessage,
        /// The data segment: sense data and event data.
        data: Vec<u8>,
    },
    /// The session has ended for good: every request ends with this error.
    Over(Error),
}

/// How a session stands at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Observation {
    /// The system's information on each connection that is logged in.
    pub connections: Vec<TcpInfo>,
    /// Commands that may be in flight: those that are, and those that the target and this side would still take.
    pub command_window: usize,
}
