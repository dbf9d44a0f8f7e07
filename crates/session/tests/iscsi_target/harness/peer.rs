//! The initiator, played by hand.

use std::collections::VecDeque;
use std::time::Duration;

use lunette_pdu::text::pairs;
use lunette_pdu::{
    AsyncMessage, BHS_LEN, Cid, DataIn, DataOut, LoginRequest, LoginResponse, LogoutRequest, LogoutResponse, NopIn,
    NopOut, R2t, Reject, RejectReason, ScsiCommand, ScsiResponse, SerialNumber, TargetPdu, TaskManagementRequest,
    TaskManagementResponse, TextRequest, TextResponse,
};
use lunette_session::Time;
use lunette_session::iscsi_target::CloseReason;
use lunette_testkit::requests::solicited;

use super::checker::{Checker, Received};
use super::driver::{Cut, Driver};
use super::requests::{login_request, text};
use super::setup::{INITIATOR, Setup, TARGET};

pub(crate) struct Peer {
    pub(crate) driver: Driver,
    /// The CID of its login.
    pub(crate) cid: Cid,
    pub(crate) checker: Checker,
    /// The CmdSN of the next non-immediate request.
    pub(crate) cmd_sn: SerialNumber,
    /// While false, what the target sends stays in its outbox.
    pub(crate) reads: bool,
    /// Bytes that the network takes from the target in one go.
    pub(crate) out_piece: usize,
    /// The number that the initiator says that it expects; `None`: the next StatSN, so that all is acknowledged.
    pub(crate) holds_back: Option<SerialNumber>,
    received: VecDeque<Received>,
    /// Everything that the target has sent.
    pub(crate) transcript: Vec<u8>,
}

/// The next PDU, which has to be of that kind, and its data segment.
macro_rules! next_of_kind {
    ($($name:ident => $kind:ident;)*) => {
        $(pub(crate) fn $name(&mut self) -> ($kind, Vec<u8>) {
            match self.next() {
                Received { pdu: TargetPdu::$kind(pdu), data } => (pdu, data),
                other => panic!("{other:?} is no {}", stringify!($kind)),
            }
        })*
    };
}

impl Peer {
    /// A connection before its login.
    pub(crate) fn connect(setup: Setup) -> Self {
        let now = Time::new(Duration::from_secs(1000));
        let cmd_sn = SerialNumber(setup.first_cmd_sn);
        Self {
            driver: Driver::new(setup.connection(now), now),
            cid: login_request().cid,
            checker: Checker::new(),
            cmd_sn,
            reads: true,
            out_piece: usize::MAX,
            holds_back: None,
            received: VecDeque::new(),
            transcript: Vec::new(),
        }
    }

    /// A connection in the full feature phase of a normal session.
    pub(crate) fn logged_in(setup: Setup) -> Self {
        let keys = [&[("TargetName", TARGET)], &setup.keys[..]].concat();
        Self::logged_in_with(setup, &keys)
    }

    /// A connection in the full feature phase of a discovery session.
    pub(crate) fn discovering(setup: Setup) -> Self {
        let keys = [&[("SessionType", "Discovery")], &setup.keys[..]].concat();
        Self::logged_in_with(setup, &keys)
    }

    fn logged_in_with(setup: Setup, keys: &[(&str, &str)]) -> Self {
        let mut peer = Self::connect(setup);
        peer.login(login_request(), &text(&[&[("InitiatorName", INITIATOR)], keys].concat()));
        let (response, _) = peer.login_response();
        assert!(response.transit && response.status.is_success(), "{response:?}");
        peer
    }

    pub(crate) fn cut(mut self, cut: Cut) -> Self {
        self.driver.cut = cut;
        self
    }

    pub(crate) fn manual(mut self) -> Self {
        self.driver.automatic = false;
        self
    }

    // Requests. Numbers and lengths are filled in; a non-immediate request uses up a CmdSN.

    fn number(&mut self, immediate: bool) -> SerialNumber {
        let cmd_sn = self.cmd_sn;
        if !immediate {
            self.cmd_sn = cmd_sn.next();
        }
        cmd_sn
    }

    fn exp_stat_sn(&self) -> SerialNumber {
        self.holds_back.or(self.checker.stat_sn).unwrap_or_default()
    }

