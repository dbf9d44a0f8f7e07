//! A toy target around a session's connection: it answers events as commands tell it to, and checks everything that
//! must hold, whatever the initiator sends.

mod inbound;
mod outbound;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::{Buffer, Pool};
#[cfg(test)]
use lunette_pdu::Opcode;
use lunette_pdu::{BHS_LEN, DIGEST_LEN, LoginStatus, LogoutResponseCode, LunField, R2t, SerialNumber};
use lunette_session::iscsi_target::{
    AdmitRequest, Command, Connection, ConnectionConfig, Directory, Entropy, Event, Portal, Response, Sessions,
    TargetNode, TaskManagement, TaskTag, Timers,
};
use lunette_session::keys::{Offer, Parameters};
use lunette_session::limits::{MAX_OUTBOX_OWNED_BYTES, MAX_OUTBOX_PDUS, MAX_RETAINED_BYTES, MAX_TEXT_BYTES};
use lunette_session::{Authentication, Time};

use self::inbound::Inbound;
use self::outbound::Outbound;
use crate::marked::Stream;

/// The name of the one target.
pub const TARGET: &str = "iqn.2026-11.lunette:disk";

/// The entropy is the same in every run, so that a corpus can hold the answer to a challenge.
pub const ENTROPY: [u8; Entropy::BYTES] = [0x5a; Entropy::BYTES];

/// The longest data of a command, in either direction.
const MAX_DATA_LEN: u32 = 128 << 10;

/// Bytes of a queued PDU beside its data segment.
const PDU_OVERHEAD: usize = BHS_LEN + 2 * DIGEST_LEN + 3;

/// Events that one PDU can cause.
const EVENTS_PER_PDU: usize = 3;

/// What the device will do when it has the data that it wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Complete,
    Wait,
}

enum State {
    /// `want_data` was called for so many bytes.
    Wants(usize, Then),
    /// It can be completed or aborted at any time.
    Waits,
}

/// The target.
pub struct Toy {
    conn: Connection,
    sessions: Sessions<u8>,
    now: Time,
    pool: Pool,
    /// Bytes on their way to the target.
    unread: Vec<u8>,
    tasks: HashMap<TaskTag, (State, u32)>,
    task_order: Vec<TaskTag>,
    management: Vec<TaskManagement>,
    admitted: Option<Parameters>,
    closed: bool,
    /// Whether the initiator takes what is sent to it.
    pub reading: bool,
    /// Bytes that the target gets at a time.
    pub chunk_len: usize,
    received: Inbound,
    sent: Outbound,
    events: usize,
    allowed_events: usize,
    given_bytes: usize,
    refuse: bool,
    /// Markers in what the initiator sends.
    pub(crate) markers: Option<Stream>,
    /// A PDU was changed on its way.
    pub(crate) spoilt: bool,
    /// Bytes that the initiator has sent before the end of the login.
    login_len: usize,
    /// The longest data segment that the target ever wanted to declare.
    longest_segment: u32,
}

impl Toy {
    /// A target with a new connection. With `refuse` no login is admitted.
    pub fn new(authentication: Authentication, initiators: Option<Vec<String>>, refuse: bool, offer: Offer) -> Self {
        let portal = Portal { address: ([127, 0, 0, 1], 3260).into(), group: 1 };
        let node = TargetNode {
            name: TARGET.into(),
            alias: Some("a disk".into()),
            authentication,
            initiators,
            portals: vec![portal],
            offer,
            moved: None,
        };
        let directory = Directory { targets: vec![Arc::new(node)], discovery: Authentication::None };
        let config = ConnectionConfig {
            directory: Arc::new(directory),
            local: portal.address,
            portal_group: portal.group,
            timers: Timers::default(),
            entropy: Entropy(ENTROPY),
        };
        let now = Time::default();
        Self {
            conn: Connection::new(config, now),
            sessions: Sessions::default(),
            now,
            pool: Pool::new(64 << 20),
            unread: Vec::new(),
            tasks: HashMap::new(),
            task_order: Vec::new(),
            management: Vec::new(),
            admitted: None,
            closed: false,
            reading: true,
            chunk_len: usize::MAX,
            received: Inbound::default(),
            sent: Outbound::default(),
            events: 0,
            allowed_events: EVENTS_PER_PDU,
            given_bytes: 0,
            refuse,
            markers: None,
            spoilt: false,
            login_len: 0,
            longest_segment: 0,
        }
    }

