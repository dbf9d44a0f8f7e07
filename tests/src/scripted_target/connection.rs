//! One connection, with the plainest form of the protocol: no unsolicited data, and each Data-In PDU is a sequence.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use lunette_pdu::text::pairs;
use lunette_pdu::{
    BHS_LEN, Bhs, DataIn, DataOut, InitiatorPdu, InitiatorTaskTag, LoginRequest, LoginResponse, LoginStatus,
    LogoutResponse, LogoutResponseCode, LunField, NopIn, NopOut, R2t, Residual, ScsiCommand, ScsiResponse,
    ScsiResponseCode, SerialNumber, Stage, TargetTransferTag, TaskManagementResponse, TaskManagementResponseCode,
    TextResponse, Tsih, pad_len,
};

use super::{Answer, LoginAnswer, Shared};
use crate::server::DEFAULT_TARGET;

/// The length of a burst and the longest Data-In PDU, in bytes.
const BURST_LEN: u32 = 65_536;

/// The number of commands that the initiator may have under way.
const WINDOW: u32 = 32;

/// A command whose data is arriving.
struct Receiving {
    command: ScsiCommand,
    answer: Answer,
    data: Vec<u8>,
    r2t_sn: u32,
}

pub(super) struct Connection {
    stream: TcpStream,
    shared: Arc<Shared>,
    stat_sn: SerialNumber,
    exp_cmd_sn: SerialNumber,
    receiving: HashMap<InitiatorTaskTag, Receiving>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, shared: Arc<Shared>) -> Self {
        let (stat_sn, exp_cmd_sn) = (SerialNumber(1), SerialNumber(0));
        Self { stream, shared, stat_sn, exp_cmd_sn, receiving: HashMap::new() }
    }

    /// Answers until the initiator disconnects or logs out.
    pub(super) fn run(mut self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        loop {
            let (pdu, data) = self.receive()?;
            match pdu {
                InitiatorPdu::LoginRequest(pdu) => self.login(&pdu, &data)?,
                InitiatorPdu::ScsiCommand(pdu) => self.command(pdu)?,
                InitiatorPdu::DataOut(pdu) => self.data_out(&pdu, &data)?,
                InitiatorPdu::NopOut(pdu) => self.ping(&pdu, &data)?,
                InitiatorPdu::TextRequest(pdu) => {
                    self.count(pdu.immediate, pdu.cmd_sn);
                    self.send_targets(pdu.itt)?;
                }
                InitiatorPdu::TaskManagementRequest(pdu) => {
                    self.count(pdu.immediate, pdu.cmd_sn);
                    self.manage_task(pdu.itt)?;
                }
                InitiatorPdu::LogoutRequest(pdu) => {
                    self.count(pdu.immediate, pdu.cmd_sn);
                    return self.logout(pdu.itt);
                }
                InitiatorPdu::SnackRequest(pdu) => {
                    return Err(io::Error::other(format!("{pdu:?} at recovery level 0")));
                }
            }
        }
    }

    // PDUs

    fn receive(&mut self) -> io::Result<(InitiatorPdu, Vec<u8>)> {
        let mut header = [0; BHS_LEN];
        self.stream.read_exact(&mut header)?;
        let bhs = Bhs::from(header);
        let len = bhs.data_segment_len();
        let mut data = vec![0; bhs.ahs_len() + len + pad_len(len)];
        self.stream.read_exact(&mut data)?;
        data.drain(..bhs.ahs_len());
        data.truncate(len);
        Ok((InitiatorPdu::parse(&bhs).map_err(io::Error::other)?, data))
    }

    fn send(&mut self, header: [u8; BHS_LEN], data: &[u8]) -> io::Result<()> {
        let mut bytes = [&header[..], data].concat();
        bytes.resize(bytes.len() + pad_len(data.len()), 0);
        self.stream.write_all(&bytes)
    }

    fn count(&mut self, immediate: bool, cmd_sn: SerialNumber) {
        if !immediate {
            self.exp_cmd_sn = cmd_sn.next();
        }
    }

    fn max_cmd_sn(&self) -> SerialNumber {
        self.exp_cmd_sn.add(WINDOW - 1)
    }

    fn next_stat_sn(&mut self) -> SerialNumber {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.next();
        stat_sn
    }

    // Login

    fn login(&mut self, request: &LoginRequest, text: &[u8]) -> io::Result<()> {
        let offers: Result<Vec<_>, _> = pairs(text).collect();
        let offers = offers.map_err(io::Error::other)?.into_iter();
        let keys = offers.filter_map(|(key, offer)| Some((key.to_owned(), agree(key, offer)?))).collect();
        self.exp_cmd_sn = request.cmd_sn;
        let mut answer = LoginAnswer { response: self.login_response(request), keys };
        (self.shared.lies.login)(&mut answer);
        let text: String = answer.keys.iter().flat_map(|(key, value)| [key, "=", value, "\0"]).collect();
        let response = LoginResponse { data_segment_len: text.len(), ..answer.response };
        self.send(response.emit(), text.as_bytes())
    }

    fn login_response(&mut self, request: &LoginRequest) -> LoginResponse {
        let ends = request.transit && request.nsg == Stage::FullFeaturePhase;
        LoginResponse {
            transit: request.transit,
            continue_: false,
            csg: request.csg,
            nsg: request.nsg,
            version_max: 0,
            version_active: 0,
            isid: request.isid,
            tsih: if ends { Tsih(1) } else { request.tsih },
            itt: request.itt,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            status: LoginStatus::SUCCESS,
            data_segment_len: 0,
        }
    }

    // Commands

    fn command(&mut self, command: ScsiCommand) -> io::Result<()> {
        self.count(command.immediate, command.cmd_sn);
        let mut answer = self.shared.disk.lock().expect("no connection panics").answer(&command);
        (self.shared.lies.command)(&command, &mut answer);
        let receiving = Receiving { command, answer, data: Vec::new(), r2t_sn: 0 };
        self.go_on(receiving)
    }

    /// Asks for the next burst, or ends the command.
    fn go_on(&mut self, mut receiving: Receiving) -> io::Result<()> {
        let Receiving { command, answer, data, r2t_sn } = &mut receiving;
        let received = data.len() as u32;
        if received >= answer.solicited {
            return self.end(&receiving);
        }
        let r2t = R2t {
            lun: command.lun,
            itt: command.itt,
            ttt: TargetTransferTag(*r2t_sn),
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            r2t_sn: *r2t_sn,
            buffer_offset: received,
            desired_data_transfer_length: (answer.solicited - received).min(BURST_LEN),
        };
        *r2t_sn += 1;
        self.receiving.insert(command.itt, receiving);
        self.send(r2t.emit(), &[])
    }

    fn data_out(&mut self, pdu: &DataOut, data: &[u8]) -> io::Result<()> {
        let Some(receiving) = self.receiving.get_mut(&pdu.itt) else { return Ok(()) };
        receiving.data.extend_from_slice(data);
        match self.receiving.remove(&pdu.itt).filter(|_| pdu.final_) {
            Some(receiving) => self.go_on(receiving),
            None => Ok(()),
        }
    }

    fn end(&mut self, Receiving { command, answer, data, .. }: &Receiving) -> io::Result<()> {
        let expected = command.expected_data_transfer_length;
        if command.write && answer.status == 0 && data.len() as u32 == expected {
            self.shared.disk.lock().expect("no connection panics").apply(command, data);
        }
        let sent = &answer.data[..answer.data.len().min(expected as usize)];
        let data_ins = self.send_data(command, sent)?;
        let moved = if command.write { data.len() } else { answer.data.len() };
        let segment = sense_segment(&answer.sense);
        let response = ScsiResponse {
            response: ScsiResponseCode::COMMAND_COMPLETED,
            status: answer.status,
            status_qualifier: 0,
            itt: command.itt,
            snack_tag: 0,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            exp_data_sn: data_ins,
            residual: answer.residual.unwrap_or_else(|| residual(expected, moved as u32)),
            bidi_read_residual: Residual::None,
            data_segment_len: segment.len(),
        };
        self.send(response.emit(), &segment)
    }

    /// Sends the data of a read, and returns the number of PDUs.
    fn send_data(&mut self, command: &ScsiCommand, data: &[u8]) -> io::Result<u32> {
        let mut data_sn = 0;
        for part in data.chunks(BURST_LEN as usize) {
            let pdu = DataIn {
                final_: true,
                acknowledge: false,
                status: None,
                lun: LunField::default(),
                itt: command.itt,
                ttt: TargetTransferTag::RESERVED,
                exp_cmd_sn: self.exp_cmd_sn,
                max_cmd_sn: self.max_cmd_sn(),
                data_sn,
                buffer_offset: data_sn * BURST_LEN,
                data_segment_len: part.len(),
            };
            data_sn += 1;
            self.send(pdu.emit(), part)?;
        }
        Ok(data_sn)
    }

    // Everything else

    fn ping(&mut self, ping: &NopOut, data: &[u8]) -> io::Result<()> {
        self.count(ping.immediate, ping.cmd_sn);
        if ping.itt.is_reserved() {
            return Ok(());
        }
        let pdu = NopIn {
            lun: LunField::default(),
            itt: ping.itt,
            ttt: TargetTransferTag::RESERVED,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            data_segment_len: data.len(),
        };
        self.send(pdu.emit(), data)
    }

    fn send_targets(&mut self, itt: InitiatorTaskTag) -> io::Result<()> {
        let mut text = format!("TargetName={DEFAULT_TARGET}\0TargetAddress={},1\0", self.shared.address).into_bytes();
        (self.shared.lies.text)(&mut text);
        let pdu = TextResponse {
            final_: true,
            continue_: false,
            lun: LunField::default(),
            itt,
            ttt: TargetTransferTag::RESERVED,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            data_segment_len: text.len(),
        };
        self.send(pdu.emit(), &text)
    }

    fn manage_task(&mut self, itt: InitiatorTaskTag) -> io::Result<()> {
        let pdu = TaskManagementResponse {
            response: TaskManagementResponseCode::FUNCTION_COMPLETE,
            additional_response_information: [0; 3],
            itt,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
        };
        self.send(pdu.emit(), &[])
    }

    fn logout(&mut self, itt: InitiatorTaskTag) -> io::Result<()> {
        let pdu = LogoutResponse {
            response: LogoutResponseCode::CLOSED,
            itt,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            time2wait: 0,
            time2retain: 0,
        };
        self.send(pdu.emit(), &[])
    }
}

/// The answer to an offer: the value that suits this target, else the offered one, of a list the last. Names get no answer.
fn agree(key: &str, offer: &str) -> Option<String> {
    let agreed = match key {
        "InitiatorName" | "InitiatorAlias" | "SessionType" | "TargetName" => return None,
        "InitialR2T" => "Yes",
        "ImmediateData" => "No",
        "MaxConnections" => "1",
        "ErrorRecoveryLevel" => "0",
        "MaxBurstLength" | "FirstBurstLength" => "65536",
        _ => offer.rsplit(',').next().unwrap_or(offer),
    };
    Some(agreed.into())
}

/// Sense data behind its length (RFC 7143 section 11.4.7).
fn sense_segment(sense: &[u8]) -> Vec<u8> {
    if sense.is_empty() { Vec::new() } else { [&(sense.len() as u16).to_be_bytes()[..], sense].concat() }
}

fn residual(expected: u32, moved: u32) -> Residual {
    match moved.cmp(&expected) {
        std::cmp::Ordering::Less => Residual::Underflow(expected - moved),
        std::cmp::Ordering::Equal => Residual::None,
        std::cmp::Ordering::Greater => Residual::Overflow(moved - expected),
    }
}
