//! One connection of the target: the driver's face of the protocol. See the crate's documentation for the contract.

mod recovery;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::Buffer;
use lunette_pdu::{
    InitiatorTaskTag, LoginRequest, LoginStatus, LogoutResponseCode, LunField, NopOut, Opcode, RejectReason,
    ScsiCommand, SerialNumber, TaskManagementResponseCode, TextRequest,
};

pub use self::recovery::KnownTask;
use super::directory::Directory;
use super::event::{CloseReason, Event, Response, TaskTag};
use super::full_feature::FullFeature;
use super::login::{Login, Refusal, Step, refused};
pub(crate) use super::sender::Sender;
use super::session::Session;
use crate::held::Held;
use crate::keys::Digest;
use crate::limits::{
    ACKNOWLEDGE_TIMEOUT, COMMAND_GAP_TIMEOUT, DATA_OUT_TIMEOUT, LOGIN_DATA_SEGMENT_BYTES, MAX_OUTBOX_OWNED_BYTES,
    MAX_OUTBOX_PDUS,
};
use crate::outbox::Piece;
use crate::outbox::Segment;
use crate::receiver::{FrameError, Receiver, Stage};
use crate::{Entropy, Time, Timers, Traffic};

/// What a connection needs to know of where it came in.
#[derive(Clone)]
pub struct ConnectionConfig {
    /// The targets, as they are now.
    pub directory: Arc<Directory>,
    /// Our address on this connection.
    pub local: SocketAddr,
    /// The portal group of the portal.
    pub portal_group: u16,
    /// How long to wait.
    pub timers: Timers,
    /// Fresh random bytes.
    pub entropy: Entropy,
}

/// What the data segment of the header that has just been read is for.
pub(crate) enum Expect {
    /// Nothing; it is dropped.
    Nothing,
    /// Keys.
    Login(LoginRequest),
    /// Keys.
    Text(TextRequest),
    /// An echo.
    Ping(NopOut),
    /// Bytes `offset..offset + len` of a task.
    Data { task: TaskTag, offset: u32, len: u32 },
    /// The same, but nobody can take them now. They will be asked for again.
    Lost { task: TaskTag, offset: u32, len: u32 },
    /// Immediate data of a command that does not count before its data is verified.
    Command(ScsiCommand),
}

/// A rule that the initiator broke.
#[derive(Debug)]
pub(crate) struct Violation {
    /// The reason for a Reject PDU; `None` when the PDU cannot be trusted enough to be quoted.
    pub(crate) reject: Option<RejectReason>,
    /// Whether the connection can go on.
    pub(crate) fatal: bool,
    pub(crate) why: String,
    /// For the Reject of a SNACK: the number that the next PDU of its kind would have (RFC 7143 section 11.17.2).
    pub(crate) data_sn: u32,
}

impl Violation {
    /// At recovery level 0 a broken rule costs the connection (RFC 7143 section 7.1.5).
    pub(crate) fn fatal(reason: RejectReason, why: impl Into<String>) -> Self {
        Self { reject: Some(reason), fatal: true, why: why.into(), data_sn: 0 }
    }

    /// The PDU is refused; nothing else happens.
    pub(crate) fn harmless(reason: RejectReason, why: impl Into<String>) -> Self {
        Self { reject: Some(reason), fatal: false, why: why.into(), data_sn: 0 }
    }
}

impl From<FrameError> for Violation {
    fn from(error: FrameError) -> Self {
        let reject = match error {
            FrameError::HeaderDigest => None,
            FrameError::DataDigest => Some(RejectReason::DATA_DIGEST_ERROR),
            FrameError::TooLong(_) => Some(RejectReason::PROTOCOL_ERROR),
        };
        Self { reject, fatal: true, why: error.to_string(), data_sn: 0 }
    }
}

enum Phase {
    Login(Box<Login>),
    FullFeature(Box<FullFeature>),
    /// The stream is lost; the tasks wait for another connection.
    Suspended(Box<FullFeature>),
    Closed,
}