    /// Whether the login went through, ever.
    pub fn is_admitted(&self) -> bool {
        self.admitted.is_some()
    }

    /// Whether the connection is over.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// What was negotiated.
    pub fn parameters(&self) -> Parameters {
        self.admitted.clone().unwrap_or_default()
    }

    /// The kinds of PDUs that the target has sent.
    #[cfg(test)]
    pub fn answers(&self) -> impl Iterator<Item = Opcode> {
        self.sent.opcodes.iter().copied()
    }

    /// What the target has sent after the login, without markers.
    pub(crate) fn transcript(&self) -> &[u8] {
        &self.sent.transcript
    }

    /// R2Ts that arrived and have not been taken.
    pub fn r2ts(&mut self) -> &mut Vec<R2t> {
        &mut self.sent.r2ts
    }

    /// The next number that the target expects of a command, as it told.
    pub fn exp_cmd_sn(&self) -> SerialNumber {
        self.sent.exp_cmd_sn.unwrap_or(SerialNumber(1))
    }

    /// The next StatSN, as far as the initiator can tell.
    pub fn stat_sn(&self) -> SerialNumber {
        self.sent.stat_sn.unwrap_or_default()
    }

    /// Others wait for buffers.
    pub fn make_room(&mut self) {
        self.conn.make_room(self.now);
        self.pump();
    }

    /// Bytes from the initiator. From the end of the login on they are followed PDU by PDU.
    pub fn feed(&mut self, bytes: &[u8]) {
        if let Some(parameters) = &self.admitted {
            self.received.blind |= self.spoilt && parameters.error_recovery_level > 0;
            let longest = self.longest_segment.max(parameters.recv_data_segment_len);
            let mut parameters = parameters.clone();
            parameters.recv_data_segment_len = longest;
            self.received.follow(bytes, &parameters);
        } else {
            self.login_len += bytes.len();
        }
        match &mut self.markers {
            Some(markers) => self.unread.extend(markers.weave(bytes)),
            None => self.unread.extend_from_slice(bytes),
        }
        self.allowed_events += EVENTS_PER_PDU * (bytes.len() / BHS_LEN + 1);
        self.pump();
    }

    /// Lets time pass.
    pub fn wait(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.allowed_events += 1;
        self.conn.time_has_come(self.now);
        self.pump();
        if let Some(at) = self.conn.next_timeout() {
            assert!(at > self.now, "what is due has been done");
        }
    }

    /// Ends the `n`-th task that waits; with `abort` without a response.
    pub fn end_task(&mut self, n: usize, abort: bool) {
        self.task_order.retain(|tag| self.tasks.contains_key(tag));
        let Some(tag) = self.task_order.get(n % self.task_order.len().max(1)).copied() else { return };
        if abort {
            self.tasks.remove(&tag);
            self.conn.abort(tag);
        } else if matches!(self.tasks.get(&tag), Some((State::Waits, _))) {
            self.complete(tag, 0, 64);
        }
        self.pump();
    }

    /// Ends all tasks, those included that begin meanwhile.
    pub fn end_all_tasks(&mut self) {
        self.pump();
        while let Some(tag) = self.task_order.pop() {
            if matches!(self.tasks.get(&tag), Some((State::Waits, _))) {
                self.complete(tag, 0, 0);
                self.pump();
            }
        }
    }

    /// Answers all task management requests that wait.
    pub fn end_management(&mut self) {
        for request in std::mem::take(&mut self.management) {
            self.conn.task_management_done(request.itt, request.done());
        }
        self.pump();
    }

