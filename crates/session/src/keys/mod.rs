//! The text keys of RFC 7143 chapter 13: one table, and what two sides make of it.

mod markers;
mod negotiate;
mod originate;
mod table;

pub use negotiate::{Answer, Negotiation, NegotiationError};
pub use originate::{OfferError, Originator};
pub use table::{KEYS, Row, Rule, Scope, row};

use std::collections::HashSet;
use std::ops::RangeInclusive;

use lunette_pdu::text::parse_number;

/// A set of choices for a list key: bit `n` stands for the n-th value that the key's row lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choices(pub u8);

/// HeaderDigest and DataDigest: without, or with CRC32C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Digest {
    /// No digest.
    #[default]
    None,
    /// CRC32C after the header or after the data segment.
    Crc32c,
}

impl Digest {
    /// The value of the key (RFC 7143 section 13.1).
    pub const fn value(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Crc32c => "CRC32C",
        }
    }
}

/// How the tasks of an aborted set report (RFC 7143 section 13.23).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskReporting {
    /// The level of RFC 3720.
    #[default]
    Rfc3720,
    /// With response fences.
    ResponseFence,
    /// FastAbort: no waiting for acknowledgements.
    FastAbort,
}

/// The negotiated values with which a connection and its session work.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameters {
    /// Digest over headers.
    pub header_digest: Digest,
    /// Digest over data segments.
    pub data_digest: Digest,
    /// The longest data segment that we take, in bytes: what we declared.
    pub recv_data_segment_len: u32,
    /// The longest data segment that the peer takes, in bytes: what it declared.
    pub send_data_segment_len: u32,
    /// Connections that the session may have.
    pub max_connections: u32,
    /// No unsolicited Data-Out PDUs.
    pub initial_r2t: bool,
    /// Commands may carry data.
    pub immediate_data: bool,
    /// The longest sequence of Data-In or solicited Data-Out PDUs, in bytes.
    pub max_burst_len: u32,
    /// Unsolicited data of one command, immediate data included, in bytes.
    pub first_burst_len: u32,
    /// Seconds to wait before reconnecting.
    pub time2wait_s: u32,
    /// Seconds that tasks are kept for a reconnection.
    pub time2retain_s: u32,
    /// R2Ts outstanding for one task.
    pub max_outstanding_r2t: u32,
    /// Data PDUs of a sequence come in order of their offsets.
    pub data_pdu_in_order: bool,
    /// Sequences come in order of their offsets.
    pub data_sequence_in_order: bool,
    /// 0, 1 or 2.
    pub error_recovery_level: u32,
    /// Semantics of aborted task sets.
    pub task_reporting: TaskReporting,
    /// iSCSIProtocolLevel (RFC 7144): 1 is RFC 7143, 2 adds the SAM-5 features.
    pub protocol_level: u32,
    /// Markers from the initiator to the target (RFC 3720 appendix A).
    pub of_marker: bool,
    /// Markers from the target to the initiator.
    pub if_marker: bool,
    /// From the end of a marker to the beginning of the next one, initiator to target, in 4-byte words; 0 when none was
    /// agreed on.
    pub of_mark_int: u32,
    /// The marker interval from target to initiator.
    pub if_mark_int: u32,
}

impl Default for Parameters {
    /// The values that hold for keys that neither side offers (RFC 7143 chapter 13).
    fn default() -> Self {
        Self {
            header_digest: Digest::None,
            data_digest: Digest::None,
            recv_data_segment_len: 8192,
            send_data_segment_len: 8192,
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            max_burst_len: 262_144,
            first_burst_len: 65_536,
            time2wait_s: 2,
            time2retain_s: 20,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            task_reporting: TaskReporting::Rfc3720,
            protocol_level: 1,
            of_marker: false,
            if_marker: false,
            of_mark_int: DEFAULT_MARKER_INTERVAL,
            if_mark_int: DEFAULT_MARKER_INTERVAL,
        }
    }
}

impl Parameters {
    /// The parameters of a connection of `session`: the connection's own values, and those of the session.
    #[must_use]
    pub fn within(&self, session: &Self) -> Self {
        Self {
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            recv_data_segment_len: self.recv_data_segment_len,
            send_data_segment_len: self.send_data_segment_len,
            of_marker: self.of_marker,
            if_marker: self.if_marker,
            of_mark_int: self.of_mark_int,
            if_mark_int: self.if_mark_int,
            ..session.clone()
        }
    }

    /// R2Ts outstanding for one task. RFC 7143 section 13.19 wants one at a time where sequences in order can be asked
    /// for again: only the last one may be.
    pub fn effective_max_outstanding_r2t(&self) -> u32 {
        if self.error_recovery_level > 0 && self.data_sequence_in_order { 1 } else { self.max_outstanding_r2t }
    }

    /// Whether the features of RFC 7144 may be used.
    pub fn has_sam5_features(&self) -> bool {
        self.protocol_level >= SAM5_PROTOCOL_LEVEL
    }

