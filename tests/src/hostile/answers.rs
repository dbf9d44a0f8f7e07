//! The answers of a correct target, from which a hostile one departs: a small disk of zeroes, one connection at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lunette_pdu::{
    BHS_LEN, Bhs, DataIn, DataInStatus, InitiatorPdu, InitiatorTaskTag, LoginRequest, LoginResponse, LoginStatus,
    LogoutResponse, LogoutResponseCode, LunField, NopIn, R2t, Residual, ScsiCommand, ScsiResponse, ScsiResponseCode,
    SerialNumber, Stage, TargetTransferTag, TaskManagementResponse, TaskManagementResponseCode, TextRequest,
    TextResponse, Tsih,
};

use super::dice::Dice;

/// The name of the only target.
pub(super) const TARGET: &str = "iqn.2026-11.org.example:liar";

const BLOCK_LEN: usize = 512;

/// The number of blocks of the disk.
const BLOCKS: u64 = 4096;

/// The number of commands that the initiator may have under way.
const WINDOW: u32 = 64;

/// The longest data segment, even if the initiator takes longer ones.
const SEGMENT_LEN: usize = 16 << 10;

const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;

/// A PDU that is ready to be sent.
pub(super) type Answer = ([u8; BHS_LEN], Vec<u8>);

/// A write whose data has not arrived.
struct Write {
    itt: InitiatorTaskTag,
    missing: usize,
}

/// One connection of a correct target.
pub(super) struct Answers {
    address: SocketAddr,
    stat_sn: SerialNumber,
    /// The next command number, which all connections share.
    exp_cmd_sn: Arc<AtomicU32>,
    is_discovery: bool,
    /// The longest data segment that the initiator takes.
    segment_len: usize,
    writes: Vec<Write>,
    /// Whether the full feature phase has begun, and with which digests.
    pub(super) is_logged_in: bool,
    pub(super) digests: (bool, bool),
}

impl Answers {
    pub(super) fn new(address: SocketAddr, exp_cmd_sn: Arc<AtomicU32>) -> Self {
        Self {
            address,
            stat_sn: SerialNumber(1),
            exp_cmd_sn,
            is_discovery: false,
            segment_len: 8192,
            writes: Vec::new(),
            is_logged_in: false,
            digests: (false, false),
        }
    }

    /// The answer of a correct target to a PDU.
    pub(super) fn answer(&mut self, bhs: &Bhs, data: &[u8], dice: &mut Dice) -> Vec<Answer> {
        let Ok(pdu) = InitiatorPdu::parse(bhs) else { return Vec::new() };
        match pdu {
            InitiatorPdu::LoginRequest(request) => vec![self.log_in(&request, &String::from_utf8_lossy(data), dice)],
            InitiatorPdu::ScsiCommand(command) => {
                self.count(command.cmd_sn, command.immediate);
                self.command(&command)
            }
            InitiatorPdu::DataOut(pdu) => self.data_out(pdu.itt, pdu.data_segment_len),
            InitiatorPdu::NopOut(ping) => {
                self.count(ping.cmd_sn, ping.immediate);
                if ping.itt.is_reserved() {
                    Vec::new()
                } else {
                    vec![self.ping(ping.itt, TargetTransferTag::RESERVED, data)]
                }
            }
            InitiatorPdu::TextRequest(request) => {
                self.count(request.cmd_sn, request.immediate);
                vec![self.text(&request)]
            }
            InitiatorPdu::TaskManagementRequest(request) => {
                self.count(request.cmd_sn, request.immediate);
                let numbers = self.numbers();
                let response = TaskManagementResponse {
                    response: TaskManagementResponseCode::FUNCTION_COMPLETE,
                    additional_response_information: [0; 3],
                    itt: request.itt,
                    stat_sn: self.next_stat_sn(),
                    exp_cmd_sn: numbers.0,
                    max_cmd_sn: numbers.1,
                };
                vec![(response.emit(), Vec::new())]
            }
            InitiatorPdu::LogoutRequest(request) => {
                let numbers = self.numbers();
                let response = LogoutResponse {
                    response: LogoutResponseCode::CLOSED,
                    itt: request.itt,
                    stat_sn: self.next_stat_sn(),
                    exp_cmd_sn: numbers.0,
                    max_cmd_sn: numbers.1,
                    time2wait: 0,
                    time2retain: 0,
                };
                vec![(response.emit(), Vec::new())]
            }
            InitiatorPdu::SnackRequest(_) => Vec::new(),
        }
    }

    fn count(&mut self, cmd_sn: SerialNumber, is_immediate: bool) {
        if !is_immediate {
            self.exp_cmd_sn.store(cmd_sn.next().0, Ordering::Relaxed);
        }
    }