    /// The target shuts down.
    pub fn request_logout(&mut self) {
        self.allowed_events += 1;
        self.conn.request_logout(Duration::from_secs(3), self.now);
        self.pump();
    }

    /// The target's configuration takes another segment length.
    pub fn renegotiate(&mut self, recv_data_segment_len: u32) {
        self.longest_segment = self.longest_segment.max(recv_data_segment_len);
        self.conn.renegotiate(recv_data_segment_len, Duration::from_secs(5));
        self.pump();
    }

    /// Somebody else has reset the logical unit.
    pub fn tell_of_aborts(&mut self) {
        if let Some(before) = self.conn.session().map(|session| session.exp_cmd_sn()) {
            self.conn.tasks_terminated(LunField([0; 8]), before);
        }
        self.pump();
    }

    /// Nobody waits for the data of aborted tasks any more.
    pub fn forget_data(&mut self) {
        self.conn.forget_data(None);
        assert!(!self.conn.owes_data(None), "data of aborted tasks is waited for");
        self.pump();
    }

    /// Moves bytes and events until nothing moves any more.
    fn pump(&mut self) {
        loop {
            let before = (self.events, self.unread.len(), self.sent.bytes);
            self.drain_events(&mut &[][..]);
            self.drain_output();
            self.deliver();
            if before == (self.events, self.unread.len(), self.sent.bytes) {
                break;
            }
        }
        self.check_bounds();
    }

    /// Gives the target the next chunk, when it wants one.
    fn deliver(&mut self) {
        if self.unread.is_empty() || !self.conn.wants_input() {
            return;
        }
        let len = self.unread.len().min(self.chunk_len.max(1));
        let chunk: Vec<u8> = self.unread.drain(..len).collect();
        let mut rest = &chunk[..];
        if let Some(place) = self.conn.direct() {
            let direct = rest.len().min(place.len());
            place[..direct].copy_from_slice(&rest[..direct]);
            rest = &rest[direct..];
            self.conn.direct_received(direct, self.now);
        }
        self.drain_events(&mut rest);
        if !rest.is_empty() {
            assert!(!self.conn.wants_input(), "bytes are left over although more are wanted");
            self.conn.hold(rest);
        }
    }

    fn drain_events(&mut self, input: &mut &[u8]) {
        while let Some(event) = self.conn.next_event(input, self.now) {
            self.events += 1;
            assert!(self.events <= self.allowed_events, "more events than the PDUs that came can cause");
            assert!(!self.closed, "{event:?} after the end of the connection");
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Admit(request) => self.admit(&request),
            Event::Command(command) => {
                assert!(self.admitted.is_some(), "a command before the end of the login");
                self.start(&command);
            }
            Event::DataOut { task, buffer } => {
                let Some((State::Wants(len, then), data_out_len)) = self.tasks.remove(&task) else {
                    panic!("data for a task that did not want it");
                };
                assert_eq!(buffer.len(), len, "another buffer came back");
                drop(buffer);
                self.tasks.insert(task, (State::Waits, data_out_len));
                if then == Then::Complete {
                    self.complete(task, 0, 0);
                }
            }
            Event::TaskManagement(request) => {
                if let Some(task) = request.referenced {
                    assert!(self.tasks.remove(&task).is_some(), "a task to abort that is not alive");
                    self.conn.abort(task);
                }
                self.management.push(request);
            }
            Event::Aborted(task) => {
                assert!(self.tasks.remove(&task).is_some(), "a task that ended by itself and is not alive");
            }
            Event::Resume(_) => {}
            Event::Logout(_) | Event::LogoutForRecovery { .. } => self.conn.logout_done(LogoutResponseCode::CLOSED),
            // Its tasks wait for another connection, which never comes.
            Event::Close(_) if self.conn.is_suspended() => {
                self.conn.stream_lost(self.now);
            }
            Event::Close(_) => self.closed = true,
        }
    }

