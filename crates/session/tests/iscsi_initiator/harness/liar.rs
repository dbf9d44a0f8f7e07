//! A target that says whatever a test wants. Left alone, it logs in and counts as it should.

use std::collections::VecDeque;
use std::time::Duration;

use lunette_buffer::Pool;
use lunette_crc32c::{crc32c, to_wire};
use lunette_pdu::text::pairs;
use lunette_pdu::{
    BHS_LEN, Bhs, Cid, DIGEST_LEN, DataIn, DataInStatus, InitiatorPdu, InitiatorTaskTag, LoginRequest, LoginResponse,
    LoginStatus, LunField, NopIn, R2t, Reject, RejectReason, Residual, ScsiResponse, ScsiResponseCode, SerialNumber,
    SnackRequest, Stage, TargetTransferTag, TaskManagementRequest, TaskManagementResponse, TaskManagementResponseCode,
    TextResponse, Tsih, pad_len,
};
use lunette_session::Time;
use lunette_session::iscsi_initiator::{Command, Event, Response, Session, SessionConfig, SessionError, TaskTag};
use lunette_session::keys::Offer;

use super::disk::{LUN, read, write};
use super::setup::{entropy, pattern};

/// A PDU of the initiator.
pub(crate) struct Sent {
    pub(crate) pdu: InitiatorPdu,
    pub(crate) ahs: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} with {} bytes", self.pdu, self.data.len())
    }
}

/// The first PDU of a stream without header digests.
pub(crate) fn cut(stream: &mut Vec<u8>, data_digest: bool) -> Option<Sent> {
    let bhs = Bhs::from(*stream.first_chunk::<BHS_LEN>()?);
    let data = BHS_LEN + bhs.ahs_len();
    let end = data + bhs.data_segment_len();
    let sent = Sent {
        pdu: InitiatorPdu::parse(&bhs).unwrap(),
        ahs: stream[BHS_LEN..data].to_vec(),
        data: stream[data..end].to_vec(),
    };
    let digest_len = if data_digest && end > data { DIGEST_LEN } else { 0 };
    let rest = end + pad_len(end - data);
    if digest_len > 0 {
        assert_eq!(stream[rest..rest + DIGEST_LEN], to_wire(crc32c(&stream[data..rest])));
    }
    stream.drain(..rest + digest_len);
    Some(sent)
}

pub(crate) type Keys = Vec<(String, String)>;

pub(crate) struct Liar {
    pub(crate) session: Session,
    pub(crate) cid: Cid,
    pub(crate) now: Time,
    pub(crate) pool: Pool,
    /// StatSN of the next response.
    pub(crate) stat_sn: SerialNumber,
    pub(crate) exp_cmd_sn: SerialNumber,
    /// Both sides digest their data segments.
    data_digest: bool,
    /// Commands are not acknowledged, but by setting `exp_cmd_sn`.
    pub(crate) behind: bool,
    stream: Vec<u8>,
    pub(crate) sent: VecDeque<Sent>,
    pub(crate) events: VecDeque<Event>,
    users: u64,
}

impl Liar {
    /// The first login request is out.
    pub(crate) fn new(config: SessionConfig) -> Self {
        let now = Time::new(Duration::from_secs(1000));
        let mut session = Session::new(config);
        let cid = session.connect(entropy(0x40), now);
        let mut liar = Self {
            session,
            cid,
            now,
            pool: Pool::new(64 << 20),
            stat_sn: SerialNumber(u32::MAX - 1),
            exp_cmd_sn: SerialNumber(0xffff_fffe),
            data_digest: false,
            behind: false,
            stream: Vec::new(),
            sent: VecDeque::new(),
            events: VecDeque::new(),
            users: 0,
        };
        liar.raw(&[]);
        liar
    }

    /// In full feature phase; these keys are answered so, the others as they were offered.
    pub(crate) fn logged_in(config: SessionConfig, answers: &[(&str, &str)]) -> Self {
        let mut liar = Self::new(config);
        liar.pass_security();
        let (request, keys) = liar.login_request();
        let answer = |key: &str, offer: &str| {
            let given = answers.iter().find(|(k, _)| *k == key).map(|(_, value)| (*value).to_owned());
            // Of lists, the default.
            let usual = offer.rsplit(',').next().unwrap_or(offer);
            given.unwrap_or_else(|| usual.into())
        };
        let keys: Vec<_> = keys.iter().map(|(key, offer)| (key.clone(), answer(key, offer))).collect();
        let keys: Vec<_> = keys.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        liar.answer_login(LoginResponse { tsih: Tsih(7), ..liar.login_response(&request, true) }, &keys);
        let event = liar.events.pop_front();
        assert!(matches!(event, Some(Event::LoggedIn(_))), "{event:?}");
        liar
    }

