//! The table of negotiable keys. Names and identities (`InitiatorName`, `TargetAlias`, …) and authentication are not
//! negotiated: the login reads them by name.

use std::ops::RangeInclusive;

use super::{Choices, DATA_LENGTH, Digest, Offer, Parameters, TaskReporting};

/// How the offers of two sides become one value.
#[derive(Debug, Clone)]
pub enum Rule {
    /// Yes when both say Yes.
    And,
    /// Yes when one says Yes.
    Or,
    /// The smaller number.
    Minimum(RangeInclusive<u32>),
    /// The larger number.
    Maximum(RangeInclusive<u32>),
    /// Each side declares its own; nothing is combined.
    Declared(RangeInclusive<u32>),
    /// The first offered value that the responder takes too.
    FirstOf(&'static [&'static str]),
    /// Yes when both say Yes (RFC 3720 appendix A.3.1). As RFC 7143 has made the key obsolete, `Reject` is an answer
    /// too and means No.
    Marker,
    /// The offer is a number or a range, the answer one number of it or `Reject` (RFC 3720 appendix A.3.2). Ours is the
    /// number that we like best, 0 for none.
    MarkerInterval,
}

impl Rule {
    /// Whether the key is one of RFC 3720 appendix A.
    pub(super) fn is_for_markers(&self) -> bool {
        matches!(self, Self::Marker | Self::MarkerInterval)
    }
}

/// Whether a value holds for a connection or for its whole session. Session-wide keys are negotiated only on the
/// leading connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The connection on which it was negotiated.
    Connection,
    /// All connections of the session.
    Session,
}

/// One key.
pub struct Row {
    /// The key as it stands on the wire.
    pub key: &'static str,
    /// How offers combine, with the legal range.
    pub rule: Rule,
    /// The scope of the key.
    pub scope: Scope,
    /// May be negotiated again in the full feature phase.
    pub full_feature: bool,
    /// Our side of the negotiation. For lists, the mask of choices.
    pub ours: fn(&Offer) -> u32,
    /// Puts the agreed value in its place. Booleans are 0 and 1, lists the index of the choice.
    pub set: fn(&mut Parameters, u32),
}

/// The row of `key`, when it is one that is negotiated.
pub fn row(key: &str) -> Option<(usize, &'static Row)> {
    KEYS.iter().enumerate().find(|(_, row)| row.key == key)
}

const DIGESTS: Rule = Rule::FirstOf(&["None", "CRC32C"]);

fn digest(choice: u32) -> Digest {
    if choice == 1 { Digest::Crc32c } else { Digest::None }
}

fn mask(choices: Choices) -> u32 {
    u32::from(choices.0)
}

/// The key whose answer depends on another one.
pub(super) const TIME2RETAIN: &str = "DefaultTime2Retain";

