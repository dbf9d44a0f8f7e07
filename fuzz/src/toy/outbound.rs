//! The PDUs of the target, held against the standard.

use std::collections::{HashMap, HashSet};

use lunette_pdu::text::pairs;
use lunette_pdu::{
    AsyncEvent, InitiatorTaskTag, LoginResponse, MAX_DATA_SEGMENT_LEN, Opcode, R2t, SerialNumber, Stage, TargetPdu,
};
use lunette_session::keys::{Choices, Negotiation, Offer, Parameters};
use lunette_testkit::Format;

use super::inbound::{Inbound, format};
use crate::marked::{self, Stream};

/// The PDUs of the target, checked one by one.
#[derive(Default)]
pub(super) struct Outbound {
    buffered: Vec<u8>,
    /// Keys of the login.
    keys: Vec<u8>,
    pub(super) admitted: Option<Parameters>,
    full_feature: bool,
    texts: bool,
    pub(super) stat_sn: Option<SerialNumber>,
    pub(super) exp_cmd_sn: Option<SerialNumber>,
    max_cmd_sn: Option<SerialNumber>,
    pub(super) r2ts: Vec<R2t>,
    /// The data that was asked for under each tag.
    transfer_tags: HashMap<u32, (InitiatorTaskTag, u32, u32, u32)>,
    pub(super) opcodes: HashSet<Opcode>,
    /// Bytes of the login.
    login_len: usize,
    markers: Option<Stream>,
    /// The bytes sent after the login, without markers.
    pub(super) transcript: Vec<u8>,
}

impl Outbound {
    /// Checks `bytes`, after which the target has nothing more to send at once. What it sends last may be cut off when
    /// the connection has `ended`.
    pub(super) fn take(&mut self, bytes: &[u8], received: &mut Inbound, ended: bool) {
        self.buffered.extend_from_slice(bytes);
        let buffered = std::mem::take(&mut self.buffered);
        let mut rest = &buffered[..];
        while !self.full_feature
            && let Some(len) = self.one(rest, received)
        {
            rest = &rest[len..];
            self.login_len += len;
            if let Some(parameters) = self.admitted.as_ref().filter(|parameters| parameters.if_marker) {
                self.markers = Some(Stream::new(self.login_len, parameters.if_mark_int));
            }
        }
        let (pdus, markers) = match &mut self.markers {
            Some(stream) if self.full_feature => stream.strip(rest),
            _ => (rest.to_vec(), Vec::new()),
        };
        let mut starts = vec![0];
        while let Some(len) = self.one(&pdus[starts[starts.len() - 1]..], received) {
            starts.push(starts[starts.len() - 1] + len);
        }
        let is_whole = starts.last() == Some(&pdus.len());
        assert!(is_whole || ended, "the target sent a part of a PDU");
        if is_whole {
            marked::check_markers(&markers, &starts);
        }
        if self.full_feature {
            self.transcript.extend(&pdus[..starts[starts.len() - 1]]);
        }
    }

    /// Checks the first PDU and gives its length on the wire; `None` when it is not whole.
    fn one(&mut self, bytes: &[u8], received: &mut Inbound) -> Option<usize> {
        let agreed = self.admitted.as_ref().filter(|_| self.full_feature);
        let (frame, len) = agreed.map_or(Format::PLAIN, format).first(bytes)?;
        let frame = frame.verified();
        self.opcodes.insert(frame.bhs.opcode());
        match frame.target_pdu() {
            TargetPdu::LoginResponse(pdu) => self.check_login(&pdu, &frame.data, received),
            pdu => self.check(&pdu, received),
        }
        Some(len)
    }

