//! The rules for every PDU of a target, in every test.

use std::collections::HashMap;

use lunette_pdu::text::pairs;
use lunette_pdu::{
    BHS_LEN, DataIn, DataOut, InitiatorTaskTag, LoginResponse, R2t, SerialNumber, Stage, TargetPdu, TargetTransferTag,
};
use lunette_testkit::Format;

/// A PDU of the target, with its data segment.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) pdu: TargetPdu,
    pub(crate) data: Vec<u8>,
}

impl std::fmt::Debug for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} with {} bytes", self.pdu, self.data.len())
    }
}

/// The PDUs that were sent for one task.
#[derive(Default)]
struct TaskView {
    data_in: u32,
    r2t: u32,
    next_offset: u32,
    burst: u32,
    outstanding: Vec<TargetTransferTag>,
    bidirectional: bool,
}

pub(crate) struct Checker {
    stream: Vec<u8>,
    /// Off for initiators that break the rules: what answers them has to be readable, no more.
    pub(crate) strict: bool,
    pub(crate) format: Format,
    full_feature: bool,
    /// The next StatSN, once the first has been seen.
    pub(crate) stat_sn: Option<SerialNumber>,
    pub(crate) exp_cmd_sn: Option<SerialNumber>,
    pub(crate) max_cmd_sn: Option<SerialNumber>,
    tasks: HashMap<InitiatorTaskTag, TaskView>,
    /// MaxRecvDataSegmentLength that the initiator has declared; holds after the login.
    pub(crate) max_segment_len: usize,
    max_burst_len: u32,
    max_outstanding_r2t: usize,
}

impl Checker {
    pub(crate) fn new() -> Self {
        Self {
            stream: Vec::new(),
            strict: true,
            format: Format::PLAIN,
            full_feature: false,
            stat_sn: None,
            exp_cmd_sn: None,
            max_cmd_sn: None,
            tasks: HashMap::new(),
            max_segment_len: 8192,
            max_burst_len: 262_144,
            max_outstanding_r2t: 1,
        }
    }

    /// The initiator starts a task; its tag may have been used before.
    pub(crate) fn task_sent(&mut self, itt: InitiatorTaskTag, bidirectional: bool) {
        self.tasks.insert(itt, TaskView { bidirectional, ..TaskView::default() });
    }

    /// The initiator has answered an R2T.
    pub(crate) fn data_sent(&mut self, pdu: &DataOut) {
        if let Some(task) = self.tasks.get_mut(&pdu.itt).filter(|_| pdu.final_) {
            task.outstanding.retain(|ttt| *ttt != pdu.ttt);
        }
    }

    /// Cuts what is complete off the stream. `next_cmd_sn` is the number that the initiator will use next.
    pub(crate) fn feed(&mut self, bytes: &[u8], next_cmd_sn: SerialNumber) -> Vec<Received> {
        self.stream.extend_from_slice(bytes);
        let mut received = Vec::new();
        while let Some(pdu) = self.cut() {
            if self.strict {
                self.check(&pdu, next_cmd_sn);
            }
            received.push(pdu);
        }
        received
    }

    /// Whether the stream has ended between two PDUs.
    pub(crate) fn is_at_boundary(&self) -> bool {
        self.stream.is_empty()
    }

    fn cut(&mut self) -> Option<Received> {
        let frame = self.format.take(&mut self.stream)?.verified();
        assert!(frame.ahs.is_empty(), "no PDU of a target has an AHS");
        let limit = if self.full_feature { self.max_segment_len } else { 8192 };
        let data_len = frame.data.len();
        assert!(data_len <= limit, "{data_len} bytes are more than MaxRecvDataSegmentLength {limit}");
        Some(Received { pdu: frame.target_pdu(), data: frame.data })
    }

    fn check(&mut self, received: &Received, next_cmd_sn: SerialNumber) {
        match &received.pdu {
            TargetPdu::LoginResponse(pdu) => {
                assert!(!self.full_feature, "a login response after the login");
                self.new_status(pdu.stat_sn);
                if pdu.status.is_success() {
                    self.numbers(pdu.exp_cmd_sn, pdu.max_cmd_sn, next_cmd_sn);
                    self.login_text(pdu, &received.data);
                }
            }
            TargetPdu::NopIn(pdu) => {
                self.numbers(pdu.exp_cmd_sn, pdu.max_cmd_sn, next_cmd_sn);
                assert!(pdu.itt.is_reserved() || pdu.ttt.is_reserved(), "a ping and an answer in one");
                if pdu.itt.is_reserved() { self.old_status(pdu.stat_sn) } else { self.new_status(pdu.stat_sn) }
            }
            TargetPdu::DataIn(pdu) => {
                self.numbers(pdu.exp_cmd_sn, pdu.max_cmd_sn, next_cmd_sn);
                if let Some(status) = pdu.status {
                    self.new_status(status.stat_sn);
                }
                self.data_in(pdu);
            }
            TargetPdu::R2t(pdu) => {
                self.numbers(pdu.exp_cmd_sn, pdu.max_cmd_sn, next_cmd_sn);
                self.old_status(pdu.stat_sn);
                self.r2t(pdu);
            }
            TargetPdu::ScsiResponse(pdu) => {
                self.numbers(pdu.exp_cmd_sn, pdu.max_cmd_sn, next_cmd_sn);
                self.new_status(pdu.stat_sn);
                let task = self.tasks.remove(&pdu.itt).expect("a response answers a task");
                let counted = if task.bidirectional { task.data_in + task.r2t } else { task.data_in };
                assert_eq!(pdu.exp_data_sn, counted, "ExpDataSN");
                // ABORTED COMMAND because of the data itself leaves the rest of it behind.
                let aborted = received.data.get(4) == Some(&0x0b);
                assert!(aborted || task.outstanding.is_empty(), "a response while solicited data is under way");
            }
            TargetPdu::TaskManagementResponse(pdu) => {
                self.numbers(pdu.exp_cmd_sn, pdu.max_cmd_sn, next_cmd_sn);
                self.new_status(pdu.stat_sn);
            }
            TargetPdu::TextResponse(pdu) => {
                self.numbers(pdu.exp_cmd_sn, pdu.max_cmd_sn, next_cmd_sn);
                self.new_status(pdu.stat_sn);
                assert_eq!(pdu.final_, pdu.ttt.is_reserved(), "a transfer tag exactly when the exchange goes on");
            }
            TargetPdu::LogoutResponse(pdu) => {
                self.numbers(pdu.exp_cmd_sn, pdu.max_cmd_sn, next_cmd_sn);
                self.new_status(pdu.stat_sn);
            }
            TargetPdu::AsyncMessage(pdu) => {
                self.numbers(pdu.exp_cmd_sn, pdu.max_cmd_sn, next_cmd_sn);
                self.new_status(pdu.stat_sn);
            }
            TargetPdu::Reject(pdu) => {
                self.numbers(pdu.exp_cmd_sn, pdu.max_cmd_sn, next_cmd_sn);
                self.new_status(pdu.stat_sn);
                assert_eq!(received.data.len(), BHS_LEN, "a Reject quotes a header");
            }
        }
    }

