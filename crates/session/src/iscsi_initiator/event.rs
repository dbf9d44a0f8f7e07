//! The events of a session for its driver, and the driver's input.

use lunette_buffer::{Buffer, SharedBuffer};
use lunette_pdu::{AsyncMessage, Cid, LunField, Residual, TaskAttribute, TaskManagementResponseCode};

use super::error::SessionError;

/// A task of the session, until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskTag {
    pub(crate) slot: u16,
    pub(crate) generation: u16,
}

/// A SCSI command with the memory that it works on.
#[derive(Debug)]
pub struct Command {
    /// The driver's name for it; comes back with its end.
    pub user: u64,
    /// The LUN as it stands in the header.
    pub lun: LunField,
    /// The first 16 bytes of the CDB; `cdb_rest` has the others.
    pub cdb: [u8; 16],
    /// The rest of an extended CDB; mostly empty.
    pub cdb_rest: Box<[u8]>,
    /// How the task stands to others of its set.
    pub attribute: TaskAttribute,
    /// From 1, the most urgent, to 15; 0 for none (SAM-5 8.7). It is sent when iSCSIProtocolLevel 2 was agreed on.
    pub priority: u8,
    /// The data to be sent to the target.
    pub data_out: Option<SharedBuffer>,
    /// Where Data-In goes; its length is what the target may send. With `data_out` too, the command is bidirectional.
    pub data_in: Option<Buffer>,
    /// The length of the blocks that `data_out` is made of, or 0. PDUs are cut between blocks where that is possible.
    pub block_len: u16,
}

impl Command {
    /// Takes the command with its memory out, and leaves one that has none.
    #[must_use]
    #[inline]
    pub fn take(&mut self) -> Self {
        let cdb_rest = std::mem::take(&mut self.cdb_rest);
        Self { cdb_rest, data_out: self.data_out.take(), data_in: self.data_in.take(), ..*self }
    }

    /// Bytes of its data, both ways.
    pub(crate) fn data_len(&self) -> usize {
        let data_in_len = self.data_in.as_ref().map_or(0, Buffer::len);
        data_in_len + self.data_out.as_ref().map_or(0, SharedBuffer::len)
    }
}

/// How a command ended.
#[derive(Debug, Clone, Default)]
pub struct Response {
    /// iSCSI response code (RFC 7143 section 11.4.3): 0 when the command completed at the target.
    pub response: u8,
    /// SAM-5 status code; valid when `response` is 0.
    pub status: u8,
    /// The addition of SAM-5 5.3.2 to some statuses; 0 adds nothing, as without iSCSIProtocolLevel 2.
    pub status_qualifier: u16,
    /// Sense data; empty when there is none.
    pub sense: Vec<u8>,
    /// The residual of the only direction, or of Data-Out of a bidirectional command.
    pub residual: Option<Residual>,
    /// The residual of Data-In of a bidirectional command.
    pub read_residual: Option<Residual>,
    /// Bytes of `data_in` that were received, from its start.
    pub data_in_len: usize,
}

/// Something that the driver has to deal with before it calls the session again.
#[derive(Debug)]
pub enum Event {
    /// A connection is in full feature phase. After the first one, commands can be submitted.
    LoggedIn(Cid),
    /// The target lives elsewhere (RFC 7143 section 11.13.5). Close the connection, and open a session to `addresses`.
    /// It is the last event of the connection.
    Redirected {
        /// The connection.
        cid: Cid,
        /// TargetAddress values: `host[:port][,tag]`.
        addresses: Vec<String>,
        /// The target has moved for good.
        permanent: bool,
    },
    /// A command has ended at the target.
    Completed {
        /// With its memory.
        command: Command,
        /// The response of the target.
        response: Response,
    },
    /// A command was ended by a task management function, without a response.
    Aborted(Command),
    /// The answer to [`Session::manage_tasks`](super::Session::manage_tasks). Events for the tasks that it ended came
    /// before.
    TaskManagementDone {
        /// The driver's name for the request.
        user: u64,
        /// The target's answer.
        response: TaskManagementResponseCode,
        /// The finding of QUERY ASYNCHRONOUS EVENT (SAM-5 7.8); zeros otherwise.
        information: [u8; 3],
    },
    /// The answer to [`Session::ping`](super::Session::ping).
    Pong {
        /// The driver's name for the request.
        user: u64,
        /// Whether the echo equals the sent data.
        intact: bool,
    },
    /// The whole answer to [`Session::text`](super::Session::text).
    Text {
        /// The driver's name for the request.
        user: u64,
        /// Keys and values.
        pairs: Vec<(String, String)>,
    },
    /// News from the target, with its sense data or text.
    Async {
        /// The header.
        message: AsyncMessage,
        /// Sense and event data.
        data: Vec<u8>,
    },
    /// The connection is over: send what is ready, then close its stream. When it was the session's last, the session
    /// is over; [`Session::into_unfinished`](super::Session::into_unfinished) has its commands.
    Closed {
        /// The connection.
        cid: Cid,
        /// The reason of the end.
        why: SessionError,
    },
}

impl Event {
    /// A command has ended at the target. Takes it with its memory out of where it is.
    pub(crate) fn completed(command: &mut Command, response: &mut Response) -> Self {
        Self::Completed { command: command.take(), response: std::mem::take(response) }
    }
}
