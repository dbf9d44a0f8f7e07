//! The values that the login has agreed on, under the names of RFC 7143 chapter 13.

use lunette_session::keys::{Parameters, TaskReporting};
use serde::Serialize;

use super::yes;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Negotiated {
    header_digest: &'static str,
    data_digest: &'static str,
    max_recv_data_segment_length: u32,
    target_max_recv_data_segment_length: u32,
    max_burst_length: u32,
    first_burst_length: u32,
    #[serde(rename = "InitialR2T")]
    initial_r2t: bool,
    immediate_data: bool,
    #[serde(rename = "MaxOutstandingR2T")]
    max_outstanding_r2t: u32,
    #[serde(rename = "DataPDUInOrder")]
    data_pdu_in_order: bool,
    data_sequence_in_order: bool,
    max_connections: u32,
    error_recovery_level: u32,
    #[serde(rename = "DefaultTime2Wait")]
    default_time2wait: u32,
    #[serde(rename = "DefaultTime2Retain")]
    default_time2retain: u32,
    task_reporting: &'static str,
    #[serde(rename = "iSCSIProtocolLevel")]
    protocol_level: u32,
    /// The interval of RFC 3720 appendix A, in 4-byte words; absent without markers.
    #[serde(rename = "OFMarkInt")]
    of_mark_int: Option<u32>,
    #[serde(rename = "IFMarkInt")]
    if_mark_int: Option<u32>,
}

impl Negotiated {
    pub(crate) fn new(parameters: &Parameters) -> Self {
        Self {
            header_digest: parameters.header_digest.value(),
            data_digest: parameters.data_digest.value(),
            max_recv_data_segment_length: parameters.recv_data_segment_len,
            target_max_recv_data_segment_length: parameters.send_data_segment_len,
            max_burst_length: parameters.max_burst_len,
            first_burst_length: parameters.first_burst_len,
            initial_r2t: parameters.initial_r2t,
            immediate_data: parameters.immediate_data,
            max_outstanding_r2t: parameters.max_outstanding_r2t,
            data_pdu_in_order: parameters.data_pdu_in_order,
            data_sequence_in_order: parameters.data_sequence_in_order,
            max_connections: parameters.max_connections,
            error_recovery_level: parameters.error_recovery_level,
            default_time2wait: parameters.time2wait_s,
            default_time2retain: parameters.time2retain_s,
            task_reporting: task_reporting(parameters.task_reporting),
            protocol_level: parameters.protocol_level,
            of_mark_int: parameters.of_marker.then_some(parameters.of_mark_int),
            if_mark_int: parameters.if_marker.then_some(parameters.if_mark_int),
        }
    }

    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let (to_us, to_target) = (self.max_recv_data_segment_length, self.target_max_recv_data_segment_length);
        let (r2t, immediate) = (yes(self.initial_r2t), yes(self.immediate_data));
        let (pdus, sequences) = (yes(self.data_pdu_in_order), yes(self.data_sequence_in_order));
        let marker = |words: Option<u32>| words.map_or("none".into(), |words| format!("every {words} words"));
        vec![
            ("digests", format!("header {}, data {}", self.header_digest, self.data_digest)),
            ("data segments", format!("{to_us} bytes to us, {to_target} to the target")),
            ("bursts", format!("first {} bytes, then {}", self.first_burst_length, self.max_burst_length)),
            ("unsolicited data", format!("InitialR2T {r2t}, ImmediateData {immediate}")),
            ("outstanding R2Ts", self.max_outstanding_r2t.to_string()),
            ("data in order", format!("PDUs {pdus}, sequences {sequences}")),
            ("connections", self.max_connections.to_string()),
            ("error recovery level", self.error_recovery_level.to_string()),
            ("task reporting", self.task_reporting.into()),
            ("protocol level", self.protocol_level.to_string()),
            ("markers", format!("{} to us, {} to the target", marker(self.if_mark_int), marker(self.of_mark_int))),
        ]
    }
}

fn task_reporting(value: TaskReporting) -> &'static str {
    match value {
        TaskReporting::Rfc3720 => "RFC3720",
        TaskReporting::ResponseFence => "ResponseFence",
        TaskReporting::FastAbort => "FastAbort",
    }
}