    pub(super) fn numbers(&self) -> (SerialNumber, SerialNumber) {
        let expected = SerialNumber(self.exp_cmd_sn.load(Ordering::Relaxed));
        (expected, expected.add(WINDOW))
    }

    pub(super) fn next_stat_sn(&mut self) -> SerialNumber {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.next();
        stat_sn
    }

    pub(super) fn ping(&mut self, itt: InitiatorTaskTag, ttt: TargetTransferTag, data: &[u8]) -> Answer {
        let numbers = self.numbers();
        let stat_sn = if itt.is_reserved() { self.stat_sn } else { self.next_stat_sn() };
        let ping = NopIn {
            lun: LunField([0; 8]),
            itt,
            ttt,
            stat_sn,
            exp_cmd_sn: numbers.0,
            max_cmd_sn: numbers.1,
            data_segment_len: data.len(),
        };
        (ping.emit(), data.to_vec())
    }

    fn log_in(&mut self, request: &LoginRequest, text: &str, dice: &mut Dice) -> Answer {
        let is_last = request.transit && request.nsg == Stage::FullFeaturePhase;
        let keys = self.negotiate(text, request.csg, dice);
        self.exp_cmd_sn.store(request.cmd_sn.0, Ordering::Relaxed);
        let numbers = self.numbers();
        let response = LoginResponse {
            transit: request.transit,
            continue_: false,
            csg: request.csg,
            nsg: request.nsg,
            version_max: 0,
            version_active: 0,
            isid: request.isid,
            tsih: if is_last && request.tsih == Tsih::NEW { Tsih(1) } else { request.tsih },
            itt: request.itt,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: numbers.0,
            max_cmd_sn: numbers.1,
            status: LoginStatus::SUCCESS,
            data_segment_len: keys.len(),
        };
        self.is_logged_in = is_last;
        (response.emit(), keys.into_bytes())
    }

    fn negotiate(&mut self, text: &str, stage: Stage, dice: &mut Dice) -> String {
        let mut answer = String::new();
        for (key, value) in text.split('\0').filter_map(|pair| pair.split_once('=')) {
            let first = value.split(',').next().unwrap_or(value);
            let said = match key {
                "InitiatorName" | "InitiatorAlias" | "TargetName" => continue,
                "SessionType" => {
                    self.is_discovery = value == "Discovery";
                    continue;
                }
                "MaxRecvDataSegmentLength" => {
                    self.segment_len = value.parse().unwrap_or(8192).clamp(512, SEGMENT_LEN);
                    continue;
                }
                "AuthMethod" => "None",
                "IFMarker" | "OFMarker" => "No",
                "HeaderDigest" | "DataDigest" => {
                    let on = value.contains("CRC32C") && (dice.one_in(2) || !value.contains("None"));
                    if key == "HeaderDigest" {
                        self.digests.0 = on;
                    } else {
                        self.digests.1 = on;
                    }
                    if on { "CRC32C" } else { "None" }
                }
                "IFMarkInt" | "OFMarkInt" => "Reject",
                _ => first,
            };
            answer.extend([key, "=", said, "\0"]);
        }
        if stage == Stage::LoginOperationalNegotiation {
            answer += "TargetPortalGroupTag=1\0MaxRecvDataSegmentLength=65536\0";
        }
        answer
    }

    fn text(&mut self, request: &TextRequest) -> Answer {
        let keys = format!("TargetName={TARGET}\0TargetAddress={},1\0", self.address);
        let numbers = self.numbers();
        let response = TextResponse {
            final_: true,
            continue_: false,
            lun: LunField([0; 8]),
            itt: request.itt,
            ttt: TargetTransferTag::RESERVED,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: numbers.0,
            max_cmd_sn: numbers.1,
            data_segment_len: keys.len(),
        };
        (response.emit(), keys.into_bytes())
    }

    fn command(&mut self, command: &ScsiCommand) -> Vec<Answer> {
        let expected = command.expected_data_transfer_length as usize;
        if command.write {
            let missing = expected.saturating_sub(command.data_segment_len);
            if missing == 0 {
                return vec![self.response(command.itt, GOOD, 0)];
            }
            self.writes.push(Write { itt: command.itt, missing });
            return if command.final_ {
                vec![self.r2t(command.itt, command.data_segment_len, missing)]
            } else {
                Vec::new()
            };
        }
        match contents(&command.cdb, expected) {
            None => vec![self.response(command.itt, CHECK_CONDITION, expected)],
            Some(data) if data.is_empty() => vec![self.response(command.itt, GOOD, expected)],
            Some(data) => self.data_in(command.itt, &data, expected),
        }
    }

