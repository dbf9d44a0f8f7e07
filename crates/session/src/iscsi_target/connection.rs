//! One connection of the target: bytes in, events and bytes out. See the crate's documentation for the contract.
//!
//! A [`LoginConnection`] becomes a [`Connection`] of a session, once. Here is what that is made of and how bytes lead
//! to events; the modules below have what the driver asks for and the way of the bytes through the phases.

mod acknowledgement;
mod announcements;
mod at_once;
mod handover;
mod login;
mod placing;
mod progress;
mod receiving;
mod recovery;
mod resting;
mod sending;
mod tasks;
mod time;

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use lunette_pdu::{BHS_LEN, SerialNumber};

pub use self::at_once::{CommandAtOnce, CommandsAtOnce, Transfer};
pub use self::login::{LoginConnection, LoginEvent};
pub use self::placing::Placement;
use self::progress::Progress;
use self::resting::Resting;
use super::directory::Directory;
use super::event::{CloseReason, Signal, TaskTag};
use super::expect::Expect;
use super::full_feature::FullFeature;
use super::tasks::window::CommandWindow;
use super::transport::sender::Sender;
use super::turn_context::TurnContext;
use crate::held::Held;
use crate::limits::MAX_DISCOVERY_AHEAD_BYTES;
use crate::markers::MarkedReceiver;
use crate::receiver::Stage;
use crate::{Time, Timers};

enum Phase {
    FullFeature(Box<FullFeature>),
    /// The stream is lost; the tasks wait for another connection.
    Suspended(Box<FullFeature>),
    Closed,
}

/// One connection of a session.
pub struct Connection {
    receiver: MarkedReceiver,
    sender: Sender,
    phase: Phase,
    expect: Expect,
    /// Data segments of PDUs that are not for a task.
    segment: Vec<u8>,
    events: VecDeque<Signal>,
    /// Bytes that came while the connection could not take them.
    held: Held,
    /// On the way to a standstill.
    resting: Option<Box<Resting>>,
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

/// A connection, with what its session shares among all of its connections.
pub struct ConnectionMut<'a> {
    connection: &'a mut Connection,
    window: &'a mut CommandWindow,
}

impl Deref for ConnectionMut<'_> {
    type Target = Connection;

    #[inline]
    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl DerefMut for ConnectionMut<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection
    }
}

impl Connection {
    /// Keeps bytes that were left over by the events before. They come before any later input.
    pub fn hold(&mut self, rest: &[u8]) {
        self.held.push(rest);
    }

    /// Whether more bytes can be taken now. While it is false, the driver does not read from the socket.
    #[inline]
    pub fn wants_input(&self) -> bool {
        matches!(self.phase, Phase::FullFeature(_))
            && !self.waits_for_driver()
            && !self.outbox_is_full()
            && !self.keeps_too_much()
    }

    /// The task whose data is next in the stream, while the driver has not said where it goes: until then nothing is
    /// read.
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

    /// Answers from now on with these targets.
    pub(crate) fn set_directory(&mut self, directory: &Arc<Directory>) {
        if let Phase::FullFeature(full) = &mut self.phase {
            full.set_directory(Arc::clone(directory));
        }
    }

    /// The bound that a peer breaks which may be anyone, when `more` bytes that cannot be taken now are kept, too.
    fn exceeded(&self, more: usize) -> Option<usize> {
        let Phase::FullFeature(full) = &self.phase else { return None };
        let exceeds = full.is_discovery() && self.held.rest().len() + more > MAX_DISCOVERY_AHEAD_BYTES;
        exceeds.then_some(MAX_DISCOVERY_AHEAD_BYTES)
    }

    fn waits_for_driver(&self) -> bool {
        let Phase::FullFeature(full) = &self.phase else { return false };
        full.is_logging_out()
            || (self.receiver.stage() == Stage::Data && full.waits_for_turn(&self.expect))
            || self.stopped_by().is_some()
    }

    /// Nothing more is awaited of the stream.
    fn stop_timers(&mut self) {
        self.deadline = None;
        self.gap_ends = None;
        self.room_due = None;
        self.data_due = None;
        self.progress = Progress::default();
    }

    /// Ends the connection while its session goes on: its tasks leave the command window.
    pub(super) fn end(&mut self, window: &mut CommandWindow) {
        if let Phase::FullFeature(mut full) | Phase::Suspended(mut full) =
            std::mem::replace(&mut self.phase, Phase::Closed)
        {
            full.end(&mut TurnContext { window, sender: &mut self.sender, events: &mut self.events });
            self.sender.release();
            self.stop_timers();
        }
    }
}

impl<'a> ConnectionMut<'a> {
    #[inline]
    pub(super) fn new(connection: &'a mut Connection, window: &'a mut CommandWindow) -> Self {
        Self { connection, window }
    }

    /// Consumes bytes from the front of `input` up to the next event.
    pub(super) fn next_event(&mut self, input: &mut &[u8], now: Time) -> Option<Signal> {
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
                if !matches!(self.phase, Phase::FullFeature(_)) {
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

    /// Where the next bytes should be received into: see [`Connection::direct`].
    pub fn into_direct(self) -> Option<&'a mut [u8]> {
        self.connection.direct()
    }

    /// The place of data that comes ahead of its turn: see [`Connection::place_early`].
    pub fn into_place_early(
        self,
        bhs: &[u8; BHS_LEN],
        pdu_offset: u32,
        len: usize,
    ) -> Option<(Placement, &'a mut [u8])> {
        self.connection.place_early(bhs, pdu_offset, len)
    }

    /// The full feature phase, and what it works on; `None` when the stream is gone.
    #[inline]
    fn full(&mut self) -> Option<(&mut FullFeature, TurnContext<'_>)> {
        let Connection { phase, sender, events, .. } = &mut *self.connection;
        let Phase::FullFeature(full) = phase else { return None };
        Some((full, TurnContext { window: self.window, sender, events }))
    }

    /// The full feature phase, also when the tasks wait for another connection. Tells whether they do.
    fn alive(&mut self) -> Option<(&mut FullFeature, TurnContext<'_>, bool)> {
        let Connection { phase, sender, events, .. } = &mut *self.connection;
        let (full, is_suspended) = match phase {
            Phase::FullFeature(full) => (full, false),
            Phase::Suspended(full) => (full, true),
            Phase::Closed => return None,
        };
        Some((full, TurnContext { window: self.window, sender, events }, is_suspended))
    }

    fn close_if_logged_out(&mut self) {
        if let Phase::FullFeature(full) = &self.phase
            && let Some(reason) = full.logged_out().cloned()
        {
            self.close(reason);
        }
    }

    pub(super) fn close(&mut self, reason: CloseReason) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        if !(reason.is_recoverable() && self.suspend()) {
            self.connection.end(self.window);
        }
        self.stop_timers();
        self.held = Held::default();
        self.events.push_back(Signal::Close(reason));
    }
}