    fn check(&mut self, pdu: &TargetPdu, received: &Inbound) {
        assert!(self.full_feature, "{pdu:?} before the end of the login");
        self.check_length(pdu);
        match *pdu {
            TargetPdu::LoginResponse(_) => {}
            TargetPdu::ScsiResponse(pdu) => {
                received.expected(pdu.itt);
                self.numbers(pdu.stat_sn, true, pdu.exp_cmd_sn, pdu.max_cmd_sn);
            }
            TargetPdu::DataIn(pdu) => {
                let end = u64::from(pdu.buffer_offset) + pdu.data_segment_len as u64;
                assert!(end <= received.expected(pdu.itt).0, "more data than the initiator takes: {pdu:?}");
                match pdu.status {
                    Some(status) => self.numbers(status.stat_sn, true, pdu.exp_cmd_sn, pdu.max_cmd_sn),
                    None => self.command_numbers(pdu.exp_cmd_sn, pdu.max_cmd_sn),
                }
            }
            TargetPdu::R2t(pdu) => self.check_r2t(pdu, received),
            TargetPdu::NopIn(pdu) => {
                self.numbers(pdu.stat_sn, !pdu.itt.is_reserved(), pdu.exp_cmd_sn, pdu.max_cmd_sn);
            }
            TargetPdu::TaskManagementResponse(pdu) => self.numbers(pdu.stat_sn, true, pdu.exp_cmd_sn, pdu.max_cmd_sn),
            TargetPdu::TextResponse(pdu) => {
                self.texts = true;
                self.numbers(pdu.stat_sn, true, pdu.exp_cmd_sn, pdu.max_cmd_sn);
            }
            TargetPdu::LogoutResponse(pdu) => self.numbers(pdu.stat_sn, true, pdu.exp_cmd_sn, pdu.max_cmd_sn),
            TargetPdu::AsyncMessage(pdu) => {
                // News of ended tasks have the ExpCmdSN of their end, also when they come again.
                let is_news = pdu.event == AsyncEvent::TASK_TERMINATION;
                let last = self.exp_cmd_sn.filter(|last| is_news && pdu.exp_cmd_sn.is_before(*last));
                self.numbers(pdu.stat_sn, true, last.unwrap_or(pdu.exp_cmd_sn), pdu.max_cmd_sn);
            }
            TargetPdu::Reject(pdu) => self.numbers(pdu.stat_sn, true, pdu.exp_cmd_sn, pdu.max_cmd_sn),
        }
    }

    fn check_login(&mut self, pdu: &LoginResponse, keys: &[u8], received: &mut Inbound) {
        assert!(!self.full_feature, "a login response after the login");
        if pdu.status.is_success() {
            self.numbers(pdu.stat_sn, true, pdu.exp_cmd_sn, pdu.max_cmd_sn);
            self.keys.extend_from_slice(keys);
            received.login_answered();
            self.full_feature = pdu.transit && pdu.nsg == Stage::FullFeaturePhase;
        }
        if self.full_feature {
            let parameters = agreed(&received.keys, &self.keys);
            received.admitted(&parameters);
            self.admitted = Some(parameters);
        }
    }

    fn check_length(&self, pdu: &TargetPdu) {
        let Some(parameters) = &self.admitted else { return };
        let len = data_segment_len(pdu);
        // A text exchange may have declared another limit.
        let limit = if self.texts { MAX_DATA_SEGMENT_LEN } else { parameters.send_data_segment_len as usize };
        assert!(len <= limit, "{pdu:?} is longer than {limit}");
    }

    fn check_r2t(&mut self, pdu: R2t, received: &Inbound) {
        let end = u64::from(pdu.buffer_offset) + u64::from(pdu.desired_data_transfer_length);
        assert!(end <= received.expected(pdu.itt).1, "more data wanted than announced: {pdu:?}");
        assert!(pdu.desired_data_transfer_length > 0 && !pdu.ttt.is_reserved());
        self.numbers(pdu.stat_sn, false, pdu.exp_cmd_sn, pdu.max_cmd_sn);
        let asked = (pdu.itt, pdu.r2t_sn, pdu.buffer_offset, pdu.desired_data_transfer_length);
        match self.transfer_tags.insert(pdu.ttt.0, asked) {
            None => self.r2ts.push(pdu),
            Some(before) => assert!(self.sends_again() && before == asked, "another tag came twice: {pdu:?}"),
        }
    }