    /// Takes unsolicited or solicited data; both count.
    fn data_out(&mut self, itt: InitiatorTaskTag, len: usize) -> Vec<Answer> {
        let Some(write) = self.writes.iter_mut().find(|write| write.itt == itt) else { return Vec::new() };
        write.missing = write.missing.saturating_sub(len);
        if write.missing > 0 {
            return Vec::new();
        }
        self.writes.retain(|write| write.itt != itt);
        vec![self.response(itt, GOOD, 0)]
    }

    pub(super) fn r2t(&mut self, itt: InitiatorTaskTag, offset: usize, len: usize) -> Answer {
        let numbers = self.numbers();
        let r2t = R2t {
            lun: LunField([0; 8]),
            itt,
            ttt: TargetTransferTag(itt.0),
            stat_sn: self.stat_sn,
            exp_cmd_sn: numbers.0,
            max_cmd_sn: numbers.1,
            r2t_sn: 0,
            buffer_offset: offset as u32,
            desired_data_transfer_length: len as u32,
        };
        (r2t.emit(), Vec::new())
    }

    pub(super) fn response(&mut self, itt: InitiatorTaskTag, status: u8, unmoved: usize) -> Answer {
        let numbers = self.numbers();
        // Fixed format: ILLEGAL REQUEST, INVALID COMMAND OPERATION CODE.
        let sense = if status == CHECK_CONDITION {
            vec![0, 18, 0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0]
        } else {
            Vec::new()
        };
        let response = ScsiResponse {
            response: ScsiResponseCode::COMMAND_COMPLETED,
            status,
            status_qualifier: 0,
            itt,
            snack_tag: 0,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: numbers.0,
            max_cmd_sn: numbers.1,
            exp_data_sn: 0,
            residual: if unmoved > 0 { Residual::Underflow(unmoved as u32) } else { Residual::None },
            bidi_read_residual: Residual::None,
            data_segment_len: sense.len(),
        };
        (response.emit(), sense)
    }

    fn data_in(&mut self, itt: InitiatorTaskTag, data: &[u8], expected: usize) -> Vec<Answer> {
        let numbers = self.numbers();
        let count = data.len().div_ceil(self.segment_len);
        let segment_len = self.segment_len;
        let pieces = data.chunks(segment_len).enumerate().map(|(index, piece)| {
            let is_last = index + 1 == count;
            let unmoved = expected - data.len();
            let residual = if unmoved > 0 { Residual::Underflow(unmoved as u32) } else { Residual::None };
            let status = is_last.then(|| DataInStatus { status: GOOD, residual, stat_sn: self.next_stat_sn() });
            let pdu = DataIn {
                final_: is_last,
                acknowledge: false,
                status,
                lun: LunField([0; 8]),
                itt,
                ttt: TargetTransferTag::RESERVED,
                exp_cmd_sn: numbers.0,
                max_cmd_sn: numbers.1,
                data_sn: index as u32,
                buffer_offset: (index * segment_len) as u32,
                data_segment_len: piece.len(),
            };
            (pdu.emit(), piece.to_vec())
        });
        pieces.collect()
    }
}

/// The data that a command reads; `None` for a command that this disk does not support.
fn contents(cdb: &[u8; 16], expected: usize) -> Option<Vec<u8>> {
    let mut data = match cdb[0] {
        0x00 | 0x35 | 0x91 => Vec::new(),
        0x12 if cdb[1] & 1 == 0 => {
            let mut inquiry = vec![0, 0, 7, 2, 91, 0, 0, 2];
            inquiry.extend(b"EXAMPLE HOSTILE DISK    1   ");
            inquiry.resize(96, 0);
            inquiry
        }
        0x12 => vital_product_data(cdb[2])?,
        0x25 => [(BLOCKS as u32 - 1).to_be_bytes(), (BLOCK_LEN as u32).to_be_bytes()].concat(),
        0x9e => {
            let mut capacity = (BLOCKS - 1).to_be_bytes().to_vec();
            capacity.extend((BLOCK_LEN as u32).to_be_bytes());
            capacity.resize(32, 0);
            capacity
        }
        0xa0 => vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        0x1a => vec![3, 0, 0x10, 0],
        0x5a => vec![0, 6, 0, 0x10, 0, 0, 0, 0],
        0x28 | 0x88 => vec![0; expected],
        _ => return None,
    };
    data.truncate(expected);
    Some(data)
}

fn vital_product_data(page: u8) -> Option<Vec<u8>> {
    let body = match page {
        0x00 => vec![0x00, 0x80, 0x83, 0xb0, 0xb2],
        0x80 => b"0123456789".to_vec(),
        0x83 => [&[1, 3, 0, 8, 0x30][..], &[7; 7]].concat(),
        0xb0 => vec![0; 60],
        0xb2 => vec![0, 0, 0, 0],
        _ => return None,
    };
    Some([&[0, page, 0, body.len() as u8][..], &body].concat())
}