/// One connection of the target.
pub struct Connection {
    receiver: Receiver,
    sender: Sender,
    phase: Phase,
    expect: Expect,
    /// Data segments of PDUs that are not for a task.
    segment: Vec<u8>,
    events: VecDeque<Event>,
    /// Bytes that came while the connection could not take them.
    held: Held,
    timers: Timers,
    deadline: Option<(Time, CloseReason)>,
    last_received: Time,
    /// When commands that wait for others have waited too long.
    gap_ends: Option<Time>,
    /// When data before this status number is kept no longer: others wait for its buffers.
    room_due: Option<(Time, SerialNumber)>,
    /// Whether PDUs may be lost unseen: a damaged header costs all that comes before the next marker's PDU.
    loses_pdus: bool,
    /// When it is looked for data that is overdue.
    data_due: Option<Time>,
}

impl Connection {
    /// A connection that has just been accepted.
    pub fn new(config: ConnectionConfig, now: Time) -> Self {
        let ConnectionConfig { directory, local, portal_group, timers, entropy } = config;
        Self {
            receiver: Receiver::new(LOGIN_DATA_SEGMENT_BYTES),
            sender: Sender::new(entropy.first_serial_number()),
            phase: Phase::Login(Box::new(Login::new(directory, local, portal_group, entropy))),
            expect: Expect::Nothing,
            segment: Vec::new(),
            events: VecDeque::new(),
            held: Held::default(),
            timers,
            deadline: Some((now + timers.login, CloseReason::LoginTimeout)),
            last_received: now,
            gap_ends: None,
            room_due: None,
            loses_pdus: false,
            data_due: None,
        }
    }

    // Bytes in.

    /// Consumes bytes from the front of `input` up to the next event. `None`: everything is consumed, or the connection
    /// waits for its driver; [`hold`](Self::hold) what is left then.
    pub fn next_event(&mut self, input: &mut &[u8], now: Time) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.deliver_early(now) {
                continue;
            }
            if !self.wants_input() {
                if matches!(self.phase, Phase::Closed | Phase::Suspended(_)) {
                    *input = &[];
                    self.held = Held::default();
                    self.await_recovery(now);
                }
                return None;
            }
            if !self.consume(input, now) {
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
        matches!(self.phase, Phase::Login(_) | Phase::FullFeature(_))
            && !self.waits_for_driver()
            && !self.outbox_is_full()
    }

    /// The task whose data is next in the stream, while nobody has said where it goes: until then nothing is read.
    pub fn stopped_by(&self) -> Option<TaskTag> {
        match (&self.phase, &self.expect) {
            (Phase::FullFeature(full), Expect::Data { task, .. }) if self.receiver.stage() == Stage::Data => {
                Some(*task).filter(|task| full.is_undecided(*task))
            }
            (Phase::FullFeature(full), _) => full.brought_data(),
            _ => None,
        }
    }

    /// Where the next bytes should be received into, when they belong to a large data segment.
    pub fn direct(&mut self) -> Option<&mut [u8]> {
        if !self.held.is_empty() {
            return None;
        }
        let Phase::FullFeature(full) = &mut self.phase else { return None };
        self.receiver.direct(full.place(&self.expect))
    }

    /// `len` bytes were received where [`direct`](Self::direct) said.
    pub fn direct_received(&mut self, len: usize, now: Time) {
        self.heard(now);
        if let Phase::FullFeature(full) = &mut self.phase {
            self.receiver.direct_filled(full.place(&self.expect), len);
        }
    }

    // Bytes out.

