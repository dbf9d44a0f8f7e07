//! A login that asks to be admitted.

use std::sync::Arc;

use lunette_pdu::{Cid, Isid, LoginStatus, SerialNumber, Tsih};

use super::directory::{Admission, Directory, TargetNode};
use super::hosts::Host;
use super::origin::Origin;
use crate::ProvenSecrets;
use crate::keys::Parameters;

/// A login that has passed all stages and asks to become, or to join, a session.
#[derive(Debug, Clone)]
pub struct AdmitRequest {
    /// The initiator's iSCSI name.
    pub initiator_name: String,
    /// The CHAP user that the initiator proved to be; `None` when no proof was asked for.
    pub chap_user: Option<String>,
    /// The secrets that both sides have proven.
    pub secrets: ProvenSecrets,
    /// From the login's header.
    pub isid: Isid,
    /// Zero asks for a new session.
    pub tsih: Tsih,
    /// The connection's number within its session.
    pub cid: Cid,
    /// The target, and the host as which it lets the initiator in; `None` in a discovery session.
    pub admission: Option<Admission>,
    /// The place that the initiator comes from.
    pub origin: Origin,
    /// The portal group of the portal that the connection came through.
    pub portal_group: u16,
    /// The first command number of a new session.
    pub cmd_sn: SerialNumber,
    /// The number up to which the initiator has received on the connection of that number, when the login takes its
    /// place (RFC 7143 section 11.12.9).
    pub exp_stat_sn: SerialNumber,
    /// The negotiated parameters.
    pub parameters: Parameters,
}

impl AdmitRequest {
    /// The target; `None` in a discovery session.
    pub fn target(&self) -> Option<&Arc<TargetNode>> {
        self.admission.as_ref().map(|admission| &admission.target)
    }

    /// The template that the initiator belongs to: the login waits until the directory has a host of its own for it.
    pub fn template(&self) -> Option<&Arc<Host>> {
        self.admission.as_ref().map(|admission| &admission.host).filter(|host| host.is_template)
    }

    /// The name of the initiator's host; none in a discovery session.
    pub(crate) fn host(&self) -> Option<Arc<str>> {
        self.admission.as_ref().map(|admission| Arc::clone(&admission.host.name))
    }
}

impl Directory {
    /// Looks again at a login that `older` has let pass: this directory took its place meanwhile. The request leads to
    /// the target as it is now.
    ///
    /// # Errors
    ///
    /// The status to refuse the login with: the target is gone, has moved (the next login learns where), does not admit
    /// the initiator any more, or wants other proofs than were given.
    pub fn recheck(&self, older: &Self, request: &mut AdmitRequest) -> Result<(), LoginStatus> {
        let still_proven = match &mut request.admission {
            None => self.discovery.same_as(&older.discovery),
            Some(admission) => {
                let now = self.find(&admission.target.name).ok_or(LoginStatus::NOT_FOUND)?;
                let now = now.admit(&request.initiator_name, &request.origin);
                let now = now.ok_or(LoginStatus::AUTHORIZATION_FAILURE)?;
                if now.target.moved.is_some() && request.tsih == Tsih::NEW {
                    return Err(LoginStatus::SERVICE_UNAVAILABLE);
                }
                let before = std::mem::replace(admission, now);
                admission.authentication().same_as(before.authentication())
            }
        };
        if still_proven { Ok(()) } else { Err(LoginStatus::AUTHENTICATION_FAILURE) }
    }
}
