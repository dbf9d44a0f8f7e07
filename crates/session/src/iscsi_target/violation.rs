//! Violations of the protocol's rules, and their price.

use lunette_pdu::RejectReason;

use crate::receiver::FrameError;

/// A rule that the initiator broke.
#[derive(Debug)]
pub(crate) struct Violation {
    /// The reason for a Reject PDU; `None` when the PDU cannot be trusted enough to be quoted.
    pub(crate) reject: Option<RejectReason>,
    /// Whether the connection can go on.
    pub(crate) fatal: bool,
    pub(crate) why: String,
    /// For the Reject of a SNACK: the number that the next PDU of its kind would have (RFC 7143 section 11.17.2).
    pub(crate) data_sn: u32,
}

impl Violation {
    /// At recovery level 0 a broken rule costs the connection (RFC 7143 section 7.1.5).
    pub(crate) fn fatal(reason: RejectReason, why: impl Into<String>) -> Self {
        Self { reject: Some(reason), fatal: true, why: why.into(), data_sn: 0 }
    }

    /// The PDU is refused; nothing else happens.
    pub(crate) fn harmless(reason: RejectReason, why: impl Into<String>) -> Self {
        Self { reject: Some(reason), fatal: false, why: why.into(), data_sn: 0 }
    }
}

impl From<FrameError> for Violation {
    fn from(error: FrameError) -> Self {
        let reject = match error {
            FrameError::HeaderDigest => None,
            FrameError::DataDigest => Some(RejectReason::DATA_DIGEST_ERROR),
            FrameError::TooLong(_) => Some(RejectReason::PROTOCOL_ERROR),
        };
        Self { reject, fatal: true, why: error.to_string(), data_sn: 0 }
    }
}