    /// What is ready to be sent, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.sender.outbox.slices()
    }

    /// The same with what is sent from files, for a driver that has given such data: see
    /// [`sends_files`](Self::sends_files).
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        self.sender.outbox.pieces()
    }

    /// Whether [`Response::data_in_file`] may be used: nobody has to look at the bytes, now (a digest, markers) or later (to
    /// send them again).
    pub fn sends_files(&self) -> bool {
        let Phase::FullFeature(full) = &self.phase else { return false };
        full.parameters().data_digest == Digest::None
            && full.parameters().error_recovery_level == 0
            && !self.sender.outbox.has_markers()
    }

    /// The first `len` of these bytes are on their way.
    pub fn sent(&mut self, len: usize) {
        self.sender.outbox.sent(len);
    }

    /// Whether there is anything to send.
    pub fn has_output(&self) -> bool {
        !self.sender.outbox.is_empty()
    }

    /// Bytes of data segments that wait to be sent: what a peer that does not read keeps from others.
    pub fn queued_bytes(&self) -> usize {
        self.sender.outbox.segment_bytes()
    }

    /// The same, and bytes that were sent and may have to be sent again: at recovery level 1 and above, data is kept until
    /// the initiator acknowledges it.
    pub fn kept_bytes(&self) -> usize {
        self.sender.kept_bytes()
    }

    /// Bytes of the pool that the answers of a suspended connection keep until they are taken over. A buffer
    /// counts as a whole, however few of its bytes are wanted.
    pub fn suspended_bytes(&self) -> usize {
        let Phase::Suspended(full) = &self.phase else { return 0 };
        full.kept_bytes() + self.sender.pooled_bytes()
    }

    /// What has been moved since this was asked last.
    pub fn take_traffic(&mut self) -> Traffic {
        Traffic { sent_pdus: self.sender.outbox.take_queued_pdus(), ..self.receiver.take_traffic() }
    }

    // Time.

    /// When [`time_has_come`](Self::time_has_come) wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        let ping = match &self.phase {
            Phase::FullFeature(_) if self.deadline.is_none() => Some(self.last_received + self.timers.ping_after),
            _ => None,
        };
        let deadline = self.deadline.as_ref().map(|(at, _)| *at);
        let room = self.room_due.map(|(at, _)| at);
        ping.into_iter().chain(deadline).chain(self.gap_ends).chain(room).chain(self.data_due).min()
    }

    /// Does what is due at `now`.
    pub fn time_has_come(&mut self, now: Time) {
        if let Some((_, before)) = self.room_due.take_if(|(at, _)| *at <= now)
            && let Some(retained) = self.sender.retained()
        {
            retained.forget_data_before(before);
        }
        if self.data_due.take_if(|at| *at <= now).is_some()
            && let Phase::FullFeature(full) = &mut self.phase
            && full.ask_for_overdue(&mut self.sender, &mut self.events)
        {
            self.data_due = Some(now + DATA_OUT_TIMEOUT);
        }
        if self.gap_ends.is_some_and(|at| at <= now) {
            return self.close(CloseReason::Gap);
        }
        if let Some((_, reason)) = self.deadline.take_if(|(at, _)| *at <= now) {
            if reason == CloseReason::PingTimeout && self.waits_for_driver() {
                // The answer may lie behind bytes that we do not take. That is our silence, not the initiator's.
                self.deadline = Some((now + self.timers.ping_answer, reason));
            } else {
                self.close(reason);
            }
            return;
        }
        if self.next_timeout().is_none_or(|at| at > now) || self.deadline.is_some() {
            return;
        }
        if let Phase::FullFeature(full) = &mut self.phase {
            full.ping(&mut self.sender);
            self.deadline = Some((now + self.timers.ping_answer, CloseReason::PingTimeout));
        }
    }

    // The driver's answers.

    /// Lets the login that asked for it into `session`.
    pub fn admit(&mut self, session: Arc<Session>, now: Time) {
        let Phase::Login(login) = &mut self.phase else { return };
        let Some((mut response, text)) = login.admitted(&session) else { return };
        let Some(full) = FullFeature::new(login, session) else { return };
        response.stat_sn = self.sender.next_stat_sn();
        response.data_segment_len = text.len();
        self.sender.outbox.push(response.emit(), Segment::owned(text));
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
        self.loses_pdus = is_marked && parameters.error_recovery_level > 0;
        self.sender.outbox.start_markers(markers.in_);
        self.phase = Phase::FullFeature(Box::new(full));
        self.deadline = None;
        self.last_received = now;
    }

    /// Refuses the login that asked for it.
    pub fn refuse(&mut self, status: LoginStatus) {
        let Phase::Login(login) = &self.phase else { return };
        let Some(request) = login.waiting() else { return };
        self.end_login(&request, Refusal::new(status, status.to_string()));
    }

    /// Gives a command the buffer for its data: as long as the device wants data. [`Event::DataOut`] brings it back.
    pub fn want_data(&mut self, task: TaskTag, buffer: Buffer) {
        match &mut self.phase {
            Phase::FullFeature(full) => full.want_data(task, buffer, &mut self.sender, &mut self.events),
            Phase::Suspended(full) => full.keep_data(task, buffer, &mut self.events),
            _ => {}
        }
    }

    /// Ends a task with its response.
    pub fn complete(&mut self, task: TaskTag, response: Response) {
        match &mut self.phase {
            Phase::FullFeature(full) => full.complete(task, response, &mut self.sender),
            Phase::Suspended(full) => full.keep_answer(task, response),
            _ => {}
        }
    }

    /// Ends a task without a response: it was aborted.
    pub fn abort(&mut self, task: TaskTag) {
        match &mut self.phase {
            Phase::FullFeature(full) => full.abort(task, &mut self.sender),
            Phase::Suspended(full) => full.forget(task),
            _ => {}
        }
    }

    /// Answers a task management request.
    pub fn task_management_done(&mut self, itt: InitiatorTaskTag, response: TaskManagementResponseCode) {
        if let Phase::FullFeature(full) = &mut self.phase {
            full.task_management_done(itt, response, &mut self.sender);
        }
    }

    /// Answers a task management request that asks: yes, with what QUERY ASYNCHRONOUS EVENT has found (SAM-5 7.8). RFC 7144.
    pub fn task_management_succeeded(&mut self, itt: InitiatorTaskTag, information: [u8; 3]) {
        if let Phase::FullFeature(full) = &mut self.phase {
            full.task_management_succeeded(itt, information, &mut self.sender);
        }
    }

    /// Whether the initiator waits for the end of any task of the logical unit here.
    pub fn has_tasks(&self, lun: LunField) -> bool {
        matches!(&self.phase, Phase::FullFeature(full) | Phase::Suspended(full) if full.has_tasks(lun))
    }

    /// Answers a logout: the connection that it names has ended, or there is none.
    pub fn logout_done(&mut self, response: LogoutResponseCode) {
        if let Phase::FullFeature(full) = &mut self.phase {
            full.logout_done(response, &mut self.sender);
            self.close_if_logged_out();
        }
    }

    /// Ends the connection because another one of its session was lost (RFC 7143 section 7.1.4.4); tells the initiator so.
    pub fn drop_session(&mut self) {
        if let Phase::FullFeature(full) = &self.phase {
            full.drop_session(&mut self.sender);
        }
        self.close(CloseReason::SessionLost);
    }

    /// A task management function on another connection of the session concerns these tasks too: for the driver they have
    /// ended, but their responses still wait for data, or for another connection. None may follow its answer. `lun`: of that
    /// logical unit, or of all.
    pub fn silence(&mut self, lun: Option<LunField>, before: SerialNumber) {
        if let Phase::FullFeature(full) | Phase::Suspended(full) = &mut self.phase {
            full.silence_covered(lun, before);
        }
        if self.is_suspended() {
            FullFeature::drop_answers(lun, before, &mut self.sender);
        }
    }

    /// Tasks of the connection on a logical unit were ended by a task management function that came another way. Tells the
    /// initiator, where FastAbort was agreed on (RFC 7143 section 11.9.1, event 5), and lets go of their data when it has heard.
    /// Call it when nothing works for them any more: the initiator may do their work anew. `before`: of those on its way, the
    /// commands with smaller numbers were ended; see [`Session::exp_cmd_sn`].
    pub fn tasks_terminated(&mut self, lun: LunField, before: SerialNumber) {
        if let Phase::FullFeature(full) = &mut self.phase {
            full.tasks_terminated(lun, before, &mut self.sender);
        }
    }

    /// Whether the initiator has yet to send data of tasks that were ended without a response: of that logical unit, or of all.
    pub fn owes_data(&self, lun: Option<LunField>) -> bool {
        matches!(&self.phase, Phase::FullFeature(full) if full.owes_data(lun))
    }

    /// Nobody waits for that data any more. What comes of it is dropped.
    pub fn forget_data(&mut self, lun: Option<LunField>) {
        if let Phase::FullFeature(full) = &mut self.phase {
            full.forget_data(lun);
        }
    }

    /// The status number that the initiator has to acknowledge before it has received everything that is sent by now; `None`
    /// when it has. It is asked to answer at once.
    pub fn ask_acknowledgement(&mut self) -> Option<SerialNumber> {
        let Phase::FullFeature(full) = &mut self.phase else { return None };
        let due = self.sender.stat_sn();
        if self.sender.acknowledged() == due {
            return None;
        }
        full.ping(&mut self.sender);
        Some(due)
    }

    /// Others wait for buffers, and this connection keeps some to be able to send again what is in them. The initiator is
    /// asked to acknowledge. What it does not acknowledge in time is forgotten, and what it could not acknowledge, because
    /// nothing is read from it, at once. True when there is something to send, or when buffers came free.
    pub fn make_room(&mut self, now: Time) -> bool {
        let wants_input = self.wants_input();
        let Phase::FullFeature(full) = &mut self.phase else { return false };
        if self.sender.retained_bytes() == 0 || (wants_input && self.room_due.is_some()) {
            return false;
        }
        let sent = self.sender.stat_sn();
        if wants_input {
            full.ping(&mut self.sender);
            self.room_due = Some((now + ACKNOWLEDGE_TIMEOUT, sent));
        } else if let Some(retained) = self.sender.retained() {
            retained.forget_data_before(sent);
        }
        true
    }

    /// Whether the initiator has received everything before that status number. A connection that is over will hear of
    /// nothing more.
    pub fn has_acknowledged(&self, stat_sn: SerialNumber) -> bool {
        !matches!(self.phase, Phase::FullFeature(_)) || !stat_sn.is_after(self.sender.acknowledged())
    }

    /// Asks the initiator to log out within `grace`; ends the connection when it does not. A login in progress ends at once.
    /// To ask again changes nothing.
    pub fn request_logout(&mut self, grace: Duration, now: Time) {
        if matches!(self.deadline, Some((_, CloseReason::LogoutTimeout))) {
            return;
        }
        match &mut self.phase {
            Phase::FullFeature(full) => {
                full.request_logout(grace, &mut self.sender);
                self.deadline = Some((now + grace, CloseReason::LogoutTimeout));
            }
            Phase::Login(_) => self.close(CloseReason::LogoutTimeout),
            Phase::Suspended(_) | Phase::Closed => {}
        }
    }

    /// Declares another MaxRecvDataSegmentLength: asks the initiator for a negotiation within `grace` (RFC 7143 section 11.9.1,
    /// event 4). It holds when the initiator has begun one, now or later. To ask again for the same changes nothing.
    /// False then, and before the login has ended.
    pub fn renegotiate(&mut self, recv_data_segment_len: u32, grace: Duration) -> bool {
        match &mut self.phase {
            Phase::FullFeature(full) => full.renegotiate(recv_data_segment_len, grace, &mut self.sender),
            _ => false,
        }
    }

    /// Tells the initiator at once of a unit attention on a logical unit, with its `sense` data (RFC 7143 section 11.9). The
    /// next command finds it too, so a peer that does not read is not told.
    pub fn scsi_event(&mut self, lun: LunField, sense: &[u8]) {
        if self.outbox_is_full() {
            return;
        }
        if let Phase::FullFeature(full) = &mut self.phase {
            full.scsi_event(lun, sense, &mut self.sender);
        }
    }

    /// The targets that the connection knows of; `None` when it is closed.
    pub fn directory(&self) -> Option<&Arc<Directory>> {
        match &self.phase {
            Phase::Login(login) => Some(login.directory()),
            Phase::FullFeature(full) | Phase::Suspended(full) => Some(full.directory()),
            Phase::Closed => None,
        }
    }

    /// Answers from now on with these targets. A login that is in progress keeps those that it began with; see
    /// [`Directory::recheck`].
    pub fn set_directory(&mut self, directory: &Arc<Directory>) {
        if let Phase::FullFeature(full) = &mut self.phase {
            full.set_directory(Arc::clone(directory));
        }
    }

    /// The session, once the login is through.
    pub fn session(&self) -> Option<&Arc<Session>> {
        match &self.phase {
            Phase::FullFeature(full) | Phase::Suspended(full) => Some(full.session()),
            _ => None,
        }
    }

    // Inside.

    fn waits_for_driver(&self) -> bool {
        match &self.phase {
            Phase::Login(login) => login.waiting().is_some(),
            Phase::FullFeature(full) => {
                full.is_logging_out()
                    || (self.receiver.stage() == Stage::Data && full.waits_for_turn(&self.expect))
                    || self.stopped_by().is_some()
            }
            Phase::Suspended(_) | Phase::Closed => false,
        }
    }

    /// Deals with what waited for its turn, and sees to it that nothing waits for ever.
    fn deliver_early(&mut self, now: Time) -> bool {
        let Phase::FullFeature(full) = &mut self.phase else { return false };
        if !full.has_early() && self.gap_ends.is_none() {
            return false;
        }
        let delivered = full.deliver(&mut self.sender, &mut self.events);
        self.gap_ends = match self.gap_ends {
            _ if !full.has_early() => None,
            Some(at) if !delivered => Some(at),
            // A connection that was lost with them is recovered first.
            _ => Some(now + COMMAND_GAP_TIMEOUT + full.session().recovery_time().unwrap_or_default()),
        };
        self.close_if_logged_out();
        delivered
    }

    fn close_if_logged_out(&mut self) {
        if let Phase::FullFeature(full) = &self.phase
            && let Some(reason) = full.logged_out().cloned()
        {
            self.close(reason);
        }
    }

    /// A peer that asks and does not read must not make us remember ever more answers.
    fn outbox_is_full(&self) -> bool {
        let outbox = &self.sender.outbox;
        outbox.pdus() > MAX_OUTBOX_PDUS || outbox.owned_bytes() > MAX_OUTBOX_OWNED_BYTES
    }

    /// Moves on by one header or one data segment. False when that needs more bytes.
    fn consume(&mut self, input: &mut &[u8], now: Time) -> bool {
        if self.held.is_empty() {
            return self.advance(input, now);
        }
        let held = std::mem::take(&mut self.held);
        let mut rest = held.rest();
        let moved = self.advance(&mut rest, now);
        let left = rest.len();
        if left == 0 {
            // The piece may end inside a header or a segment that goes on in `input`.
            return moved || !input.is_empty();
        }
        self.held = held.keep_last(left);
        moved
    }

    fn advance(&mut self, input: &mut &[u8], now: Time) -> bool {
        if !input.is_empty() {
            self.heard(now);
            if self.loses_pdus && self.data_due.is_none() {
                self.data_due = Some(now + DATA_OUT_TIMEOUT);
            }
        }
        let outcome = match self.receiver.stage() {
            Stage::Header => self.advance_header(input),
            Stage::Data => self.advance_data(input),
        };
        match outcome {
            Ok(moved) => moved,
            Err(violation) => {
                self.violated(violation);
                true
            }
        }
    }

    fn advance_header(&mut self, input: &mut &[u8]) -> Result<bool, Violation> {
        if let Phase::FullFeature(full) = &self.phase {
            // Also a request that has waited for its turn may have declared another one.
            self.receiver.limit_segments(full.receive_limit());
        }
        if !self.receiver.header(input)? {
            return Ok(false);
        }
        self.expect = Expect::Nothing;
        let bhs = self.receiver.bhs();
        self.expect = match &mut self.phase {
            Phase::Login(_) => login_header(&self.receiver)?,
            Phase::FullFeature(full) => {
                full.shorten_receive_limit(bhs);
                full.header(bhs, self.receiver.ahs(), &mut self.sender, &mut self.events)?
            }
            Phase::Suspended(_) | Phase::Closed => Expect::Nothing,
        };
        if matches!(self.expect, Expect::Login(_) | Expect::Text(_) | Expect::Ping(_) | Expect::Command(_)) {
            self.segment.resize(bhs.data_segment_len(), 0);
        }
        self.close_if_logged_out();
        Ok(true)
    }

    fn advance_data(&mut self, input: &mut &[u8]) -> Result<bool, Violation> {
        let place: &mut [u8] = match (&self.expect, &mut self.phase) {
            (Expect::Login(_) | Expect::Text(_) | Expect::Ping(_) | Expect::Command(_), _) => &mut self.segment,
            (expect, Phase::FullFeature(full)) => full.place(expect),
            _ => &mut [],
        };
        match self.receiver.data(input, place) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(FrameError::DataDigest) if self.sender.retained().is_some() => {
                self.segment_lost();
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        }
        let segment = std::mem::take(&mut self.segment);
        match (std::mem::replace(&mut self.expect, Expect::Nothing), &mut self.phase) {
            (Expect::Login(request), Phase::Login(_)) => self.login_request(&request, &segment),
            (expect, Phase::FullFeature(full)) => {
                full.data(&expect, segment, self.receiver.ahs(), &mut self.sender, &mut self.events)?;
            }
            _ => {}
        }
        Ok(true)
    }

    /// A data segment has come damaged. From recovery level 1 on that costs the PDU only (RFC 7143 section 7.8).
    fn segment_lost(&mut self) {
        self.segment.clear();
        let expect = std::mem::replace(&mut self.expect, Expect::Nothing);
        let why = FrameError::DataDigest.to_string();
        self.violated(Violation::harmless(RejectReason::DATA_DIGEST_ERROR, why));
        if let Phase::FullFeature(full) = &mut self.phase {
            full.lost(&expect, &mut self.sender, &mut self.events);
        }
    }

    /// Whatever comes is a sign of life; it also answers a ping. A logout that we asked for still has to come.
    fn heard(&mut self, now: Time) {
        self.last_received = now;
        self.deadline.take_if(|(_, reason)| *reason == CloseReason::PingTimeout);
    }

    fn login_request(&mut self, request: &LoginRequest, data: &[u8]) {
        let Phase::Login(login) = &mut self.phase else { return };
        match login.request(request, data) {
            Ok(Step::Reply(mut response, text)) => {
                response.stat_sn = self.sender.next_stat_sn();
                response.data_segment_len = text.len();
                self.sender.outbox.push(response.emit(), Segment::owned(text));
            }
            Ok(Step::Admit(admit)) => self.events.push_back(Event::Admit(admit)),
            Err(refusal) => self.end_login(request, refusal),
        }
    }

    fn end_login(&mut self, request: &LoginRequest, refusal: Refusal) {
        let mut response = refused(request, refusal.status);
        response.stat_sn = self.sender.next_stat_sn();
        response.data_segment_len = refusal.keys.len();
        self.sender.outbox.push(response.emit(), Segment::owned(refusal.keys));
        self.close(CloseReason::LoginRefused(refusal.why));
    }

    fn violated(&mut self, violation: Violation) {
        if let (Some(reason), Phase::FullFeature(full)) = (violation.reject, &self.phase) {
            full.reject(reason, violation.data_sn, *self.receiver.bhs().as_array(), &mut self.sender);
        }
        if violation.fatal || !matches!(self.phase, Phase::FullFeature(_)) {
            self.close(CloseReason::Protocol(violation.why));
        } else {
            tracing::debug!(reason = ?violation.reject, why = violation.why, "PDU rejected");
        }
    }

    fn close(&mut self, reason: CloseReason) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        if !(reason.is_recoverable() && self.suspend()) {
            self.phase = Phase::Closed;
            self.sender.release();
        }
        self.deadline = None;
        self.gap_ends = None;
        self.room_due = None;
        self.data_due = None;
        self.held = Held::default();
        self.events.push_back(Event::Close(reason));
    }
}

/// Before the login has ended, nothing but a login request is listened to.
fn login_header(receiver: &Receiver) -> Result<Expect, Violation> {
    let bhs = receiver.bhs();
    if bhs.opcode() != Opcode::LOGIN_REQUEST {
        return Err(Violation::fatal(RejectReason::PROTOCOL_ERROR, format!("{} before the login", bhs.opcode())));
    }
    match LoginRequest::parse(bhs) {
        Ok(request) => Ok(Expect::Login(request)),
        Err(error) => Err(Violation::fatal(RejectReason::INVALID_PDU_FIELD, error.to_string())),
    }
}
