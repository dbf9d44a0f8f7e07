//! Why a session ends.

use lunette_pdu::text::printable;
use lunette_pdu::{LoginStatus, Opcode, RejectReason};

use crate::receiver::FrameError;

/// Why a connection, and with recovery level 0 its session, is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// We logged out.
    #[error("logged out")]
    LoggedOut,
    /// The connection was taken out of its session, which goes on.
    #[error("the connection was removed from its session")]
    ConnectionRemoved,
    /// The driver said so.
    #[error("the connection was lost")]
    Disconnected,
    /// The login failed.
    #[error("login failed: {0}")]
    Login(#[from] LoginError),
    /// The target was silent for too long.
    #[error("the target does not answer a ping")]
    PingTimeout,
    /// The target dropped the connection or the session (async events 2 and 3).
    #[error("the target dropped the session")]
    Dropped,
    /// The target refused one of our PDUs in a way that leaves its task undecided.
    #[error("the target rejected a {opcode}: {reason}")]
    Rejected {
        /// The opcode that the target refused.
        opcode: Opcode,
        /// The reason of the target.
        reason: RejectReason,
    },
    /// A digest is wrong: bytes were damaged on their way (RFC 7143 section 7.8). Another connection may fare better.
    #[error("bytes were damaged on their way: {0}")]
    Damaged(&'static str),
    /// A PDU that was lost on its way did not come again (recovery level 1 and above).
    #[error("the target does not send again what was lost: {0}")]
    Unrecovered(&'static str),
    /// LostConnections level 2: no other connection could go on with what was under way on a lost one.
    #[error("a lost connection could not be recovered: {0}")]
    RecoveryFailed(&'static str),
    /// The target broke a rule: which, and how.
    #[error("the target broke a rule of RFC 7143 section {section}: {what}")]
    Protocol {
        /// Where the rule stands.
        section: &'static str,
        /// The fault.
        what: String,
    },
}

/// Why a login failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The target said no.
    #[error("the target refused: {0}")]
    Refused(LoginStatus),
    /// The target did not prove to know its secret.
    #[error("the target failed to authenticate itself")]
    TargetAuthentication,
    /// CHAP is configured with one secret for both directions, so a peer that can make us answer a challenge can pass
    /// for the target (RFC 7143 section 9.2.1).
    #[error("the CHAP secrets of initiator and target are the same")]
    SameSecret,
    /// The target and we have no method, algorithm or value in common.
    #[error("nothing in common for {0}")]
    Incompatible(String),
    /// The login took too long.
    #[error("the login was not finished in time")]
    Timeout,
}

/// The target broke the rule of a section of RFC 7143. `what` may repeat the target's own words; people read it.
#[cold]
pub(crate) fn broken(section: &'static str, what: impl AsRef<str>) -> SessionError {
    SessionError::Protocol { section, what: printable(what.as_ref()).into_owned() }
}

impl From<FrameError> for SessionError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::HeaderDigest => Self::Damaged("header digest"),
            FrameError::DataDigest => Self::Damaged("data digest"),
            FrameError::TooLong(_) => broken("13.12", error.to_string()),
        }
    }
}
