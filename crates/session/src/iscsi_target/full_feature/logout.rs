//! The logout of a connection or of its session (RFC 7143 sections 11.14 and 11.15).

use lunette_pdu::{Cid, InitiatorTaskTag, LogoutReason, LogoutRequest, LogoutResponseCode};

use crate::iscsi_target::event::{CloseReason, Signal};
use crate::iscsi_target::session_info::SessionInfo;

/// How far the initiator has logged out.
#[derive(Default)]
pub(super) struct Logout {
    /// A logout that the driver has to answer, and how this connection ends when it is the one that the logout names.
    asked: Option<(LogoutRequest, CloseReason)>,
    /// The logout that has been answered, and with which this connection ends.
    answered: Option<CloseReason>,
}

/// The step that a logout request leads to.
pub(super) enum Step {
    Answer(LogoutResponseCode),
    /// The driver is asked first.
    Ask(Signal),
}

impl Logout {
    /// Begins a logout over the connection of that number. Closing a connection of several ends its tasks, which takes
    /// the driver; everything else is answered at once.
    pub(super) fn begin(&mut self, request: &LogoutRequest, session: &SessionInfo, cid: Cid) -> Step {
        let response = match request.reason {
            LogoutReason::CLOSE_SESSION => LogoutResponseCode::CLOSED,
            LogoutReason::CLOSE_CONNECTION if session.may_have_siblings() => {
                self.asked = Some((*request, CloseReason::ConnectionLogout));
                return Step::Ask(Signal::Logout(request.cid));
            }
            LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY if session.recovers_connections() => {
                self.asked = Some((*request, CloseReason::RecoveryLogout));
                return Step::Ask(Signal::LogoutForRecovery { cid: request.cid, received: request.exp_stat_sn });
            }
            LogoutReason::CLOSE_CONNECTION if request.cid == cid => LogoutResponseCode::CLOSED,
            LogoutReason::CLOSE_CONNECTION => LogoutResponseCode::CID_NOT_FOUND,
            _ => LogoutResponseCode::RECOVERY_NOT_SUPPORTED,
        };
        if response == LogoutResponseCode::CLOSED {
            self.answered = Some(CloseReason::Logout);
        }
        Step::Answer(response)
    }

    /// The driver has ended the connection that the logout names, or knows of none. Returns the request, which is to be
    /// answered.
    pub(super) fn done(&mut self, response: LogoutResponseCode, cid: Cid) -> Option<LogoutRequest> {
        let (request, reason) = self.asked.take()?;
        if response == LogoutResponseCode::CLOSED && request.cid == cid {
            self.answered = Some(reason);
        }
        Some(request)
    }

    /// Whether a logout waits for the driver.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether a request of that name waits for the driver.
    pub(super) fn is_request(&self, itt: InitiatorTaskTag) -> bool {
        self.asked.as_ref().is_some_and(|(request, _)| request.itt == itt)
    }

    /// Whether a logout waits for the driver or has been answered. Nothing may follow it.
    pub(super) fn is_begun(&self) -> bool {
        self.is_asked() || self.answered.is_some()
    }

    /// How the connection ends, when the initiator has logged out of it.
    pub(super) fn close_reason(&self) -> Option<&CloseReason> {
        self.answered.as_ref()
    }
}
