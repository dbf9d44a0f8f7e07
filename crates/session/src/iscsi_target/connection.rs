//! One connection of the target: the driver's face of the protocol. See the crate's documentation for the contract.
//!
//! Here is what it is made of and how bytes lead to events; the modules below have what the driver asks for and the way of
//! the bytes through the phases.

mod acknowledgement;
mod announcements;
mod login;
mod progress;
mod receiving;
mod recovery;
mod sending;
mod tasks;
mod time;
mod violation;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use lunette_pdu::SerialNumber;

use self::progress::Progress;
pub(crate) use self::receiving::Expect;
pub use self::recovery::KnownTask;
pub(crate) use self::violation::Violation;
use super::directory::Directory;
use super::event::{CloseReason, Event, TaskTag};
use super::full_feature::FullFeature;
use super::login::Login;
pub(crate) use super::sender::Sender;
use super::session::Session;
use crate::held::Held;
use crate::limits::{LOGIN_DATA_SEGMENT_BYTES, MAX_DISCOVERY_AHEAD_BYTES, MAX_LOGIN_BYTES};
use crate::receiver::{Receiver, Stage};
use crate::{Entropy, Time, Timers};

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
    progress: Progress,
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
            progress: Progress::default(),
        }
    }

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
                if let Some(most) = self.exceeded(input.len()) {
                    let why = format!("more than {most} bytes came before the answer to earlier ones was read");
                    self.close(CloseReason::Protocol(why));
                    continue;
                }
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
    #[inline]
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
        self.progress.received(len);
        if let Phase::FullFeature(full) = &mut self.phase {
            self.receiver.direct_filled(full.place(&self.expect), len);
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

    /// The bound that a peer breaks which may be anyone, when `more` bytes that cannot be taken now are kept, too.
    fn exceeded(&self, more: usize) -> Option<usize> {
        let (kept, most) = match &self.phase {
            Phase::Login(_) => (self.login_bytes(), MAX_LOGIN_BYTES),
            Phase::FullFeature(full) if full.is_discovery() => (self.held.rest().len(), MAX_DISCOVERY_AHEAD_BYTES),
            _ => return None,
        };
        (kept + more > most).then_some(most)
    }

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

    fn close_if_logged_out(&mut self) {
        if let Phase::FullFeature(full) = &self.phase
            && let Some(reason) = full.logged_out().cloned()
        {
            self.close(reason);
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
        self.stop_timers();
        self.held = Held::default();
        self.events.push_back(Event::Close(reason));
    }

    /// Nothing more is awaited of the stream.
    fn stop_timers(&mut self) {
        self.deadline = None;
        self.gap_ends = None;
        self.room_due = None;
        self.data_due = None;
        self.progress = Progress::default();
    }
}