    fn new_status(&mut self, stat_sn: SerialNumber) {
        let expected = self.stat_sn.unwrap_or(stat_sn);
        assert_eq!(stat_sn, expected, "StatSN");
        self.stat_sn = Some(stat_sn.next());
    }

    fn old_status(&self, stat_sn: SerialNumber) {
        assert_eq!(Some(stat_sn), self.stat_sn, "StatSN of a PDU that uses up none");
    }

    fn numbers(&mut self, exp: SerialNumber, max: SerialNumber, next_cmd_sn: SerialNumber) {
        assert!(!exp.is_after(next_cmd_sn), "ExpCmdSN {exp} counts commands that were not sent");
        assert!(self.exp_cmd_sn.is_none_or(|old| !exp.is_before(old)), "ExpCmdSN went back");
        assert!(self.max_cmd_sn.is_none_or(|old| !max.is_before(old)), "MaxCmdSN went back");
        assert!(max.distance_from(exp) >= -1, "MaxCmdSN {max} is below ExpCmdSN {exp} − 1");
        (self.exp_cmd_sn, self.max_cmd_sn) = (Some(exp), Some(max));
    }

    fn login_text(&mut self, pdu: &LoginResponse, data: &[u8]) {
        for (key, value) in pairs(data).flatten() {
            match key {
                "HeaderDigest" => self.format.header_digest = value == "CRC32C",
                "DataDigest" => self.format.data_digest = value == "CRC32C",
                "MaxBurstLength" => self.max_burst_len = value.parse().unwrap_or(self.max_burst_len),
                "MaxOutstandingR2T" => self.max_outstanding_r2t = value.parse().unwrap_or(self.max_outstanding_r2t),
                _ => {}
            }
        }
        self.full_feature = pdu.transit && pdu.nsg == Stage::FullFeaturePhase;
        if !self.full_feature {
            // Digests are not used before the full feature phase; the tests name them in its last request.
            self.format = Format::PLAIN;
        }
    }

    fn data_in(&mut self, pdu: &DataIn) {
        let max_burst_len = self.max_burst_len;
        let task = self.tasks.get_mut(&pdu.itt).expect("Data-In belongs to a task");
        let shared = if task.bidirectional { task.r2t } else { 0 };
        assert_eq!(pdu.data_sn, task.data_in + shared, "DataSN");
        assert_eq!(pdu.buffer_offset, task.next_offset, "offset");
        assert!(pdu.data_segment_len > 0);
        assert!(!pdu.acknowledge || pdu.final_, "the A bit stands at the end of a sequence");
        assert_eq!(pdu.acknowledge, !pdu.ttt.is_reserved(), "the A bit goes with a transfer tag");
        assert_eq!(pdu.acknowledge, pdu.lun.0 != [0; 8], "the LUN goes with a transfer tag");
        task.data_in += 1;
        task.next_offset += pdu.data_segment_len as u32;
        task.burst += pdu.data_segment_len as u32;
        assert!(task.burst <= max_burst_len, "a sequence longer than MaxBurstLength");
        assert!(task.burst < max_burst_len || pdu.final_, "a full sequence without the F bit");
        if pdu.final_ {
            task.burst = 0;
        }
        if pdu.status.is_some() {
            self.tasks.remove(&pdu.itt);
        }
    }

    fn r2t(&mut self, pdu: &R2t) {
        let task = self.tasks.get_mut(&pdu.itt).expect("an R2T belongs to a task");
        assert_eq!(pdu.r2t_sn, task.r2t, "R2TSN");
        assert!(!pdu.ttt.is_reserved() && !task.outstanding.contains(&pdu.ttt));
        assert!((1..=self.max_burst_len).contains(&pdu.desired_data_transfer_length), "{pdu:?}");
        task.r2t += 1;
        task.outstanding.push(pdu.ttt);
        assert!(task.outstanding.len() <= self.max_outstanding_r2t, "MaxOutstandingR2T");
    }
}
