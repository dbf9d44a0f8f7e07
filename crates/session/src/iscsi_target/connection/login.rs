//! A connection that logs in: from its first bytes to its place in a session, or to its end.

use std::collections::VecDeque;
use std::sync::Arc;

use lunette_buffer::{Payload, PayloadRef};
use lunette_pdu::{LoginRequest, LoginStatus, Opcode};

use super::progress::Progress;
use super::{Connection, Phase};
use crate::held::Held;
use crate::iscsi_target::admit_request::AdmitRequest;
use crate::iscsi_target::connection_config::ConnectionConfig;
use crate::iscsi_target::directory::Directory;
use crate::iscsi_target::event::CloseReason;
use crate::iscsi_target::expect::Expect;
use crate::iscsi_target::full_feature::FullFeature;
use crate::iscsi_target::login::{Login, LoginClaims, Refusal, Step, refused};
use crate::iscsi_target::session_info::SessionInfo;
use crate::iscsi_target::tasks::window::CommandWindow;
use crate::iscsi_target::transport::sender::Sender;
use crate::keys::Digest;
use crate::limits::{LOGIN_DATA_SEGMENT_BYTES, MAX_LOGIN_BYTES, MAX_OUTBOX_OWNED_BYTES, MAX_OUTBOX_PDUS};
use crate::markers::MarkedReceiver;
use crate::receiver::{Receiver, Stage};
use crate::{OutgoingPdu, Time, Timers, Traffic};

/// Something that the driver has to deal with before it calls the connection again.
#[derive(Debug)]
pub enum LoginEvent {
    /// The login has passed all stages: [admit](crate::iscsi_target::Sessions::admit) it, or
    /// [refuse](LoginConnection::refuse) it.
    Admit(Box<AdmitRequest>),
    /// The connection is over. Send what is ready, and close it.
    Close(CloseReason),
}

/// A connection from its beginning to the end of its login, when it [enters](crate::iscsi_target::Sessions::enter) a
/// session.
pub struct LoginConnection {
    receiver: MarkedReceiver,
    sender: Sender,
    /// `None` when the connection is over.
    login: Option<Box<Login>>,
    /// The request whose data segment is being received.
    request: Option<LoginRequest>,
    segment: Vec<u8>,
    events: VecDeque<LoginEvent>,
    /// Bytes that came while the connection could not take them.
    held: Held,
    timers: Timers,
    began: Time,
    deadline: Time,
    /// The claims of a login that is over.
    claims: LoginClaims,
}

impl LoginConnection {
    /// A connection that has just been accepted.
    pub fn new(config: ConnectionConfig, now: Time) -> Self {
        let timers = config.timers;
        Self {
            receiver: Receiver::new(LOGIN_DATA_SEGMENT_BYTES).into(),
            sender: Sender::new(config.entropy.first_serial_number()),
            login: Some(Box::new(Login::new(config))),
            request: None,
            segment: Vec::new(),
            events: VecDeque::new(),
            held: Held::default(),
            timers,
            began: now,
            deadline: now + timers.login,
            claims: LoginClaims::default(),
        }
    }

    /// The certificate of the peer has these identities, as [`Origin::identities`](super::super::Origin::identities)
    /// has them. Said before the first bytes come.
    pub fn set_identities(&mut self, identities: Arc<[String]>) {
        if let Some(login) = &mut self.login {
            login.set_identities(identities);
        }
    }

