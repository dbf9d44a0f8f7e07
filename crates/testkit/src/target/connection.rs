//! One connection of a correct target, as a machine: a PDU in, the PDUs that answer it out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lunette_pdu::text::pairs;
use lunette_pdu::{
    DataIn, DataOut, InitiatorPdu, InitiatorTaskTag, LoginRequest, LoginResponse, NopIn, R2t, Residual, ScsiCommand,
    ScsiResponse, SerialNumber, Stage, TaskManagementResponseCode, Tsih,
};

use super::{Answer, LoginAnswer, PduBytes, ScriptedTarget};
use crate::{Format, Frame, Numbers, TARGET, keys, sense_segment};

/// MaxBurstLength and FirstBurstLength, in bytes.
const BURST_LEN: u32 = 65_536;

/// The longest data segment that the target takes or sends, in bytes.
const SEGMENT_LEN: usize = 16 << 10;

/// A command whose data is arriving.
struct Receiving {
    command: ScsiCommand,
    answer: Answer,
    data: Vec<u8>,
    r2t_sn: u32,
}

/// One connection.
pub struct Connection {
    target: Arc<ScriptedTarget>,
    stat_sn: SerialNumber,
    receiving: HashMap<InitiatorTaskTag, Receiving>,
    /// The longest data segment that the initiator takes.
    segment_len: usize,
    /// Whether writes may send data that no R2T asks for.
    pub takes_unsolicited: bool,
    /// The digests that are chosen when the initiator has both on its list.
    pub prefers: Format,
    /// The digests in use, and those that will be once the answer that ends the login is sent.
    format: Format,
    agreed: Format,
    is_logged_in: bool,
    is_logged_out: bool,
}

impl Connection {
    /// A connection before its login, which will use no digests and no unsolicited data.
    pub fn new(target: Arc<ScriptedTarget>) -> Self {
        Self {
            target,
            stat_sn: SerialNumber(1),
            receiving: HashMap::new(),
            segment_len: 8192,
            takes_unsolicited: false,
            prefers: Format::PLAIN,
            format: Format::PLAIN,
            agreed: Format::PLAIN,
            is_logged_in: false,
            is_logged_out: false,
        }
    }

    /// The digests in use. They change with [`answered`](Self::answered).
    pub fn format(&self) -> Format {
        self.format
    }

    /// The answer to a PDU has been sent.
    pub fn answered(&mut self) {
        if self.is_logged_in {
            self.format = self.agreed;
        }
    }

    /// Whether the full feature phase has begun.
    pub fn is_logged_in(&self) -> bool {
        self.is_logged_in
    }

    /// The login begins again: its last answer does not stand.
    pub fn undo_login(&mut self) {
        self.is_logged_in = false;
    }

    /// Whether the connection is over.
    pub fn is_logged_out(&self) -> bool {
        self.is_logged_out
    }

    /// The PDUs that answer one of the initiator. Headers that are not understood, and SNACKs, have no answer.
    pub fn answer(&mut self, frame: &Frame) -> Vec<PduBytes> {
        let (Ok(pdu), data) = (InitiatorPdu::parse(&frame.bhs), &frame.data) else { return Vec::new() };
        match pdu {
            InitiatorPdu::LoginRequest(request) => vec![self.log_in(&request, data)],
            InitiatorPdu::ScsiCommand(command) => {
                self.count(command.immediate, command.cmd_sn);
                self.command(command, data)
            }
            InitiatorPdu::DataOut(pdu) => self.data_out(&pdu, data),
            InitiatorPdu::NopOut(ping) => {
                self.count(ping.immediate, ping.cmd_sn);
                if ping.itt.is_reserved() {
                    return Vec::new();
                }
                let echo = NopIn { data_segment_len: data.len(), ..self.used().nop_in(ping.itt) };
                vec![(echo.emit(), data.clone())]
            }
            InitiatorPdu::TextRequest(request) => {
                self.count(request.immediate, request.cmd_sn);
                let target = &self.target;
                let pairs = [("TargetName", TARGET), ("TargetAddress", &format!("{},1", target.address))];
                let mut text = keys(&pairs).into_bytes();
                (target.script.text)(&mut text);
                vec![(self.used().text_response(request.itt, text.len()).emit(), text)]
            }
            InitiatorPdu::TaskManagementRequest(request) => {
                self.count(request.immediate, request.cmd_sn);
                let done = TaskManagementResponseCode::FUNCTION_COMPLETE;
                vec![(self.used().task_management_response(request.itt, done).emit(), Vec::new())]
            }
            InitiatorPdu::LogoutRequest(request) => {
                self.count(request.immediate, request.cmd_sn);
                self.is_logged_out = true;
                vec![(self.used().logout_response(request.itt).emit(), Vec::new())]
            }
            InitiatorPdu::SnackRequest(_) => Vec::new(),
        }
    }

