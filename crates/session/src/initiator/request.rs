//! Requests other than commands, until they are answered.

use std::collections::VecDeque;

use lunette_pdu::text::{self, TextAssembler};
use lunette_pdu::{Cid, LunField, SerialNumber, TaskManagementFunction};

use super::error::{SessionError, broken};
use super::event::TaskTag;
use crate::limits::{MAX_TEXT_ANSWER_BYTES, MAX_TEXT_ANSWER_KEYS, MAX_TEXT_ANSWER_PDUS};

/// A request under way.
pub(crate) struct Underway {
    /// Where it was sent: its answer comes there (RFC 7143 section 4.2.5.1).
    pub(crate) cid: Cid,
    /// Its number among the commands, or that of its last part; an immediate one has none.
    pub(crate) cmd_sn: Option<SerialNumber>,
    pub(crate) request: Request,
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

/// A text request, with what has come of its answer.
pub(crate) struct TextExchange {
    pub(crate) user: u64,
    /// The whole request.
    list: Vec<u8>,
    /// Parts of a long request that the target has yet to take.
    outgoing: VecDeque<Vec<u8>>,
    assembler: TextAssembler,
    pdus: u32,
}

impl TextExchange {
    /// Cuts the request's list to what the target takes.
    pub(crate) fn new(user: u64, list: &[u8], segment_len: u32) -> Self {
        let outgoing = text::split_text(list, segment_len as usize).map(<[u8]>::to_vec).collect();
        let assembler = TextAssembler::new(MAX_TEXT_ANSWER_BYTES);
        Self { user, list: list.to_vec(), outgoing, assembler, pdus: 0 }
    }

    /// The same from its beginning.
    pub(crate) fn again(self, segment_len: u32) -> Self {
        let Self { user, list, .. } = self;
        Self::new(user, &list, segment_len)
    }

    /// The next part of the request; empty when all of it is out and we only ask for more. True when it is the last.
    pub(crate) fn next_part(&mut self) -> (Vec<u8>, bool) {
        let part = self.outgoing.pop_front().unwrap_or_default();
        (part, self.outgoing.is_empty())
    }

    /// Takes a part of the answer.
    pub(crate) fn take(&mut self, data: &[u8], continue_: bool) -> Result<(), SessionError> {
        self.pdus += 1;
        if self.pdus > MAX_TEXT_ANSWER_PDUS {
            return Err(broken("11.11", format!("no end of the answer after {MAX_TEXT_ANSWER_PDUS} responses")));
        }
        if !self.outgoing.is_empty() && (!data.is_empty() || continue_) {
            return Err(broken("6.2", "keys came while our own list was being continued"));
        }
        // Parts without C are put together too: only F ends the answer.
        self.assembler.push(data, true).map(drop).map_err(|error| broken("6.2", error.to_string()))
    }

    /// The whole answer.
    pub(crate) fn finish(mut self) -> Result<Vec<(String, String)>, SessionError> {
        if !self.outgoing.is_empty() {
            return Err(broken("11.11.1", "F in the answer to a part of a request"));
        }
        let list = self.assembler.push(&[], false).map_err(|error| broken("6.2", error.to_string()))?;
        let list = list.unwrap_or_default();
        let pairs = text::pairs(&list).take(MAX_TEXT_ANSWER_KEYS + 1).map(|pair| {
            let (key, value) = pair.map_err(|error| broken("6.1", error.to_string()))?;
            Ok((key.to_owned(), value.to_owned()))
        });
        let pairs: Vec<_> = pairs.collect::<Result<_, SessionError>>()?;
        if pairs.len() > MAX_TEXT_ANSWER_KEYS {
            return Err(broken("6.2", format!("more than {MAX_TEXT_ANSWER_KEYS} keys in one answer")));
        }
        Ok(pairs)
    }
}
