//! The configuration of a session's login.

use lunette_pdu::Isid;

use crate::chap::algorithms::ChapAlgorithms;
use crate::keys::Offer;
use crate::{Credentials, Timers};

/// How the initiator proves itself, and what it asks of the target.
#[derive(Debug, Clone)]
pub struct ChapIdentity {
    /// CHAP_N and the secret of the initiator.
    pub initiator: Credentials,
    /// The secret that the target has to prove to know (mutual CHAP), and the name it must give when that is not empty.
    /// It is not the initiator's, or no login begins.
    pub target: Option<Credentials>,
    /// The algorithms that are offered, strongest first.
    pub algorithms: ChapAlgorithms,
}

impl ChapIdentity {
    /// Whether both sides prove that they know the same.
    pub(crate) fn has_one_secret(&self) -> bool {
        self.target.as_ref().is_some_and(|target| target.secret.same_as(&self.initiator.secret))
    }
}

/// Names, identity and offers of a session.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// InitiatorName.
    pub initiator_name: String,
    /// InitiatorAlias.
    pub initiator_alias: Option<String>,
    /// TargetName; without one the session is a discovery session.
    pub target_name: Option<String>,
    /// The initiator's part of the session identifier.
    pub isid: Isid,
    /// Without one, only `AuthMethod=None` is offered.
    pub chap: Option<ChapIdentity>,
    /// The offer in the negotiation; where the rule of a key leaves the choice to the target, the bound of that choice.
    /// Recovery levels above 2 do not exist and are not offered. Level 2 needs a `time2retain_s` above 0 to save
    /// anything.
    pub offer: Offer,
    /// How long to wait for what.
    pub timers: Timers,
}
