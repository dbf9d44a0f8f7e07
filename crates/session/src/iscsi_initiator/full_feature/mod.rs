//! The full feature phase of one connection.

mod commands;
mod control;
mod data_recovery;
mod dispatch;
mod reassign;
mod recovery;
mod retry;
pub(super) mod task_management;
mod text;
mod unanswered;

use lunette_pdu::Cid;

use self::recovery::Recovery;
use super::error::SessionError;
use super::event::TaskTag;
use crate::keys::Parameters;

pub(super) struct FullFeature {
    cid: Cid,
    parameters: Parameters,
    /// Our own ping that has no answer yet.
    keepalive: Option<TaskTag>,
    /// A connection has one text exchange at a time (RFC 7143 section 11.10).
    text: Option<TaskTag>,
    logging_out: bool,
    /// The connection takes no more requests, and logs out when none is under way.
    leaving: bool,
    /// The target has said that it will drop the connection or the session.
    dropping: bool,
    /// From recovery level 1 on.
    recovery: Option<Box<Recovery>>,
    announced: Option<(u32, u32)>,
}

impl FullFeature {
    pub(super) fn new(cid: Cid, parameters: Parameters) -> Self {
        let recovery = (parameters.error_recovery_level > 0).then(Box::default);
        Self {
            cid,
            parameters,
            keepalive: None,
            text: None,
            logging_out: false,
            leaving: false,
            dropping: false,
            recovery,
            announced: None,
        }
    }

    pub(super) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Whether a text exchange is under way here.
    pub(super) fn has_text(&self) -> bool {
        self.text.is_some()
    }

    /// Whether new requests may be sent. None follows a logout (RFC 7143 section 11.14).
    pub(super) fn takes_requests(&self) -> bool {
        !self.logging_out && !self.leaving
    }

    pub(super) fn is_logging_out(&self) -> bool {
        self.logging_out
    }

    pub(super) fn leave(&mut self) {
        self.leaving = true;
    }

    /// The session has no other connection any more.
    pub(super) fn stay(&mut self) {
        self.leaving = false;
    }

    /// Time2Wait and Time2Retain in seconds, as the target has announced them with the end of the connection.
    pub(super) fn announced(&self) -> Option<(u32, u32)> {
        self.announced
    }

    /// The meaning of the stream's end.
    pub(super) fn lost(&self) -> SessionError {
        if self.dropping { SessionError::Dropped } else { SessionError::Disconnected }
    }
}
