//! A target that says whatever a test wants, on several connections of a session at recovery level 2. Left alone, it
//! logs in and counts as it should.

use std::collections::VecDeque;
use std::time::Duration;

use lunette_buffer::Pool;
use lunette_pdu::text::pairs;
use lunette_pdu::{
    BHS_LEN, Cid, DataIn, InitiatorPdu, InitiatorTaskTag, LoginRequest, LoginResponse, LoginStatus, LogoutReason,
    LogoutRequest, LogoutResponse, LogoutResponseCode, R2t, Residual, ScsiCommand, SerialNumber, Stage,
    TargetTransferTag, TaskManagementFunction, TaskManagementRequest, TaskManagementResponseCode, Tsih,
};
use lunette_session::Time;
use lunette_session::iscsi_initiator::{Event, Session, SessionConfig, SessionError, TaskTag};
use lunette_session::keys::Offer;
use lunette_testkit::{Format, Numbers, pattern};

use super::disk::{LUN, exchange, read, write};
use super::scripted_target::Sent;
use super::setup::{config, entropy};

/// One connection as the target sees it.
struct Wire {
    cid: Cid,
    /// StatSN of the next response.
    stat_sn: SerialNumber,
    stream: Vec<u8>,
    sent: VecDeque<Sent>,
}

pub(crate) struct ScriptedSession {
    pub(crate) session: Session,
    pub(crate) now: Time,
    pool: Pool,
    wires: Vec<Wire>,
    pub(crate) exp_cmd_sn: SerialNumber,
    pub(crate) events: VecDeque<Event>,
    users: u64,
    times: (u32, u32),
    /// The recovery level to which the target agrees.
    level: u32,
}

impl ScriptedSession {
    /// A session of this number of connections, all logged in.
    pub(crate) fn new(connections: u32, time2wait_s: u32, time2retain_s: u32) -> Self {
        Self::at_level(2, connections, (time2wait_s, time2retain_s))
    }

    /// A session at another recovery level.
    pub(crate) fn at_level(level: u32, connections: u32, times: (u32, u32)) -> Self {
        let (time2wait_s, time2retain_s) = times;
        let offer = Offer {
            max_connections: 8,
            error_recovery_level: 2,
            max_outstanding_r2t: 1,
            time2wait_s,
            time2retain_s,
            ..Offer::default()
        };
        let mut scripted = Self {
            session: Session::new(SessionConfig { offer, ..config() }),
            now: Time::new(Duration::from_secs(1000)),
            pool: Pool::new(64 << 20),
            wires: Vec::new(),
            exp_cmd_sn: SerialNumber(0xffff_fffe),
            events: VecDeque::new(),
            users: 0,
            times,
            level,
        };
        for _ in 0..connections {
            scripted.join();
        }
        scripted
    }

    /// Opens one more stream. The first login request is out.
    pub(crate) fn connect(&mut self) -> usize {
        let seed = self.wires.len() as u8;
        let cid = self.session.connect(entropy(0x40 + seed), self.now);
        let stat_sn = SerialNumber(u32::MAX - 3 + u32::from(seed));
        // The streams of old connections with this number are gone.
        for old in self.wires.iter_mut().filter(|old| old.cid == cid) {
            old.cid = Cid(u16::MAX);
        }
        self.wires.push(Wire { cid, stat_sn, stream: Vec::new(), sent: VecDeque::new() });
        self.listen();
        self.wires.len() - 1
    }

    /// Opens one more stream and logs in.
    pub(crate) fn join(&mut self) -> usize {
        let wire = self.connect();
        self.log_in(wire);
        wire
    }

    pub(crate) fn log_in(&mut self, wire: usize) {
        for _ in 0..2 {
            let request = self.login_request(wire);
            let text = match request.csg {
                Stage::SecurityNegotiation => b"AuthMethod=None\0".to_vec(),
                _ => self.answers(request.tsih == Tsih::NEW),
            };
            self.answer_login(wire, &request, LoginStatus::SUCCESS, &text);
        }
        let cid = self.wires[wire].cid;
        let event = self.events.pop_front();
        assert!(matches!(event, Some(Event::LoggedIn(known)) if known == cid), "{event:?}");
    }

    fn answers(&self, leads: bool) -> Vec<u8> {
        let mut keys = "HeaderDigest=None\0DataDigest=None\0MaxRecvDataSegmentLength=8192\0".to_owned();
        if leads {
            let (wait, retain) = self.times;
            keys = format!("{keys}MaxConnections=8\0DefaultTime2Wait={wait}\0DefaultTime2Retain={retain}\0");
            let level = self.level;
            keys = format!("{keys}ErrorRecoveryLevel={level}\0MaxBurstLength=8192\0FirstBurstLength=8192\0");
            keys += "InitialR2T=Yes\0ImmediateData=No\0";
        }
        keys.into_bytes()
    }