    /// Usual parameters, but no data goes unasked.
    pub(crate) fn asked_only() -> Self {
        let answers =
            [("InitialR2T", "Yes"), ("ImmediateData", "No"), ("MaxBurstLength", "8192"), ("MaxOutstandingR2T", "2")];
        Self::logged_in(super::config(), &answers)
    }

    /// At recovery level 1 with data digests; no data goes unasked.
    pub(crate) fn recovering() -> Self {
        Self::recovering_with(&[("InitialR2T", "Yes"), ("ImmediateData", "No"), ("MaxBurstLength", "8192")])
    }

    /// At recovery level 1 with data digests, and with these answers.
    pub(crate) fn recovering_with(answers: &[(&str, &str)]) -> Self {
        let offer = Offer { error_recovery_level: 1, ..Offer::default() };
        let answers = [answers, &[("DataDigest", "CRC32C")]].concat();
        let mut liar = Self::logged_in(SessionConfig { offer, ..super::config() }, &answers);
        liar.data_digest = true;
        liar
    }

    pub(crate) fn pass_security(&mut self) {
        let (request, _) = self.login_request();
        self.answer_login(self.login_response(&request, true), &[("AuthMethod", "None")]);
    }

    // What the initiator says.

    pub(crate) fn next(&mut self) -> Sent {
        self.sent.pop_front().unwrap_or_else(|| panic!("nothing was sent; events: {:?}", self.events))
    }

    pub(crate) fn login_request(&mut self) -> (LoginRequest, Keys) {
        let Sent { pdu: InitiatorPdu::LoginRequest(pdu), data, .. } = self.next() else { panic!("no login request") };
        let keys = pairs(&data).map(|pair| pair.map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap());
        (pdu, keys.collect())
    }

    /// The request that the session was asked for and has yet to send.
    pub(crate) fn task_management_request(&mut self) -> TaskManagementRequest {
        self.raw(&[]);
        let sent = self.next();
        let InitiatorPdu::TaskManagementRequest(pdu) = sent.pdu else { panic!("{sent:?}") };
        pdu
    }

    pub(crate) fn snack_request(&mut self) -> SnackRequest {
        let sent = self.next();
        let InitiatorPdu::SnackRequest(pdu) = sent.pdu else { panic!("{sent:?}") };
        pdu
    }

    /// ExpStatSN, asked for by a ping.
    pub(crate) fn exp_stat_sn(&mut self) -> SerialNumber {
        let ping = self.nop_in();
        self.send(ping.emit(), &[]);
        let sent = self.next();
        let InitiatorPdu::NopOut(pdu) = sent.pdu else { panic!("{sent:?}") };
        pdu.exp_stat_sn
    }

    /// A read is submitted; its header has been looked at.
    pub(crate) fn read(&mut self, len: u32) -> (TaskTag, InitiatorTaskTag) {
        self.users += 1;
        let command = read(&self.pool, self.users, 0, len);
        self.submitted(command)
    }

    pub(crate) fn write(&mut self, len: u32) -> (TaskTag, InitiatorTaskTag) {
        self.users += 1;
        let command = write(&self.pool, self.users, 0, &pattern(len as usize));
        self.submitted(command)
    }

    fn submitted(&mut self, command: lunette_session::iscsi_initiator::Command) -> (TaskTag, InitiatorTaskTag) {
        let tag = self.session.submit(command, self.now).expect("there is room");
        self.raw(&[]);
        let sent = self.next();
        let InitiatorPdu::ScsiCommand(pdu) = sent.pdu else { panic!("{sent:?}") };
        (tag, pdu.itt)
    }

    // What the target says.