    // Numbers

    fn count(&mut self, immediate: bool, cmd_sn: SerialNumber) {
        if !immediate {
            self.target.exp_cmd_sn.store(cmd_sn.next().0, Ordering::Relaxed);
        }
    }

    /// The numbers of a PDU that uses up no StatSN.
    pub fn unused(&self) -> Numbers {
        Numbers::new(self.stat_sn, SerialNumber(self.target.exp_cmd_sn.load(Ordering::Relaxed)))
    }

    /// The numbers of a PDU that uses up a StatSN.
    pub fn used(&mut self) -> Numbers {
        let numbers = self.unused();
        self.stat_sn = numbers.stat_sn.next();
        numbers
    }

    // Login

    fn log_in(&mut self, request: &LoginRequest, text: &[u8]) -> PduBytes {
        let is_last = request.transit && request.nsg == Stage::FullFeaturePhase;
        let agree = |(key, offer): (&str, &str)| Some((key.to_owned(), self.agree(key, offer)?));
        let agreed = pairs(text).flatten().filter_map(agree).collect();
        self.target.exp_cmd_sn.store(request.cmd_sn.0, Ordering::Relaxed);
        let mut response = self.used().login_response(request);
        if is_last && request.tsih == Tsih::NEW {
            response.tsih = Tsih(1);
        }
        let mut answer = LoginAnswer { response, keys: agreed };
        (self.target.script.login)(&mut answer);
        self.is_logged_in = is_last;
        let pairs: Vec<_> = answer.keys.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let text = keys(&pairs);
        (LoginResponse { data_segment_len: text.len(), ..answer.response }.emit(), text.into_bytes())
    }

    /// The answer to an offer: the value that suits this target, else the offered one, of a list the last. Names have
    /// no answer.
    fn agree(&mut self, key: &str, offer: &str) -> Option<String> {
        let digest = |preferred: bool| offer.contains("CRC32C") && (preferred || !offer.contains("None"));
        let of = |on: bool| if on { "CRC32C" } else { "None" };
        let agreed = match key {
            "InitiatorName" | "InitiatorAlias" | "SessionType" | "TargetName" => return None,
            "HeaderDigest" => {
                self.agreed.header_digest = digest(self.prefers.header_digest);
                of(self.agreed.header_digest)
            }
            "DataDigest" => {
                self.agreed.data_digest = digest(self.prefers.data_digest);
                of(self.agreed.data_digest)
            }
            "MaxRecvDataSegmentLength" => {
                self.segment_len = offer.parse().unwrap_or(8192).clamp(512, SEGMENT_LEN);
                return Some(SEGMENT_LEN.to_string());
            }
            "IFMarker" | "OFMarker" => "No",
            "IFMarkInt" | "OFMarkInt" => "Reject",
            "InitialR2T" if !self.takes_unsolicited => "Yes",
            "ImmediateData" if !self.takes_unsolicited => "No",
            "MaxConnections" => "1",
            "ErrorRecoveryLevel" => "0",
            "MaxBurstLength" | "FirstBurstLength" => return Some(BURST_LEN.to_string()),
            _ => offer.rsplit(',').next().unwrap_or(offer),
        };
        Some(agreed.into())
    }