    pub(crate) fn login_request(&mut self, wire: usize) -> LoginRequest {
        let sent = self.next(wire);
        let InitiatorPdu::LoginRequest(pdu) = sent.pdu else { panic!("{sent:?} is no login request") };
        pdu
    }

    /// The keys of the next login request, which is answered by going on.
    pub(crate) fn login_keys(&mut self, wire: usize) -> Vec<String> {
        let sent = self.next(wire);
        let InitiatorPdu::LoginRequest(pdu) = sent.pdu else { panic!("{sent:?} is no login request") };
        let text = if pdu.csg == Stage::SecurityNegotiation { &b"AuthMethod=None\0"[..] } else { b"" };
        self.answer_login(wire, &pdu, LoginStatus::SUCCESS, text);
        pairs(&sent.data).map(|pair| pair.unwrap().0.to_owned()).collect()
    }

    pub(crate) fn answer_login(&mut self, wire: usize, request: &LoginRequest, status: LoginStatus, text: &[u8]) {
        let response = LoginResponse {
            transit: status == LoginStatus::SUCCESS,
            tsih: Tsih(7),
            status,
            data_segment_len: text.len(),
            ..self.used(wire).login_response(request)
        };
        self.send(wire, response.emit(), text);
    }

    // What the initiator says.

    pub(crate) fn next(&mut self, wire: usize) -> Sent {
        let events = &self.events;
        self.wires[wire].sent.pop_front().unwrap_or_else(|| panic!("nothing was sent on {wire}; events: {events:?}"))
    }

    /// The PDU that [`next`](Self::next) will give.
    pub(crate) fn peek(&self, wire: usize) -> InitiatorPdu {
        self.wires[wire].sent.front().unwrap_or_else(|| panic!("nothing was sent on {wire}")).pdu
    }

    pub(crate) fn is_silent(&self, wire: usize) -> bool {
        self.wires[wire].sent.is_empty()
    }

    /// A command is submitted. Gives the connection that it went over.
    pub(crate) fn read(&mut self, len: u32) -> (usize, TaskTag, ScsiCommand) {
        self.users += 1;
        self.submit(read(&self.pool, self.users, 0, len))
    }

    pub(crate) fn write(&mut self, len: u32) -> (usize, TaskTag, ScsiCommand) {
        self.users += 1;
        self.submit(write(&self.pool, self.users, 0, &pattern(len as usize)))
    }

    /// Begins a command that sends as many bytes as it receives.
    pub(crate) fn exchange(&mut self, len: u32) -> (usize, TaskTag, ScsiCommand) {
        self.users += 1;
        self.submit(exchange(&self.pool, self.users, 0, len, &pattern(len as usize), len))
    }

    fn submit(&mut self, command: lunette_session::iscsi_initiator::Command) -> (usize, TaskTag, ScsiCommand) {
        let tag = self.session.submit(command, self.now).expect("there is room");
        self.listen();
        let wire = (0..self.wires.len()).find(|wire| !self.is_silent(*wire)).expect("it was sent");
        (wire, tag, self.command(wire))
    }

    pub(crate) fn command(&mut self, wire: usize) -> ScsiCommand {
        let sent = self.next(wire);
        let InitiatorPdu::ScsiCommand(pdu) = sent.pdu else { panic!("{sent:?} is no command") };
        pdu
    }

    /// A logout for recovery of another connection.
    pub(crate) fn logout(&mut self, wire: usize) -> LogoutRequest {
        let sent = self.next(wire);
        let InitiatorPdu::LogoutRequest(pdu) = sent.pdu else { panic!("{sent:?} is no logout") };
        assert_eq!(pdu.reason, LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY);
        assert!(pdu.immediate, "the window may be closed by what was lost");
        pdu
    }

    pub(crate) fn task_management(&mut self, wire: usize) -> TaskManagementRequest {
        let sent = self.next(wire);
        let InitiatorPdu::TaskManagementRequest(pdu) = sent.pdu else { panic!("{sent:?} is no task management") };
        pdu
    }

    pub(crate) fn reassign(&mut self, wire: usize) -> TaskManagementRequest {
        let pdu = self.task_management(wire);
        assert_eq!(pdu.function, TaskManagementFunction::TASK_REASSIGN);
        assert!(pdu.immediate, "RFC 7143 section 11.5.1");
        pdu
    }

    // What the target says.

    /// The numbers of a PDU that uses up no StatSN.
    pub(crate) fn unused(&self, wire: usize) -> Numbers {
        Numbers::new(self.wires[wire].stat_sn, self.exp_cmd_sn)
    }

    /// The numbers of a PDU that uses up a StatSN.
    pub(crate) fn used(&mut self, wire: usize) -> Numbers {
        let numbers = self.unused(wire);
        self.wires[wire].stat_sn = numbers.stat_sn.next();
        numbers
    }

    pub(crate) fn stat_sn(&mut self, wire: usize) -> SerialNumber {
        self.used(wire).stat_sn
    }

