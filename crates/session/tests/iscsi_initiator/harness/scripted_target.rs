//! A target that says whatever a test wants. Left alone, it logs in and counts as it should.

use std::collections::VecDeque;
use std::time::Duration;

use lunette_buffer::Pool;
use lunette_pdu::text::pairs;
use lunette_pdu::{
    BHS_LEN, Cid, DataIn, DataInStatus, InitiatorPdu, InitiatorTaskTag, LoginRequest, LoginResponse, NopIn, R2t,
    RejectReason, Residual, ScsiResponse, SerialNumber, SnackRequest, Stage, TargetTransferTag, TaskManagementRequest,
    TaskManagementResponse, TaskManagementResponseCode, TextResponse, Tsih,
};
use lunette_session::Time;
use lunette_session::iscsi_initiator::{Command, Event, Response, Session, SessionConfig, SessionError, TaskTag};
use lunette_session::keys::Offer;
use lunette_testkit::{Format, Frame, Numbers, keys, pattern};

use super::disk::{LUN, read, write};
use super::setup::entropy;

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

impl From<Frame> for Sent {
    fn from(frame: Frame) -> Self {
        let frame = frame.verified();
        Self { pdu: frame.initiator_pdu(), ahs: frame.ahs, data: frame.data }
    }
}

pub(crate) type Keys = Vec<(String, String)>;

pub(crate) struct ScriptedTarget {
    pub(crate) session: Session,
    pub(crate) cid: Cid,
    pub(crate) now: Time,
    pub(crate) pool: Pool,
    /// StatSN of the next response.
    pub(crate) stat_sn: SerialNumber,
    pub(crate) exp_cmd_sn: SerialNumber,
    /// The digests of both sides.
    format: Format,
    /// Commands are not acknowledged, but by setting `exp_cmd_sn`.
    pub(crate) behind: bool,
    /// The ends of commands are told where commands are; an event is made of them here.
    pub(crate) tells_ends: bool,
    stream: Vec<u8>,
    pub(crate) sent: VecDeque<Sent>,
    pub(crate) events: VecDeque<Event>,
    users: u64,
}

impl ScriptedTarget {
    /// The first login request is out.
    pub(crate) fn new(config: SessionConfig) -> Self {
        let now = Time::new(Duration::from_secs(1000));
        let mut session = Session::new(config);
        let cid = session.connect(entropy(0x40), now);
        let mut target = Self {
            session,
            cid,
            now,
            pool: Pool::new(64 << 20),
            stat_sn: SerialNumber(u32::MAX - 1),
            exp_cmd_sn: SerialNumber(0xffff_fffe),
            format: Format::PLAIN,
            behind: false,
            tells_ends: false,
            stream: Vec::new(),
            sent: VecDeque::new(),
            events: VecDeque::new(),
            users: 0,
        };
        target.raw(&[]);
        target
    }

    /// In full feature phase; these keys are answered so, the others as they were offered.
    pub(crate) fn logged_in(config: SessionConfig, answers: &[(&str, &str)]) -> Self {
        let mut target = Self::new(config);
        target.pass_security();
        let (request, keys) = target.login_request();
        let answer = |key: &str, offer: &str| {
            let given = answers.iter().find(|(k, _)| *k == key).map(|(_, value)| (*value).to_owned());
            // Of lists, the default.
            let usual = offer.rsplit(',').next().unwrap_or(offer);
            given.unwrap_or_else(|| usual.into())
        };
        let keys: Vec<_> = keys.iter().map(|(key, offer)| (key.clone(), answer(key, offer))).collect();
        let keys: Vec<_> = keys.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        target.answer_login(LoginResponse { tsih: Tsih(7), ..target.login_response(&request, true) }, &keys);
        let event = target.events.pop_front();
        assert!(matches!(event, Some(Event::LoggedIn(_))), "{event:?}");
        target.format = Format::agreed(&lunette_testkit::keys(answers));
        target
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
        Self::logged_in(SessionConfig { offer, ..super::config() }, &answers)
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
        while let Some(event) = self.next_event(&mut input) {
            self.events.push_back(event);
        }
        assert!(input.is_empty(), "everything is consumed");
        self.listen();
    }

    fn next_event(&mut self, input: &mut &[u8]) -> Option<Event> {
        let Self { session, cid, now, events, .. } = self;
        if !self.tells_ends {
            return session.next_event(*cid, input, *now);
        }
        session.next_other_event(*cid, input, *now, |command, response| {
            events.push_back(Event::Completed { command: command.take(), response: std::mem::take(response) });
        })
    }