    fn admit(&mut self, request: &AdmitRequest) {
        assert!(self.admitted.is_none(), "two logins on one connection");
        if self.refuse {
            return self.conn.refuse(LoginStatus::OUT_OF_RESOURCES);
        }
        match self.sessions.admit(request, 0) {
            Ok(admitted) => {
                self.admitted = Some(request.parameters.clone());
                self.sent.admitted = Some(request.parameters.clone());
                let markers = request.parameters.of_marker;
                self.markers = markers.then(|| Stream::new(self.login_len, request.parameters.of_mark_int));
                self.conn.admit(admitted.session, self.now);
            }
            Err(status) => self.conn.refuse(status),
        }
    }

    /// The CDB says what the device does.
    fn start(&mut self, command: &Command) {
        let task = command.task;
        assert!(!self.tasks.contains_key(&task), "two tasks with one tag");
        self.task_order.push(task);
        let [mode, status, high, low, ..] = command.cdb;
        let wish = u32::from(u16::from_be_bytes([high, low])) * 2;
        self.tasks.insert(task, (State::Waits, command.data_out_len));
        let then = if mode & 8 == 0 { Then::Complete } else { Then::Wait };
        let wanted = wish.min(command.data_out_len).min(MAX_DATA_LEN);
        match mode % 4 {
            0 if wanted > 0 => {
                self.tasks.insert(task, (State::Wants(wanted as usize, then), command.data_out_len));
                self.conn.want_data(task, self.buffer(wanted));
            }
            1 => self.complete(task, status, wish),
            2 => self.complete(task, 0, wish),
            _ => {}
        }
    }

    fn complete(&mut self, task: TaskTag, status: u8, data_len: u32) {
        let Some((_, data_out_len)) = self.tasks.remove(&task) else { return };
        let data_in = (data_len > 0).then(|| self.buffer(data_len).into());
        self.given_bytes += data_len as usize;
        let sense = if status == 0 { Vec::new() } else { vec![0x70; usize::from(status) % 64] };
        let data_out_transfer_len = u64::from(data_out_len) + u64::from(status % 3) - u64::from(data_out_len.min(1));
        self.conn.complete(task, Response { status, status_qualifier: 0, sense, data_in, data_out_transfer_len });
    }

    fn buffer(&self, len: u32) -> Buffer {
        self.pool.take(len as usize).expect("the toy's budget is larger than what one input can want")
    }

    fn drain_output(&mut self) {
        if !self.reading && !self.closed {
            return;
        }
        let bytes: Vec<u8> = self.conn.slices().flatten().copied().collect();
        self.conn.sent(bytes.len());
        self.sent.take(&bytes, &self.received);
    }

    fn check_bounds(&self) {
        let queued: usize = self.conn.slices().map(<[u8]>::len).sum();
        // Answers that the bounds let in last: one text, one echo, and what the device says to each task.
        let slack_pdus = MAX_OUTBOX_PDUS / 2;
        let bound = (MAX_OUTBOX_PDUS + slack_pdus) * PDU_OVERHEAD
            + MAX_OUTBOX_OWNED_BYTES
            + 4 * MAX_TEXT_BYTES
            + self.longest_segment.max(self.parameters().recv_data_segment_len) as usize
            + self.given_bytes;
        // What is sent again points to what is kept.
        let parameters = self.parameters();
        let again = if parameters.error_recovery_level == 0 {
            0
        } else {
            (MAX_OUTBOX_PDUS + slack_pdus) * parameters.send_data_segment_len as usize + self.given_bytes
        };
        assert!(queued <= bound + again, "{queued} bytes wait for a peer that reads nothing");
        assert!(self.conn.kept_bytes() <= MAX_RETAINED_BYTES.max(queued), "too much is kept");
        if self.closed {
            assert!(!self.conn.wants_input());
            assert_eq!(self.conn.next_timeout(), None);
        }
    }
}