    /// Unsolicited data of one command. The two bursts are negotiated one by one; RFC 7143 section 13.14 wants the
    /// first no longer than the other.
    pub fn effective_first_burst_len(&self) -> u32 {
        self.first_burst_len.min(self.max_burst_len)
    }
}

/// The values of one side for all negotiated keys: what an originator offers, and what a responder agrees to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// HeaderDigest: None (bit 0), CRC32C (bit 1).
    pub header_digest: Choices,
    /// DataDigest: None (bit 0), CRC32C (bit 1).
    pub data_digest: Choices,
    /// MaxRecvDataSegmentLength of this side, in bytes.
    pub recv_data_segment_len: u32,
    /// MaxConnections: connections of a session.
    pub max_connections: u32,
    /// InitialR2T: insists on an R2T before any Data-Out.
    pub initial_r2t: bool,
    /// ImmediateData: allows data in commands.
    pub immediate_data: bool,
    /// MaxBurstLength, in bytes.
    pub max_burst_len: u32,
    /// FirstBurstLength, in bytes.
    pub first_burst_len: u32,
    /// DefaultTime2Wait, in seconds.
    pub time2wait_s: u32,
    /// DefaultTime2Retain, in seconds.
    pub time2retain_s: u32,
    /// The longest Time2Wait that tasks of lost connections are kept over, in seconds. The larger wish of both sides
    /// holds, so an initiator could have them kept for an hour; with more than this they are not kept: the Time2Retain
    /// agreed on is 0.
    pub max_time2wait_s: u32,
    /// MaxOutstandingR2T: R2Ts of one task.
    pub max_outstanding_r2t: u32,
    /// DataPDUInOrder: insists on order within a sequence.
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder: insists on order of sequences.
    pub data_sequence_in_order: bool,
    /// ErrorRecoveryLevel: the highest level, 0 to 2.
    pub error_recovery_level: u32,
    /// TaskReporting: RFC3720 (bit 0), ResponseFence (bit 1), FastAbort (bit 2).
    pub task_reporting: Choices,
    /// iSCSIProtocolLevel: the highest level, 1 or 2.
    pub protocol_level: u32,
    /// Markers in both directions, at this interval in 4-byte words (RFC 3720 appendix A); `None`: no markers. A
    /// responder agrees to the nearest interval that was offered.
    pub marker_interval: Option<u32>,
}

impl Default for Offer {
    /// The offer of a Lunette target when its configuration says nothing else.
    fn default() -> Self {
        Self {
            header_digest: Choices(0b11),
            data_digest: Choices(0b11),
            recv_data_segment_len: 262_144,
            max_connections: 8,
            initial_r2t: false,
            immediate_data: true,
            max_burst_len: 1 << 20,
            first_burst_len: 262_144,
            time2wait_s: 0,
            time2retain_s: 0,
            max_time2wait_s: 60,
            max_outstanding_r2t: 8,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            task_reporting: Choices(0b111),
            protocol_level: SAM5_PROTOCOL_LEVEL,
            marker_interval: None,
        }
    }
}

impl Offer {
    /// The offer of a Lunette initiator when its caller says nothing else: everything that saves round trips, no
    /// digests.
    pub fn initiator() -> Self {
        Self {
            header_digest: Choices(0b01),
            data_digest: Choices(0b01),
            max_connections: 1,
            max_outstanding_r2t: 16,
            task_reporting: Choices(0b001),
            protocol_level: 1,
            ..Self::default()
        }
    }
}

/// The iSCSIProtocolLevel of RFC 7144: command priority, the status qualifier, and four more task management functions.
pub const SAM5_PROTOCOL_LEVEL: u32 = 2;

/// The only key that may be declared again in the full feature phase (RFC 7143 section 13.12).
pub(crate) const MAX_RECV_DATA_SEGMENT_LENGTH: &str = "MaxRecvDataSegmentLength";

/// The number that `value` stands for, when it is in the range.
pub(crate) fn number_in(value: &str, range: &RangeInclusive<u32>) -> Option<u32> {
    let number = u32::try_from(parse_number(value).ok()?).ok()?;
    range.contains(&number).then_some(number)
}

/// The range of every data length key (RFC 7143 sections 13.12 to 13.14).
pub const DATA_LENGTH: RangeInclusive<u32> = 512..=0x00ff_ffff;

/// The range of the marker intervals, in 4-byte words (RFC 3720 appendix A.3.2). We agree to no less than
/// [`MIN_MARKER_INTERVAL_WORDS`](crate::limits::MIN_MARKER_INTERVAL_WORDS).
pub const MARKER_INTERVAL: RangeInclusive<u32> = 1..=65_535;

/// The marker interval when neither side names one, in 4-byte words (RFC 3720 appendix A.3.2).
pub const DEFAULT_MARKER_INTERVAL: u32 = 2048;

/// RFC 7143 sections 6.3 and 6.4: no key is declared or negotiated more than once.
pub(crate) fn first_duplicate<'a>(pairs: &[(&'a str, &str)]) -> Option<&'a str> {
    let mut seen = HashSet::with_capacity(pairs.len());
    pairs.iter().map(|(key, _)| *key).find(|key| !seen.insert(*key))
}