    pub(crate) fn send(&mut self, wire: usize, bhs: [u8; BHS_LEN], data: &[u8]) {
        self.raw(wire, &Format::PLAIN.encode(&bhs, &[], data));
    }

    pub(crate) fn raw(&mut self, wire: usize, mut bytes: &[u8]) {
        let cid = self.wires[wire].cid;
        while let Some(event) = self.session.next_event(cid, &mut bytes, self.now) {
            self.events.push_back(event);
        }
        self.listen();
    }

    /// Reads what the initiator has sent, on all connections.
    fn listen(&mut self) {
        for index in 0..self.wires.len() {
            let Wire { cid, stream, sent, .. } = &mut self.wires[index];
            while self.session.has_output(*cid) {
                let before = stream.len();
                self.session.slices(*cid).for_each(|slice| stream.extend_from_slice(slice));
                self.session.sent(*cid, stream.len() - before);
            }
            while let Some(frame) = Format::PLAIN.take(stream) {
                sent.push_back(frame.into());
            }
        }
    }

    /// The stream of a connection ends.
    pub(crate) fn cut(&mut self, wire: usize) {
        let cid = self.wires[wire].cid;
        self.session.disconnected(cid, self.now);
        self.raw(wire, &[]);
        let event = self.events.pop_front();
        assert!(matches!(event, Some(Event::Closed { cid: known, .. }) if known == cid), "{event:?}");
    }

    pub(crate) fn answer_logout(&mut self, wire: usize, request: &LogoutRequest, response: LogoutResponseCode) {
        let pdu = LogoutResponse { response, ..self.logout_response(wire, request) };
        self.send(wire, pdu.emit(), &[]);
    }

    pub(crate) fn logout_response(&mut self, wire: usize, request: &LogoutRequest) -> LogoutResponse {
        LogoutResponse { time2retain: 20, ..self.used(wire).logout_response(request.itt) }
    }

    pub(crate) fn answer_task_management(
        &mut self,
        wire: usize,
        request: &TaskManagementRequest,
        response: TaskManagementResponseCode,
    ) {
        let pdu = self.used(wire).task_management_response(request.itt, response);
        self.send(wire, pdu.emit(), &[]);
    }

    /// Data-In of the pattern; with the status when it is the last.
    pub(crate) fn data_in(
        &mut self,
        wire: usize,
        itt: InitiatorTaskTag,
        data_sn: u32,
        offset: u32,
        len: usize,
        last: bool,
    ) {
        let bytes = self.data_in_bytes(wire, itt, data_sn, offset, len, last);
        self.raw(wire, &bytes);
    }

    pub(crate) fn data_in_bytes(
        &mut self,
        wire: usize,
        itt: InitiatorTaskTag,
        data_sn: u32,
        offset: u32,
        len: usize,
        last: bool,
    ) -> Vec<u8> {
        let status = last.then(|| self.used(wire).good(Residual::None));
        let pdu = DataIn { status, ..self.unused(wire).data_in(itt, data_sn, offset, len) };
        let offset = offset as usize;
        [&pdu.emit()[..], &pattern(offset + len)[offset..]].concat()
    }

    pub(crate) fn r2t(&mut self, wire: usize, itt: InitiatorTaskTag, r2t_sn: u32, offset: u32, len: u32) {
        let pdu = R2t { lun: LUN, ..self.unused(wire).r2t(itt, r2t_sn, offset, len) };
        self.send(wire, pdu.emit(), &[]);
    }

    /// A NOP-In that wants no answer.
    pub(crate) fn sign_of_life(&mut self, wire: usize) {
        let pdu = self.unused(wire).ping(TargetTransferTag::RESERVED);
        self.send(wire, pdu.emit(), &[]);
    }

    /// Answers a command with GOOD.
    pub(crate) fn respond(&mut self, wire: usize, itt: InitiatorTaskTag) {
        let pdu = self.used(wire).scsi_response(itt);
        self.send(wire, pdu.emit(), &[]);
    }

    // What comes of it.

    pub(crate) fn event(&mut self) -> Event {
        self.events.pop_front().expect("an event")
    }

    /// The next event is the end of a command, with its data whole. Gives its name.
    pub(crate) fn completed(&mut self) -> u64 {
        let Event::Completed { command, response } = self.event() else { panic!("no command ended") };
        assert_eq!((response.response, response.status), (0, 0));
        if let Some(data) = command.data_in {
            assert_eq!(response.data_in_len, data.len());
            assert!(data[..] == pattern(data.len()), "the bytes of command {}", command.user);
        }
        command.user
    }

    /// The session is over.
    pub(crate) fn over(&self) -> &SessionError {
        self.session.why_over().expect("the session is over")
    }

    /// Lets time pass, doing what is due on the way.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.session.next_timeout().filter(|at| *at <= end) {
            assert!(at >= self.now, "a timeout lies in the past");
            self.now = at;
            self.session.time_has_come(self.now);
            for wire in 0..self.wires.len() {
                self.raw(wire, &[]);
            }
        }
        self.now = end;
    }
}