    /// Any bytes; then whatever the initiator has to say is read.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        let mut input = bytes;
        while let Some(event) = self.session.next_event(self.cid, &mut input, self.now) {
            self.events.push_back(event);
        }
        assert!(input.is_empty(), "everything is consumed");
        self.listen();
    }

    pub(crate) fn listen(&mut self) {
        while self.session.has_output(self.cid) {
            let before = self.stream.len();
            for slice in self.session.slices(self.cid) {
                self.stream.extend_from_slice(slice);
            }
            self.session.sent(self.cid, self.stream.len() - before);
        }
        while let Some(sent) = cut(&mut self.stream, self.data_digest) {
            let numbered = match &sent.pdu {
                InitiatorPdu::ScsiCommand(pdu) => Some(pdu.cmd_sn),
                InitiatorPdu::TextRequest(pdu) if !pdu.immediate => Some(pdu.cmd_sn),
                _ => None,
            };
            if let Some(cmd_sn) = numbered {
                // A retry has its old number.
                assert!(!cmd_sn.is_after(self.exp_cmd_sn) || self.behind, "{cmd_sn} where {} was due", self.exp_cmd_sn);
                if cmd_sn == self.exp_cmd_sn && !self.behind {
                    self.exp_cmd_sn = cmd_sn.next();
                }
            }
            self.sent.push_back(sent);
        }
        assert!(self.stream.is_empty(), "half a PDU");
    }

    pub(crate) fn send(&mut self, bhs: [u8; BHS_LEN], data: &[u8]) {
        let bytes = self.wire(bhs, data);
        self.raw(&bytes);
    }

    /// Sends a PDU whose data digest is wrong.
    pub(crate) fn send_damaged(&mut self, bhs: [u8; BHS_LEN], data: &[u8]) {
        let mut bytes = self.wire(bhs, data);
        bytes[BHS_LEN] ^= 0x10;
        self.raw(&bytes);
    }

    fn wire(&self, bhs: [u8; BHS_LEN], data: &[u8]) -> Vec<u8> {
        let mut bytes = [&bhs[..], data].concat();
        bytes.resize(bytes.len() + pad_len(data.len()), 0);
        if self.data_digest && !data.is_empty() {
            let digest = to_wire(crc32c(&bytes[BHS_LEN..]));
            bytes.extend(digest);
        }
        bytes
    }

    pub(crate) fn max_cmd_sn(&self) -> SerialNumber {
        self.exp_cmd_sn.add(31)
    }

    pub(crate) fn login_response(&self, request: &LoginRequest, transit: bool) -> LoginResponse {
        LoginResponse {
            transit,
            continue_: false,
            csg: request.csg,
            nsg: if transit { request.nsg } else { Stage::SecurityNegotiation },
            version_max: 0,
            version_active: 0,
            isid: request.isid,
            tsih: request.tsih,
            itt: request.itt,
            stat_sn: self.stat_sn,
            exp_cmd_sn: request.cmd_sn,
            max_cmd_sn: request.cmd_sn.add(31),
            status: LoginStatus::SUCCESS,
            data_segment_len: 0,
        }
    }

    /// Sends a login response; StatSN counts on.
    pub(crate) fn answer_login(&mut self, response: LoginResponse, keys: &[(&str, &str)]) {
        let text: Vec<u8> = keys.iter().flat_map(|(key, value)| format!("{key}={value}\0").into_bytes()).collect();
        self.answer_login_text(response, &text);
    }

    pub(crate) fn answer_login_text(&mut self, response: LoginResponse, text: &[u8]) {
        self.stat_sn = response.stat_sn.next();
        self.send(LoginResponse { data_segment_len: text.len(), ..response }.emit(), text);
    }

    /// The next event: a command has ended.
    pub(crate) fn completed(&mut self) -> (Command, Response) {
        match self.event() {
            Event::Completed { command, response } => (command, response),
            other => panic!("{other:?}"),
        }
    }

    /// The `last` part of an answer, or one that others follow.
    pub(crate) fn text_response(&mut self, itt: InitiatorTaskTag, last: bool, len: usize) -> TextResponse {
        TextResponse {
            final_: last,
            continue_: false,
            lun: LUN,
            itt,
            ttt: if last { TargetTransferTag::RESERVED } else { TargetTransferTag(5) },
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            data_segment_len: len,
        }
    }

    /// A Data-In that ends its sequence.
    pub(crate) fn data_in(&self, itt: InitiatorTaskTag, data_sn: u32, offset: u32, len: usize) -> DataIn {
        DataIn {
            final_: true,
            acknowledge: false,
            status: None,
            lun: LunField::default(),
            itt,
            ttt: TargetTransferTag::RESERVED,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            data_sn,
            buffer_offset: offset,
            data_segment_len: len,
        }
    }

    /// GOOD, with the next StatSN.
    pub(crate) fn status(&mut self, residual: Residual) -> DataInStatus {
        let stat_sn = self.next_stat_sn();
        DataInStatus { status: 0, residual, stat_sn }
    }

    pub(crate) fn next_stat_sn(&mut self) -> SerialNumber {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.next();
        stat_sn
    }

    pub(crate) fn send_data(&mut self, pdu: DataIn) {
        self.send(pdu.emit(), &data_of(&pdu));
    }

    /// Sends it with a wrong data digest.
    pub(crate) fn send_damaged_data(&mut self, pdu: DataIn) {
        self.send_damaged(pdu.emit(), &data_of(&pdu));
    }

    pub(crate) fn response(&mut self, itt: InitiatorTaskTag) -> ScsiResponse {
        ScsiResponse {
            response: ScsiResponseCode::COMMAND_COMPLETED,
            status: 0,
            status_qualifier: 0,
            itt,
            snack_tag: 0,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            exp_data_sn: 0,
            residual: Residual::None,
            bidi_read_residual: Residual::None,
            data_segment_len: 0,
        }
    }

    pub(crate) fn task_management_response(
        &mut self,
        itt: InitiatorTaskTag,
        response: TaskManagementResponseCode,
    ) -> TaskManagementResponse {
        TaskManagementResponse {
            response,
            additional_response_information: [0; 3],
            itt,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
        }
    }

    pub(crate) fn r2t(&self, itt: InitiatorTaskTag, r2t_sn: u32, offset: u32, len: u32) -> R2t {
        R2t {
            lun: super::disk::LUN,
            itt,
            ttt: TargetTransferTag(0x100 + r2t_sn),
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            r2t_sn,
            buffer_offset: offset,
            desired_data_transfer_length: len,
        }
    }

    /// The target's own ping.
    pub(crate) fn nop_in(&self) -> NopIn {
        NopIn {
            lun: LunField::default(),
            itt: InitiatorTaskTag::RESERVED,
            ttt: TargetTransferTag(9),
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            data_segment_len: 0,
        }
    }

    /// Refuses a PDU.
    pub(crate) fn reject(&mut self, reason: RejectReason, header: [u8; BHS_LEN]) {
        let pdu = Reject {
            reason,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            data_sn: 0,
            data_segment_len: BHS_LEN,
        };
        self.send(pdu.emit(), &header);
    }

    /// Time passes, and the target is heard in it.
    pub(crate) fn pass_in_company(&mut self, span: Duration) {
        self.pass(Duration::from_secs(1));
        let report = NopIn { ttt: TargetTransferTag::RESERVED, ..self.nop_in() };
        self.send(report.emit(), &[]);
        self.pass(span.saturating_sub(Duration::from_secs(1)));
    }

    // What comes of it.

    pub(crate) fn event(&mut self) -> Event {
        self.events.pop_front().unwrap_or_else(|| panic!("no event; sent: {:?}", self.sent))
    }

    /// The connection has ended.
    pub(crate) fn closed(&mut self) -> SessionError {
        match self.event() {
            Event::Closed { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }

    /// The connection has ended over a rule of that section. Gives what the error says.
    pub(crate) fn broken(&mut self, section: &str) -> String {
        match self.closed() {
            SessionError::Protocol { section: found, what } => {
                assert_eq!(found, section, "{what}");
                what
            }
            other => panic!("{other:?} instead of a broken rule of {section}"),
        }
    }

    /// Lets time pass, doing what is due on the way.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.session.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.session.time_has_come(self.now);
            self.raw(&[]);
        }
        self.now = end;
    }
}

/// The bytes that belong where a Data-In says.
fn data_of(pdu: &DataIn) -> Vec<u8> {
    let from = pdu.buffer_offset as usize;
    let data = pattern(from.saturating_add(pdu.data_segment_len).min(1 << 24));
    data.get(from..).map_or_else(|| vec![0; pdu.data_segment_len], <[u8]>::to_vec)
}
