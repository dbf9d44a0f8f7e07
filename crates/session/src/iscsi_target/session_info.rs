//! The facts about a session that all of its connections share.

use std::sync::Arc;
use std::time::Duration;

use lunette_pdu::{Isid, Tsih};

use super::directory::TargetNode;
use super::origin::Origin;
use crate::ProvenSecrets;
use crate::keys::Parameters;

/// The initiator and the target of a session, and what its leading login agreed on.
#[derive(Debug)]
pub struct SessionInfo {
    /// The initiator's iSCSI name.
    pub initiator_name: String,
    /// The CHAP user that its first login proved to be; `None` when no proof was asked for. All of the session's
    /// connections belong to that user.
    pub chap_user: Option<String>,
    /// The place that its first connection came from. The certificates of all of its connections have the same names.
    pub origin: Origin,
    /// The secrets that both sides have proven in that login.
    pub secrets: ProvenSecrets,
    /// The initiator's part of the session's name.
    pub isid: Isid,
    /// Our part of the session's name.
    pub tsih: Tsih,
    /// The target; `None` in a discovery session.
    pub target: Option<Arc<TargetNode>>,
    /// The name of the initiator's host; `None` in a discovery session. All of the session's connections belong to that
    /// host.
    pub host: Option<Arc<str>>,
    /// The portal group that the session uses.
    pub portal_group: u16,
    /// Session-wide parameters, as the leading connection negotiated them.
    pub parameters: Parameters,
}

impl SessionInfo {
    /// Whether other connections may bring commands: beside this one, or after it was lost.
    pub(crate) fn may_have_siblings(&self) -> bool {
        self.parameters.max_connections > 1 || self.recovers_connections()
    }

    /// Whether the session outlives the loss of a connection (ErrorRecoveryLevel 2): its tasks wait to be taken over by
    /// another one.
    pub(crate) fn recovers_connections(&self) -> bool {
        self.parameters.error_recovery_level >= 2
    }

    /// How long the tasks of a lost connection wait for that (RFC 7143 sections 13.15 and 13.16): Time2Retain begins
    /// when Time2Wait is over. With a Time2Retain of 0 they do not wait.
    pub(crate) fn recovery_time(&self) -> Option<Duration> {
        let Parameters { time2wait_s, time2retain_s, .. } = &self.parameters;
        let time = Duration::from_secs(u64::from(*time2wait_s) + u64::from(*time2retain_s));
        (self.recovers_connections() && *time2retain_s > 0).then_some(time)
    }

    /// Whether commands may come before others that have smaller numbers: over another connection, or because a damaged
    /// PDU was discarded and comes again.
    pub(crate) fn may_have_gaps(&self) -> bool {
        self.may_have_siblings() || self.parameters.error_recovery_level > 0
    }
}
