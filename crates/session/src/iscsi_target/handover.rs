//! Sessions at a standstill as values of `lunette-handover`, and back: what their parts have in common.
//!
//! A session [comes to rest](super::Session::come_to_rest) before it is handed over. Each part of it that has a state
//! translates that in a file of its own, named `handover.rs`. A part that is empty at a standstill is not in the value.

use std::ops::RangeInclusive;

use lunette_buffer::Payload;
use lunette_handover as handover;
use lunette_handover::ByteBuf;
use lunette_pdu::MAX_DATA_SEGMENT_LEN;

use crate::keys::{Digest, Parameters, TaskReporting};

/// The lengths that RFC 7143 section 13 lets a peer declare.
pub(crate) const SEGMENT_LENS: RangeInclusive<u32> = 512..=MAX_DATA_SEGMENT_LEN as u32;

/// Why a session of an earlier process does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InheritError {
    /// The target is not served any more, or does not admit the initiator.
    #[error("its target does not admit it any more")]
    NotAdmitted,
    /// The server has too many sessions.
    #[error("there are too many sessions")]
    TooMany,
    /// The value contradicts itself.
    #[error("its state cannot be read: {0}")]
    Malformed(&'static str),
}

/// The bytes of a segment.
pub(crate) fn bytes_of(payload: &Payload) -> ByteBuf {
    ByteBuf::from(payload.to_vec())
}

pub(crate) fn parameters_of(parameters: &Parameters) -> handover::Parameters {
    handover::Parameters {
        header_digest: parameters.header_digest == Digest::Crc32c,
        data_digest: parameters.data_digest == Digest::Crc32c,
        recv_data_segment_len: parameters.recv_data_segment_len,
        send_data_segment_len: parameters.send_data_segment_len,
        max_connections: parameters.max_connections,
        initial_r2t: parameters.initial_r2t,
        immediate_data: parameters.immediate_data,
        max_burst_len: parameters.max_burst_len,
        first_burst_len: parameters.first_burst_len,
        time2wait_s: parameters.time2wait_s,
        time2retain_s: parameters.time2retain_s,
        max_outstanding_r2t: parameters.max_outstanding_r2t,
        data_pdu_in_order: parameters.data_pdu_in_order,
        data_sequence_in_order: parameters.data_sequence_in_order,
        error_recovery_level: parameters.error_recovery_level,
        task_reporting: match parameters.task_reporting {
            TaskReporting::Rfc3720 => 0,
            TaskReporting::ResponseFence => 1,
            TaskReporting::FastAbort => 2,
        },
        protocol_level: parameters.protocol_level,
    }
}

pub(crate) fn parameters_from(from: &handover::Parameters) -> Result<Parameters, InheritError> {
    let segments = [from.recv_data_segment_len, from.send_data_segment_len, from.max_burst_len, from.first_burst_len];
    if segments.iter().any(|len| !SEGMENT_LENS.contains(len))
        || from.error_recovery_level > 2
        || from.max_outstanding_r2t == 0
    {
        return Err(InheritError::Malformed("its parameters"));
    }
    let digest = |on: bool| if on { Digest::Crc32c } else { Digest::None };
    Ok(Parameters {
        header_digest: digest(from.header_digest),
        data_digest: digest(from.data_digest),
        recv_data_segment_len: from.recv_data_segment_len,
        send_data_segment_len: from.send_data_segment_len,
        max_connections: from.max_connections,
        initial_r2t: from.initial_r2t,
        immediate_data: from.immediate_data,
        max_burst_len: from.max_burst_len,
        first_burst_len: from.first_burst_len,
        time2wait_s: from.time2wait_s,
        time2retain_s: from.time2retain_s,
        max_outstanding_r2t: from.max_outstanding_r2t,
        data_pdu_in_order: from.data_pdu_in_order,
        data_sequence_in_order: from.data_sequence_in_order,
        error_recovery_level: from.error_recovery_level,
        task_reporting: match from.task_reporting {
            0 => TaskReporting::Rfc3720,
            1 => TaskReporting::ResponseFence,
            2 => TaskReporting::FastAbort,
            _ => return Err(InheritError::Malformed("its parameters")),
        },
        protocol_level: from.protocol_level,
        of_marker: false,
        if_marker: false,
        of_mark_int: 0,
        if_mark_int: 0,
    })
}
