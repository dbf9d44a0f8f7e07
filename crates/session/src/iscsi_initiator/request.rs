//! Requests other than commands, until they are answered.

use std::time::Duration;

use lunette_pdu::{BHS_LEN, Bhs, Cid, LunField, SerialNumber, TaskManagementFunction};

use super::attempts::Attempts;
use super::event::TaskTag;
use super::text::TextExchange;
use crate::Time;

/// A request under way.
pub(crate) struct Underway {
    /// Where it was sent: its answer comes there (RFC 7143 section 4.2.5.1).
    pub(crate) cid: Cid,
    /// The number of the request among the commands, or that of its last part; an immediate one has none.
    pub(crate) cmd_sn: Option<SerialNumber>,
    pub(crate) request: Request,
    /// From recovery level 1 on, its last PDU: the target may have to get it again.
    pub(crate) sent: Option<Box<SentRequest>>,
}

/// Where DataSegmentLength stands in every header.
const DATA_SEGMENT_LEN: std::ops::Range<usize> = 5..8;

/// A PDU as it was sent.
pub(crate) struct SentRequest {
    pub(crate) header: [u8; BHS_LEN],
    pub(crate) segment: Vec<u8>,
    /// How often it was sent again because it came to the target damaged.
    pub(crate) retries: u32,
    /// When its answer was asked for last; not known before the driver has looked at the clock.
    pub(crate) attempts: Option<Attempts>,
    /// A ping went after it.
    pub(crate) probed: bool,
    /// The target has said that it works on it.
    pub(crate) is_known: bool,
}

impl SentRequest {
    pub(crate) fn new(header: [u8; BHS_LEN], segment: Vec<u8>) -> Self {
        Self { header, segment, retries: 0, attempts: None, probed: false, is_known: false }
    }

    /// Keeps the first `most` bytes of the data segment.
    pub(crate) fn shorten(&mut self, most: usize) {
        self.segment.truncate(most);
        let [_, len @ ..] = (self.segment.len() as u32).to_be_bytes();
        self.header[DATA_SEGMENT_LEN].copy_from_slice(&len);
    }
}

impl Underway {
    /// Begins to wait for the answer.
    pub(crate) fn watch(&mut self, now: Time) {
        if let Some(sent) = &mut self.sent {
            sent.attempts.get_or_insert(Attempts::begin(now));
        }
    }

    /// When the answer should have come, for a request whose loss shows nowhere else: not in the numbers of the
    /// commands. A logout has one at times, but no command follows it.
    pub(crate) fn answer_due(&self, patience: Duration) -> Option<Time> {
        let sent = self.sent.as_ref()?;
        let shows_nowhere = Bhs::from(sent.header).immediate() || matches!(self.request, Request::Logout { .. });
        sent.attempts.filter(|_| shows_nowhere).map(|attempts| attempts.due(patience))
    }
}

/// A request that waits for an answer.
pub(crate) enum Request {
    TaskManagement {
        user: u64,
        function: TaskManagementFunction,
        lun: LunField,
        referenced: Option<TaskTag>,
        /// The request's place among all requests of the session: it concerns the tasks before it.
        order: u64,
        /// The command that a QUERY TASK asks for was not acknowledged when that was sent.
        may_be_lost: bool,
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
        /// Whether the logout is of all connections.
        session: bool,
    },
}

impl Request {
    /// Whether it loses its sense with the connection that it went over.
    pub(crate) fn ends_with_connection(&self) -> bool {
        matches!(self, Self::Keepalive | Self::Reassign { .. } | Self::LogOutLost { .. })
    }

    /// The task that it asks to reassign.
    pub(crate) fn reassigned_task(&self) -> Option<TaskTag> {
        if let Self::Reassign { task, .. } = self { Some(*task) } else { None }
    }

    /// The lost connection whose task is reassigned.
    pub(crate) fn reassigns(&self) -> Option<Cid> {
        if let Self::Reassign { from, .. } = self { Some(*from) } else { None }
    }
}