/// RFC 7143 chapter 13 and RFC 7144 section 7.1.1, in the order of the sections.
pub static KEYS: &[Row] = &[
    Row {
        key: "HeaderDigest",
        rule: DIGESTS,
        scope: Scope::Connection,
        full_feature: false,
        ours: |w| mask(w.header_digest),
        set: |p, v| p.header_digest = digest(v),
    },
    Row {
        key: "DataDigest",
        rule: DIGESTS,
        scope: Scope::Connection,
        full_feature: false,
        ours: |w| mask(w.data_digest),
        set: |p, v| p.data_digest = digest(v),
    },
    Row {
        key: "MaxConnections",
        rule: Rule::Minimum(1..=65_535),
        scope: Scope::Session,
        full_feature: false,
        ours: |w| w.max_connections,
        set: |p, v| p.max_connections = v,
    },
    Row {
        key: "InitialR2T",
        rule: Rule::Or,
        scope: Scope::Session,
        full_feature: false,
        ours: |w| u32::from(w.initial_r2t),
        set: |p, v| p.initial_r2t = v == 1,
    },
    Row {
        key: "ImmediateData",
        rule: Rule::And,
        scope: Scope::Session,
        full_feature: false,
        ours: |w| u32::from(w.immediate_data),
        set: |p, v| p.immediate_data = v == 1,
    },
    Row {
        key: "MaxRecvDataSegmentLength",
        rule: Rule::Declared(DATA_LENGTH),
        scope: Scope::Connection,
        full_feature: true,
        ours: |w| w.recv_data_segment_len,
        set: |p, v| p.send_data_segment_len = v,
    },
    Row {
        key: "MaxBurstLength",
        rule: Rule::Minimum(DATA_LENGTH),
        scope: Scope::Session,
        full_feature: false,
        ours: |w| w.max_burst_len,
        set: |p, v| p.max_burst_len = v,
    },
    Row {
        key: "FirstBurstLength",
        rule: Rule::Minimum(DATA_LENGTH),
        scope: Scope::Session,
        full_feature: false,
        ours: |w| w.first_burst_len,
        set: |p, v| p.first_burst_len = v,
    },
    Row {
        key: "DefaultTime2Wait",
        rule: Rule::Maximum(0..=3600),
        scope: Scope::Session,
        full_feature: false,
        ours: |w| w.time2wait_s,
        set: |p, v| p.time2wait_s = v,
    },
    Row {
        key: TIME2RETAIN,
        rule: Rule::Minimum(0..=3600),
        scope: Scope::Session,
        full_feature: false,
        ours: |w| w.time2retain_s,
        set: |p, v| p.time2retain_s = v,
    },
    Row {
        key: "MaxOutstandingR2T",
        rule: Rule::Minimum(1..=65_535),
        scope: Scope::Session,
        full_feature: false,
        ours: |w| w.max_outstanding_r2t,
        set: |p, v| p.max_outstanding_r2t = v,
    },
    Row {
        key: "DataPDUInOrder",
        rule: Rule::Or,
        scope: Scope::Session,
        full_feature: false,
        ours: |w| u32::from(w.data_pdu_in_order),
        set: |p, v| p.data_pdu_in_order = v == 1,
    },
    Row {
        key: "DataSequenceInOrder",
        rule: Rule::Or,
        scope: Scope::Session,
        full_feature: false,
        ours: |w| u32::from(w.data_sequence_in_order),
        set: |p, v| p.data_sequence_in_order = v == 1,
    },
    Row {
        key: "ErrorRecoveryLevel",
        rule: Rule::Minimum(0..=2),
        scope: Scope::Session,
        full_feature: false,
        ours: |w| w.error_recovery_level,
        set: |p, v| p.error_recovery_level = v,
    },
    Row {
        key: "TaskReporting",
        rule: Rule::FirstOf(&["RFC3720", "ResponseFence", "FastAbort"]),
        scope: Scope::Session,
        full_feature: false,
        ours: |w| mask(w.task_reporting),
        set: |p, v| {
            p.task_reporting = match v {
                1 => TaskReporting::ResponseFence,
                2 => TaskReporting::FastAbort,
                _ => TaskReporting::Rfc3720,
            }
        },
    },
    Row {
        key: "iSCSIProtocolLevel",
        rule: Rule::Minimum(0..=31),
        scope: Scope::Session,
        full_feature: false,
        ours: |w| w.protocol_level,
        set: |p, v| p.protocol_level = v,
    },
    // RFC 3720 appendix A.3. RFC 7143 section 13.25 has made these keys obsolete. While markers are off, the first pair
    // is answered with "No", which is one of the two answers that it allows and the one that every RFC 3720 initiator
    // understands; the intervals are answered with "Reject".
    Row {
        key: "IFMarker",
        rule: Rule::Marker,
        scope: Scope::Connection,
        full_feature: false,
        ours: |w| u32::from(w.marker_interval.is_some()),
        set: |p, v| p.if_marker = v == 1,
    },
    Row {
        key: "OFMarker",
        rule: Rule::Marker,
        scope: Scope::Connection,
        full_feature: false,
        ours: |w| u32::from(w.marker_interval.is_some()),
        set: |p, v| p.of_marker = v == 1,
    },
    Row {
        key: "IFMarkInt",
        rule: Rule::MarkerInterval,
        scope: Scope::Connection,
        full_feature: false,
        ours: |w| w.marker_interval.unwrap_or(0),
        set: |p, v| p.if_mark_int = v,
    },
    Row {
        key: "OFMarkInt",
        rule: Rule::MarkerInterval,
        scope: Scope::Connection,
        full_feature: false,
        ours: |w| w.marker_interval.unwrap_or(0),
        set: |p, v| p.of_mark_int = v,
    },
];
