//! Requests other than commands, until they are answered.

use lunette_pdu::{BHS_LEN, Cid, LunField, SerialNumber, TaskManagementFunction};

use super::event::TaskTag;
use super::text::TextExchange;

/// A request under way.
pub(crate) struct Underway {
    /// Where it was sent: its answer comes there (RFC 7143 section 4.2.5.1).
    pub(crate) cid: Cid,
    /// Its number among the commands, or that of its last part; an immediate one has none.
    pub(crate) cmd_sn: Option<SerialNumber>,
    pub(crate) request: Request,
    /// From recovery level 1 on, its last PDU: the target may have to get it again.
    pub(crate) sent: Option<Box<SentRequest>>,
}

/// A PDU as it was sent.
pub(crate) struct SentRequest {
    pub(crate) header: [u8; BHS_LEN],
    pub(crate) segment: Vec<u8>,
    /// How often it was sent again because it came to the target damaged.
    pub(crate) retries: u32,
}

/// What waits for an answer.
pub(crate) enum Request {
    TaskManagement {
        user: u64,
        function: TaskManagementFunction,
        lun: LunField,
        referenced: Option<TaskTag>,
        /// Its place among all requests of the session: it concerns the tasks before it.
        order: u64,
    },
    Ping {
        user: u64,
        data: Vec<u8>,
    },
    /// Our own ping.
    Keepalive,
    /// A ping that uses up a number which was lost with a connection.
    Filler,
    /// TASK REASSIGN of a task that was on a lost connection.
    Reassign {
        task: TaskTag,
        from: Cid,
    },
    /// The logout for recovery of a lost connection.
    LogOutLost {
        lost: Cid,
    },
    Text(TextExchange),
    Logout {
        /// Of all connections.
        session: bool,
    },
}

impl Request {
    /// Whether it loses its sense with the connection that it went over.
    pub(crate) fn ends_with_connection(&self) -> bool {
        matches!(self, Self::Keepalive | Self::Reassign { .. } | Self::LogOutLost { .. })
    }

    /// The lost connection whose task is reassigned.
    pub(crate) fn reassigns(&self) -> Option<Cid> {
        if let Self::Reassign { from, .. } = self { Some(*from) } else { None }
    }
}
