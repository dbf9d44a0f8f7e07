//! Requests by their command numbers: those that are due, and those that came before their turn.

use lunette_pdu::{LogoutRequest, NopOut, SerialNumber, TaskManagementRequest, TextRequest};

use crate::Time;
use crate::iscsi_target::event::Command;

/// When a request is to be dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The command is the next one, or needs no turn.
    Now,
    /// Others come first: [`FullFeature::hold`](super::FullFeature::hold) it.
    Later,
    /// The command is ignored without an answer.
    Never,
}

/// The kinds of PDUs that wait.
pub(super) enum Waiting {
    Command(Command),
    TaskManagement(TaskManagementRequest),
    Logout(LogoutRequest),
    /// Verified, at recovery level 1 and above.
    Ping(NopOut, Vec<u8>),
    /// A text request with its text.
    Text(TextRequest, Vec<u8>),
    /// The PDU that stands at the front of the stream.
    Stream,
}

pub(super) struct Early {
    pub(super) cmd_sn: SerialNumber,
    pub(super) waiting: Waiting,
    /// When it came: what has just come is seen by [`FullFeature::deliver`](super::FullFeature::deliver) before anything else.
    pub(super) since: Option<Time>,
    /// Whether it is immediate: it uses up no number, and waits for those before its own.
    pub(super) immediate: bool,
}