    /// From recovery level 1 on the initiator may ask for what it missed.
    fn sends_again(&self) -> bool {
        self.admitted.as_ref().is_some_and(|parameters| parameters.error_recovery_level > 0)
    }

    /// RFC 7143 section 4.2.2.2: numbers are given without gaps. What is sent again has its old one.
    fn numbers(&mut self, stat_sn: SerialNumber, used: bool, exp_cmd_sn: SerialNumber, max_cmd_sn: SerialNumber) {
        let expected = self.stat_sn.unwrap_or(stat_sn);
        if used && self.sends_again() && stat_sn.is_before(expected) {
            return self.command_numbers(exp_cmd_sn, max_cmd_sn);
        }
        assert_eq!(stat_sn, expected, "StatSN");
        self.stat_sn = Some(if used { expected.next() } else { expected });
        self.command_numbers(exp_cmd_sn, max_cmd_sn);
    }

    /// RFC 7143 section 4.2.2.1: the window never moves back, and a closed one ends just before ExpCmdSN.
    fn command_numbers(&mut self, exp_cmd_sn: SerialNumber, max_cmd_sn: SerialNumber) {
        if self.full_feature {
            assert!(self.exp_cmd_sn.is_none_or(|last| !exp_cmd_sn.is_before(last)), "ExpCmdSN went back");
            assert!(self.max_cmd_sn.is_none_or(|last| !max_cmd_sn.is_before(last)), "MaxCmdSN went back");
            assert!(!max_cmd_sn.next().is_before(exp_cmd_sn), "MaxCmdSN is more than one behind ExpCmdSN");
        }
        self.exp_cmd_sn = Some(exp_cmd_sn);
        self.max_cmd_sn = Some(max_cmd_sn);
    }
}

/// The agreement by the target's answers, and the longest segment that the initiator has declared.
fn agreed(requests: &[u8], answers: &[u8]) -> Parameters {
    let mut parameters = heard(answers);
    // Seen from the target's side.
    parameters.recv_data_segment_len = parameters.send_data_segment_len;
    parameters.send_data_segment_len = heard(requests).send_data_segment_len;
    parameters
}

/// The values of a list of keys, by a responder that agrees to everything.
fn heard(list: &[u8]) -> Parameters {
    let offer = Offer {
        max_connections: u32::MAX,
        max_burst_len: u32::MAX,
        first_burst_len: u32::MAX,
        max_outstanding_r2t: u32::MAX,
        time2retain_s: u32::MAX,
        data_pdu_in_order: false,
        data_sequence_in_order: false,
        error_recovery_level: 2,
        task_reporting: Choices(0b111),
        marker_interval: Some(1),
        ..Offer::default()
    };
    let mut negotiation = Negotiation::new(offer, true);
    for (key, value) in pairs(list).map_while(Result::ok) {
        // The target has taken them, so none is wrong.
        let _ = negotiation.answer(key, value);
    }
    negotiation.agreed().clone()
}

fn data_segment_len(pdu: &TargetPdu) -> usize {
    match pdu {
        TargetPdu::NopIn(pdu) => pdu.data_segment_len,
        TargetPdu::ScsiResponse(pdu) => pdu.data_segment_len,
        TargetPdu::LoginResponse(pdu) => pdu.data_segment_len,
        TargetPdu::TextResponse(pdu) => pdu.data_segment_len,
        TargetPdu::DataIn(pdu) => pdu.data_segment_len,
        TargetPdu::AsyncMessage(pdu) => pdu.data_segment_len,
        TargetPdu::Reject(pdu) => pdu.data_segment_len,
        TargetPdu::TaskManagementResponse(_) | TargetPdu::LogoutResponse(_) | TargetPdu::R2t(_) => 0,
    }
}