    // Commands

    fn command(&mut self, command: ScsiCommand, data: &[u8]) -> Vec<PduBytes> {
        let mut answer = self.target.disk.lock().expect("no connection panics").answer(&command);
        (self.target.script.command)(&command, &mut answer);
        let receiving = Receiving { command, answer, data: data.to_vec(), r2t_sn: 0 };
        if command.final_ {
            return self.go_on(receiving);
        }
        // Unsolicited data follows.
        self.receiving.insert(command.itt, receiving);
        Vec::new()
    }

    fn data_out(&mut self, pdu: &DataOut, data: &[u8]) -> Vec<PduBytes> {
        let Some(mut receiving) = self.receiving.remove(&pdu.itt) else { return Vec::new() };
        receiving.data.extend_from_slice(data);
        if pdu.final_ {
            return self.go_on(receiving);
        }
        self.receiving.insert(pdu.itt, receiving);
        Vec::new()
    }

    /// Asks for the next burst, or ends the command.
    fn go_on(&mut self, mut receiving: Receiving) -> Vec<PduBytes> {
        let Receiving { command, answer, data, r2t_sn } = &mut receiving;
        let received = data.len() as u32;
        if received >= answer.solicited {
            return self.end(&receiving);
        }
        let len = (answer.solicited - received).min(BURST_LEN);
        let r2t = R2t { lun: command.lun, ..self.unused().r2t(command.itt, *r2t_sn, received, len) };
        *r2t_sn += 1;
        self.receiving.insert(command.itt, receiving);
        vec![(r2t.emit(), Vec::new())]
    }

    fn end(&mut self, Receiving { command, answer, data, .. }: &Receiving) -> Vec<PduBytes> {
        let expected = command.expected_data_transfer_length;
        if command.write && answer.status == 0 && data.len() as u32 == expected {
            self.target.disk.lock().expect("no connection panics").apply(command, data);
        }
        let sent = &answer.data[..answer.data.len().min(expected as usize)];
        let moved = if command.write { data.len() } else { answer.data.len() };
        let residual = answer.residual.unwrap_or_else(|| residual(expected, moved as u32));
        let mut pdus = self.data_in(command, sent);
        if let Some((pdu, _)) = pdus.last_mut().filter(|_| answer.status == 0) {
            pdu.status = Some(self.used().good(residual));
        }
        let has_status = pdus.last().is_some_and(|(pdu, _)| pdu.status.is_some());
        let segment = sense_segment(&answer.sense);
        let response = (!has_status).then(|| {
            let response = ScsiResponse {
                status: answer.status,
                exp_data_sn: pdus.len() as u32,
                residual,
                data_segment_len: segment.len(),
                ..self.used().scsi_response(command.itt)
            };
            (response.emit(), segment)
        });
        pdus.into_iter().map(|(pdu, part)| (pdu.emit(), part)).chain(response).collect()
    }

    /// The data of a read, in sequences of a burst.
    fn data_in(&self, command: &ScsiCommand, data: &[u8]) -> Vec<(DataIn, Vec<u8>)> {
        let mut pdus = Vec::new();
        for (burst, offset) in data.chunks(BURST_LEN as usize).zip((0..).step_by(BURST_LEN as usize)) {
            let count = burst.len().div_ceil(self.segment_len);
            for (at, part) in burst.chunks(self.segment_len).enumerate() {
                let (data_sn, offset) = (pdus.len() as u32, offset + (at * self.segment_len) as u32);
                let pdu = self.unused().data_in(command.itt, data_sn, offset, part.len());
                pdus.push((DataIn { final_: at + 1 == count, ..pdu }, part.to_vec()));
            }
        }
        pdus
    }
}

fn residual(expected: u32, moved: u32) -> Residual {
    match moved.cmp(&expected) {
        std::cmp::Ordering::Less => Residual::Underflow(expected - moved),
        std::cmp::Ordering::Equal => Residual::None,
        std::cmp::Ordering::Greater => Residual::Overflow(moved - expected),
    }
}