    /// Consumes bytes from the front of `input` up to the next event. `None`: everything is consumed, or the connection
    /// waits for its driver; [`hold`](Self::hold) what is left then.
    pub fn next_event(&mut self, input: &mut &[u8]) -> Option<LoginEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.login.is_some() && !self.wants_input() && self.login_bytes() + input.len() > MAX_LOGIN_BYTES {
                let most = MAX_LOGIN_BYTES;
                let why = format!("more than {most} bytes came before the answer to earlier ones was read");
                self.close(CloseReason::Protocol(why));
                continue;
            }
            if self.login.is_none() {
                *input = &[];
                self.held = Held::default();
            }
            if !self.wants_input() {
                return None;
            }
            let held = std::mem::take(&mut self.held);
            let (moved, held) = held.consume(input, |bytes| self.advance(bytes));
            self.held = held;
            if !moved {
                return None;
            }
        }
    }

    /// Keeps bytes that [`next_event`](Self::next_event) left over. They come before any later input.
    pub fn hold(&mut self, rest: &[u8]) {
        self.held.push(rest);
    }

    /// Whether more bytes can be taken now. While it is false, the driver does not read from the socket.
    pub fn wants_input(&self) -> bool {
        let outbox = &self.sender.outbox;
        let is_full = outbox.pdus() > MAX_OUTBOX_PDUS || outbox.owned_bytes() > MAX_OUTBOX_OWNED_BYTES;
        !is_full && self.login.as_ref().is_some_and(|login| login.waiting().is_none())
    }

    /// The bytes that are ready to be sent, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.sender.outbox.slices()
    }

    /// The pieces to be sent, as a [`Connection`] gives them.
    pub fn pieces(&self) -> impl Iterator<Item = PayloadRef<'_>> {
        self.sender.outbox.pieces()
    }

    /// The first `len` of these bytes are on their way.
    pub fn sent(&mut self, len: usize) {
        self.sender.outbox.sent(len);
    }

    /// The next PDU, as a [`Connection`] gives it.
    pub fn take_pdu(&mut self) -> Option<OutgoingPdu> {
        self.sender.outbox.take_pdu()
    }

    /// Whether bytes are [held](Self::hold): nothing else is due before them.
    pub fn holds_bytes(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether there is anything to send.
    pub fn has_output(&self) -> bool {
        !self.sender.outbox.is_empty()
    }

    /// The traffic since the last call.
    pub fn take_traffic(&mut self) -> Traffic {
        Traffic { sent_pdus: self.sender.outbox.take_queued_pdus(), ..self.receiver.take_traffic() }
    }

    /// When [`time_has_come`](Self::time_has_come) wants to be called; `None` when the connection is over.
    pub fn next_timeout(&self) -> Option<Time> {
        self.login.as_ref().map(|_| self.deadline)
    }

    /// Does what is due at `now`.
    pub fn time_has_come(&mut self, now: Time) {
        if self.deadline <= now {
            self.close(CloseReason::LoginTimeout);
        }
    }

    /// When the connection was accepted.
    pub fn began(&self) -> Time {
        self.began
    }

    /// The names that the initiator has given so far, also when the login has failed.
    pub fn claims(&self) -> &LoginClaims {
        self.login.as_ref().map_or(&self.claims, |login| login.claims())
    }

    /// The targets that the login began with; `None` when the connection is over. See [`Directory::recheck`].
    pub fn directory(&self) -> Option<&Arc<Directory>> {
        self.login.as_ref().map(|login| login.directory())
    }

    /// Bytes that the unfinished login keeps; 0 after its end.
    pub fn login_bytes(&self) -> usize {
        let Some(login) = &self.login else { return 0 };
        login.text_bytes() + self.segment.len() + self.held.rest().len() + self.sender.outbox.owned_bytes()
    }

    /// Refuses the login that asked for it.
    pub fn refuse(&mut self, status: LoginStatus) {
        if let Some(request) = self.login.as_ref().and_then(|login| login.waiting()) {
            self.end(&request, Refusal::new(status, status.to_string()));
        }
    }

    /// Ends the connection: nothing is waited for any more.
    pub fn stop(&mut self) {
        self.close(CloseReason::LogoutTimeout);
    }

    pub(crate) fn timers(&self) -> Timers {
        self.timers
    }

    /// Lets the login that asked for it into `session`. `None` when the connection is over.
    pub(crate) fn admitted(
        mut self,
        session: &Arc<SessionInfo>,
        window: &mut CommandWindow,
        now: Time,
    ) -> Option<Connection> {
        let mut login = self.login.take()?;
        let (mut response, text) = login.admitted(session.tsih, window.numbers())?;
        let full = FullFeature::new(&mut login, session)?;
        response.stat_sn = self.sender.next_stat_sn();
        response.data_segment_len = text.len();
        self.sender.outbox.push(response.emit(), Payload::from(text));
        let parameters = full.parameters();
        let digests = (parameters.header_digest == Digest::Crc32c, parameters.data_digest == Digest::Crc32c);
        self.receiver.configure(digests.0, digests.1, parameters.recv_data_segment_len);
        self.sender.outbox.configure(digests.0, digests.1);
        if parameters.error_recovery_level > 0 {
            self.sender.retain();
        }
        let markers = parameters.marker_intervals();
        self.receiver.start_markers(markers.out, parameters.error_recovery_level > 0);
        let is_marked = markers.out.is_some() || markers.in_.is_some();
        let loses_pdus = is_marked && parameters.error_recovery_level > 0;
        self.sender.outbox.start_markers(markers.in_);
        Some(Connection {
            receiver: self.receiver,
            sender: self.sender,
            phase: Phase::FullFeature(Box::new(full)),
            expect: Expect::Nothing,
            segment: self.segment,
            events: VecDeque::new(),
            held: self.held,
            resting: None,
            timers: self.timers,
            deadline: None,
            last_received: now,
            gap_ends: None,
            room_due: None,
            loses_pdus,
            data_due: None,
            progress: Progress::default(),
        })
    }

    // Inside.

    /// Moves on by one header or one data segment. False when that needs more bytes.
    fn advance(&mut self, input: &mut &[u8]) -> bool {
        let moved = match self.receiver.stage() {
            Stage::Header => self.receiver.header(input),
            Stage::Data => self.receiver.data(input, &mut self.segment),
        };
        match (moved, self.request.take_if(|_| self.receiver.stage() == Stage::Header)) {
            (Ok(false), _) => return false,
            (Ok(true), Some(request)) => {
                let segment = std::mem::take(&mut self.segment);
                self.login_request(&request, &segment);
            }
            (Ok(true), None) => self.header(),
            (Err(error), _) => self.close(CloseReason::Protocol(error.to_string())),
        }
        true
    }

    /// Before the login has ended, nothing but a login request is listened to.
    fn header(&mut self) {
        let bhs = self.receiver.bhs();
        if bhs.opcode() != Opcode::LOGIN_REQUEST {
            let why = format!("{} before the login", bhs.opcode());
            return self.close(CloseReason::Protocol(why));
        }
        match LoginRequest::parse(bhs) {
            Ok(request) => {
                self.segment.resize(bhs.data_segment_len(), 0);
                self.request = Some(request);
            }
            Err(error) => self.close(CloseReason::Protocol(error.to_string())),
        }
    }

    fn login_request(&mut self, request: &LoginRequest, data: &[u8]) {
        let Some(login) = &mut self.login else { return };
        match login.request(request, data) {
            Ok(Step::Reply(mut response, text)) => {
                response.stat_sn = self.sender.next_stat_sn();
                response.data_segment_len = text.len();
                self.sender.outbox.push(response.emit(), Payload::from(text));
            }
            Ok(Step::Admit(admit)) => self.events.push_back(LoginEvent::Admit(admit)),
            Err(refusal) => self.end(request, refusal),
        }
    }

    fn end(&mut self, request: &LoginRequest, refusal: Refusal) {
        let mut response = refused(request, refusal.status);
        response.stat_sn = self.sender.next_stat_sn();
        response.data_segment_len = refusal.keys.len();
        self.sender.outbox.push(response.emit(), Payload::from(refusal.keys));
        self.close(CloseReason::LoginRefused(refusal.why));
    }

    fn close(&mut self, reason: CloseReason) {
        if let Some(login) = self.login.take() {
            self.claims = login.claims().clone();
            self.held = Held::default();
            self.events.push_back(LoginEvent::Close(reason));
        }
    }
}