    pub(crate) fn login(&mut self, request: LoginRequest, data: &[u8]) {
        for (key, value) in pairs(data).flatten().filter(|(key, _)| *key == "MaxRecvDataSegmentLength") {
            self.checker.max_segment_len = value.parse().unwrap_or_else(|_| panic!("{key}={value}"));
        }
        self.cid = request.cid;
        let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn());
        self.send(LoginRequest { cmd_sn, exp_stat_sn, data_segment_len: data.len(), ..request }.emit(), data);
    }

    pub(crate) fn command(&mut self, command: ScsiCommand, data: &[u8]) {
        let cmd_sn = self.number(command.immediate);
        self.command_numbered(ScsiCommand { cmd_sn, ..command }, &[], data);
    }

    /// A command that brings its own CmdSN, and additional header segments.
    pub(crate) fn command_numbered(&mut self, command: ScsiCommand, ahs: &[u8], data: &[u8]) {
        self.checker.task_sent(command.itt, command.read && command.write);
        let exp_stat_sn = self.exp_stat_sn();
        let command = ScsiCommand { exp_stat_sn, ahs_len: ahs.len(), data_segment_len: data.len(), ..command };
        let bytes = self.frame(command.emit(), ahs, data);
        self.raw(&bytes);
    }

    pub(crate) fn data_out(&mut self, pdu: DataOut, data: &[u8]) {
        let pdu = DataOut { exp_stat_sn: self.exp_stat_sn(), data_segment_len: data.len(), ..pdu };
        self.checker.data_sent(&pdu);
        self.send(pdu.emit(), data);
    }

    /// Answers an R2T from `source`, the task's whole data, in PDUs of up to `pdu_len` bytes.
    pub(crate) fn answer(&mut self, r2t: &R2t, source: &[u8], pdu_len: usize) {
        for pdu in solicited(r2t, pdu_len) {
            let from = pdu.buffer_offset as usize;
            self.data_out(pdu, &source[from..from + pdu.data_segment_len]);
        }
    }

    pub(crate) fn nop_out(&mut self, nop: NopOut, data: &[u8]) {
        let (cmd_sn, exp_stat_sn) = (self.number(nop.immediate), self.exp_stat_sn());
        self.send(NopOut { cmd_sn, exp_stat_sn, data_segment_len: data.len(), ..nop }.emit(), data);
    }

    pub(crate) fn text(&mut self, request: TextRequest, data: &[u8]) {
        let (cmd_sn, exp_stat_sn) = (self.number(request.immediate), self.exp_stat_sn());
        self.send(TextRequest { cmd_sn, exp_stat_sn, data_segment_len: data.len(), ..request }.emit(), data);
    }

    pub(crate) fn task_management(&mut self, request: TaskManagementRequest) {
        let (cmd_sn, exp_stat_sn) = (self.number(request.immediate), self.exp_stat_sn());
        self.send(TaskManagementRequest { cmd_sn, exp_stat_sn, ..request }.emit(), &[]);
    }

    pub(crate) fn logout(&mut self, request: LogoutRequest) {
        let (cmd_sn, exp_stat_sn) = (self.number(request.immediate), self.exp_stat_sn());
        self.send(LogoutRequest { cmd_sn, exp_stat_sn, ..request }.emit(), &[]);
    }

    /// Any header with any data segment; pad and digests are made for it.
    pub(crate) fn send(&mut self, bhs: [u8; BHS_LEN], data: &[u8]) {
        let bytes = self.frame(bhs, &[], data);
        self.raw(&bytes);
    }

    /// A PDU as it stands on the wire.
    pub(crate) fn frame(&self, bhs: [u8; BHS_LEN], ahs: &[u8], data: &[u8]) -> Vec<u8> {
        self.checker.format.encode(&bhs, ahs, data)
    }

    /// Sends any bytes.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.driver.feed(bytes);
        self.collect();
    }

    // Answers.

    /// Reads what the target has to say, and lets it go on.
    pub(crate) fn collect(&mut self) {
        self.driver.pump();
        while self.reads && self.driver.has_output() {
            let bytes = self.driver.take_output(self.out_piece);
            self.transcript.extend_from_slice(&bytes);
            self.received.extend(self.checker.feed(&bytes, self.cmd_sn));
            self.driver.pump();
        }
        if self.reads {
            assert!(self.checker.is_at_boundary(), "half a PDU in the outbox");
        }
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, span: Duration) {
        self.driver.pass(span);
        self.collect();
    }

    pub(crate) fn next(&mut self) -> Received {
        self.collect();
        self.received.pop_front().unwrap_or_else(|| panic!("no answer; closed: {:?}", self.driver.closed))
    }

    /// The PDUs that have not been looked at.
    pub(crate) fn rest(&mut self) -> Vec<Received> {
        self.collect();
        self.received.drain(..).collect()
    }

    /// Nothing has come, and the connection stands.
    pub(crate) fn silence(&mut self) {
        assert_eq!(self.rest(), []);
        assert_eq!(self.driver.closed, None);
    }

    next_of_kind! {
        login_response => LoginResponse;
        scsi_response => ScsiResponse;
        data_in => DataIn;
        r2t => R2t;
        nop_in => NopIn;
        text_response => TextResponse;
        task_management_response => TaskManagementResponse;
        logout_response => LogoutResponse;
        async_message => AsyncMessage;
        reject => Reject;
    }

    /// A Reject for this reason comes next.
    pub(crate) fn rejected(&mut self, reason: RejectReason) {
        assert_eq!(self.reject().0.reason, reason);
    }

    /// A Reject for this reason comes next, and nothing after it: the connection is over.
    pub(crate) fn cut_off(&mut self, reason: RejectReason) -> String {
        self.rejected(reason);
        self.broken()
    }

    /// The connection has ended over a broken rule; nothing more is to be read.
    pub(crate) fn broken(&mut self) -> String {
        assert_eq!(self.rest(), []);
        match self.driver.closed.clone() {
            Some(CloseReason::Protocol(why)) => why,
            other => panic!("{other:?} is no protocol error"),
        }
    }
}