    pub(crate) fn listen(&mut self) {
        while self.session.has_output(self.cid) {
            let before = self.stream.len();
            for slice in self.session.slices(self.cid) {
                self.stream.extend_from_slice(slice);
            }
            self.session.sent(self.cid, self.stream.len() - before);
        }
        while let Some(sent) = self.format.take(&mut self.stream).map(Sent::from) {
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

    /// The bytes of a PDU with its digests.
    pub(crate) fn wire(&self, bhs: &[u8; BHS_LEN], data: &[u8]) -> Vec<u8> {
        self.format.encode(bhs, &[], data)
    }

    pub(crate) fn send(&mut self, bhs: [u8; BHS_LEN], data: &[u8]) {
        let bytes = self.wire(&bhs, data);
        self.raw(&bytes);
    }

    /// Sends a PDU whose data digest is wrong.
    pub(crate) fn send_damaged(&mut self, bhs: [u8; BHS_LEN], data: &[u8]) {
        let mut bytes = self.format.encode(&bhs, &[], data);
        bytes[BHS_LEN] ^= 0x10;
        self.raw(&bytes);
    }

    /// The numbers of a PDU that uses up no StatSN.
    pub(crate) fn unused(&self) -> Numbers {
        Numbers::new(self.stat_sn, self.exp_cmd_sn)
    }

    /// The numbers of a PDU that uses up a StatSN.
    pub(crate) fn used(&mut self) -> Numbers {
        let numbers = self.unused();
        self.stat_sn = numbers.stat_sn.next();
        numbers
    }

    pub(crate) fn login_response(&self, request: &LoginRequest, transit: bool) -> LoginResponse {
        let nsg = if transit { request.nsg } else { Stage::SecurityNegotiation };
        let response = Numbers::new(self.stat_sn, request.cmd_sn).login_response(request);
        LoginResponse { transit, nsg, ..response }
    }

    /// Sends a login response; StatSN counts on.
    pub(crate) fn answer_login(&mut self, response: LoginResponse, pairs: &[(&str, &str)]) {
        self.answer_login_text(response, keys(pairs).as_bytes());
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
        let ttt = if last { TargetTransferTag::RESERVED } else { TargetTransferTag(5) };
        TextResponse { final_: last, lun: LUN, ttt, ..self.used().text_response(itt, len) }
    }

    /// A Data-In that ends its sequence.
    pub(crate) fn data_in(&self, itt: InitiatorTaskTag, data_sn: u32, offset: u32, len: usize) -> DataIn {
        self.unused().data_in(itt, data_sn, offset, len)
    }

    /// GOOD, with the next StatSN.
    pub(crate) fn status(&mut self, residual: Residual) -> DataInStatus {
        self.used().good(residual)
    }

    pub(crate) fn next_stat_sn(&mut self) -> SerialNumber {
        self.used().stat_sn
    }

    pub(crate) fn send_data(&mut self, pdu: DataIn) {
        self.send(pdu.emit(), &data_of(&pdu));
    }

    /// Sends it with a wrong data digest.
    pub(crate) fn send_damaged_data(&mut self, pdu: DataIn) {
        self.send_damaged(pdu.emit(), &data_of(&pdu));
    }

    pub(crate) fn response(&mut self, itt: InitiatorTaskTag) -> ScsiResponse {
        self.used().scsi_response(itt)
    }

    pub(crate) fn task_management_response(
        &mut self,
        itt: InitiatorTaskTag,
        response: TaskManagementResponseCode,
    ) -> TaskManagementResponse {
        self.used().task_management_response(itt, response)
    }

    pub(crate) fn r2t(&self, itt: InitiatorTaskTag, r2t_sn: u32, offset: u32, len: u32) -> R2t {
        R2t { lun: LUN, ..self.unused().r2t(itt, r2t_sn, offset, len) }
    }

    /// The target's own ping.
    pub(crate) fn nop_in(&self) -> NopIn {
        self.unused().ping(TargetTransferTag(9))
    }

    /// Refuses a PDU.
    pub(crate) fn reject(&mut self, reason: RejectReason, header: [u8; BHS_LEN]) {
        let pdu = self.used().reject(reason);
        self.send(pdu.emit(), &header);
    }

    /// Time passes, and the target is heard in it.
    pub(crate) fn pass_in_company(&mut self, span: Duration) {
        self.pass(Duration::from_secs(1));
        let report = self.unused().ping(TargetTransferTag::RESERVED);
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
